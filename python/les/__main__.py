"""`python -m les` is the `les` command."""

import sys

from les.cli.main import main

sys.exit(main())
