"""`les plan`: will it run, and how well, before anything is loaded."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

import les
from les.cli.common import out_json
from les.sizes import format_size

PARTS = (
    ("process_bytes", "program"),
    ("trunk_bytes", "trunk (always in memory)"),
    ("tokenizer_bytes", "vocabulary"),
    ("kv_bytes", "KV cache"),
    ("state_bytes", "recurrent state"),
    ("scratch_bytes", "scratch"),
    ("reader_bytes", "read buffers"),
    ("cache_bytes", "expert cache"),
)


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "plan",
        help="will it fit, and how well?",
        description="Show what running a model takes, from its headers alone.",
        epilog="examples:\n  les plan demo\n  les plan model.gguf --memory 3GiB --context 8192\n"
        "  les plan demo --memory 500MiB --json",
    )
    p.add_argument("model")
    p.add_argument("--memory", metavar="SIZE", help="budget of the whole process, as 3GiB")
    p.add_argument("--context", type=int, default=0, metavar="N", help="tokens; default: the model's, at most 4096")
    p.add_argument("--threads", type=int, default=0, metavar="N")
    p.add_argument("--kv-type", default="f16", choices=["f16", "f32", "q8_0"])
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    plan = les.plan(args.model, memory=args.memory, context=args.context, threads=args.threads, kv_type=args.kv_type)
    if args.json:
        out_json(plan)
        return 0 if plan["fits"] else 1
    budget = format_size(plan["budget_bytes"]) if plan["budget_bytes"] else "not limited"
    table = Table("part", "size", title=f"budget: {budget}, context: {plan['context']} tokens", title_justify="left")
    for key, label in PARTS:
        if plan[key]:
            table.add_row(label, format_size(plan[key]))
    table.add_section()
    table.add_row("together", format_size(plan["total_bytes"]))
    table.add_row("floor: runs with", format_size(plan["floor_bytes"]))
    table.add_row("recommended", format_size(plan["recommended_bytes"]))
    table.add_row("everything in memory", format_size(plan["full_bytes"]))
    console = Console()
    console.print(table)
    if plan["n_experts_total"]:
        console.print(
            f"experts: {plan['n_slots']} of {plan['n_experts_total']} fit ({format_size(plan['slot_bytes'])} each, "
            f"{format_size(plan['expert_bytes'])} in all); a token uses {plan['experts_per_token']}",
            highlight=False,
        )
    console.print(plan["message"], style="" if plan["fits"] else "bold red", markup=False, soft_wrap=True)
    return 0 if plan["fits"] else 1
