"""`les pull`, `les list`, `les rm`: models in the cache folder."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from les.cli.common import err, out, out_json, pull_with_bar
from les.models import cache_dir, installed, remove
from les.models.cache import ALIASES
from les.sizes import format_size

PULL_EXAMPLES = """examples:
  les pull demo                                    the demo model (93 MB download)
  les pull unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M       from the Hugging Face hub (needs les[hub])

known names: """ + ", ".join(ALIASES)


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "pull",
        help="fetch a model",
        description="Fetch a model and pack it for streaming.",
        epilog=PULL_EXAMPLES,
    )
    p.add_argument("name", help="demo, a known name, or OWNER/REPO:QUANT")
    p.add_argument("--force", action="store_true", help="fetch again what is there already")
    p.add_argument("--keep-source", action="store_true", help="keep the downloaded GGUF files after packing")
    p.set_defaults(run=run_pull)
    p = subparsers.add_parser(
        "list",
        help="show installed models",
        epilog="example:\n  les list --json",
    )
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=run_list)
    p = subparsers.add_parser(
        "rm",
        help="remove an installed model",
        epilog="example:\n  les rm demo",
    )
    p.add_argument("name")
    p.set_defaults(run=run_rm)


def run_pull(args: argparse.Namespace) -> int:
    path = pull_with_bar(args.name, force=args.force, keep_source=args.keep_source)
    err.print(f"{args.name}: {format_size(path.stat().st_size)} at {path}", markup=False, soft_wrap=True)
    return 0


def run_list(args: argparse.Namespace) -> int:
    models = installed()
    if args.json:
        out_json([{"name": m.name, "path": m.path, "size_bytes": m.size_bytes} for m in models])
        return 0
    if not models:
        out(f"no models in {cache_dir()}; get one with: les pull demo")
        return 0
    table = Table("name", "size", "file")
    for m in models:
        table.add_row(m.name, format_size(m.size_bytes), str(m.path))
    Console().print(table)
    return 0


def run_rm(args: argparse.Namespace) -> int:
    model = remove(args.name)
    err.print(f"removed {model.name} ({format_size(model.size_bytes)})", markup=False)
    return 0
