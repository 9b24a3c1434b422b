"""The `les` command: finds the command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import les
from les.cli import bench, chat, evaluate, files, generate, models, plan, precision, quantize
from les.cli.common import err

# Each module has register(subparsers), which sets `run` on its parsers.
COMMANDS = (chat, generate, models, files, quantize, precision, evaluate, plan, bench)

EXAMPLES = """examples:
  les chat                                   chat with the demo model, built on first use
  les chat MODEL.les --memory 3GiB           a model larger than memory, within 3 GiB
  les generate demo "What is a glacier?"     one answer on stdout
  les pack MODEL.gguf                        repack a GGUF file for streaming
  les plan MODEL.gguf --memory 3GiB          will it fit, and how well?
"""


class Parser(argparse.ArgumentParser):
    """Keeps the lines of examples as they are written; its subcommands' parsers are of this class too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **settings})


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(
        prog="les",
        description="Run Mixture-of-Experts language models larger than memory.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"les {les.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(subparsers)
    return parser


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's arguments. A prompt's words may stand anywhere between the options: argparse gives all of a
    command's positional words at their first place, and leaves over what comes after the next option."""
    parser = make_parser()
    args, rest = parser.parse_known_args(argv)
    if rest and not (hasattr(args, "prompt") and all(word == "-" or not word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.prompt = [*args.prompt, *rest]
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 an error (one line on stderr says what to do), 2 wrong usage, 130 interrupted."""
    args = parse(argv)
    warnings.showwarning = lambda message, *_: err.print(f"les: {message}", style="dim", markup=False, soft_wrap=True)
    try:
        return args.run(args) or 0
    except KeyboardInterrupt:
        err.print("interrupted", style="dim")
        return 130
    except BrokenPipeError:
        # The reader of our output is gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except les.LesError as error:
        if os.environ.get("LES_DEBUG") == "1":
            raise
        err.print(f"les: error: {error}", markup=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
