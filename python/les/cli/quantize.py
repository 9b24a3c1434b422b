"""`les quantize`: the same model with smaller experts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from les.cli.common import add_model_options, out, out_json, progress_bar
from les.cli.precision import add_measuring_options, add_target_options, has_target, prepared, show_plan, target_of
from les.errors import InvalidArgumentError
from les.models import resolve
from les.pack.layout import SLICES
from les.precision.pipeline import given_calibration, plan_for
from les.precision.plan import PrecisionPlan, load_plan, mean_bits, uniform_plan
from les.precision.qtypes import WRITABLE, check_writable
from les.precision.writer import Importance, open_source, requantize
from les.sizes import format_size

EXAMPLES = """examples:
  les quantize demo demo-q5.les --type Q5_0
  les quantize model.gguf model-q4.les --type Q4_K --down Q6_K
  les quantize demo demo-q4.les --type Q4_K --fallback Q4_0     rows that Q4_K cannot hold get Q4_0
  les quantize model.gguf model-mixed.les --plan plan.json
  les quantize demo demo-mixed.les --shrink 26.7%               calibrates, measures and plans first
"""


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "quantize",
        help="write a model with smaller experts",
        description="Write a model's experts anew in other quant "
        "types, for each layer and projection; everything else stays byte for byte.",
        epilog=EXAMPLES + "\ntypes: " + " ".join(WRITABLE),
    )
    p.add_argument("model", help="file, folder or name of a model; best F16, BF16 or Q8_0")
    p.add_argument("target", help="the .les file to write")
    how = p.add_mutually_exclusive_group()
    how.add_argument("--plan", metavar="FILE", help="a precision plan")
    how.add_argument("--type", metavar="TYPE", help="one type for all experts")
    for name in SLICES:
        p.add_argument(f"--{name}", metavar="TYPE", help=f"another type for the {name} projections")
    p.add_argument(
        "--fallback",
        metavar="TYPE",
        help="type for rows that are no whole blocks of the type asked for; default: an error",
    )
    p.add_argument("--force", action="store_true", help="replace an existing target")
    p.add_argument("--json", action="store_true")
    add_target_options(p)
    add_measuring_options(p)
    add_model_options(p)
    p.set_defaults(run=run)


def types_of(args: argparse.Namespace) -> dict[str, str]:
    """Slice -> type, as --type, --gate, --up and --down say."""
    asked = {name: getattr(args, name) or args.type for name in SLICES}
    return {name: check_writable(kind) for name, kind in asked.items() if kind is not None}


def chosen_plan(args: argparse.Namespace, path: Path) -> tuple[PrecisionPlan, Importance | None]:
    """What to write, and how its columns count."""
    types = types_of(args)
    source = open_source(path)
    if has_target(args):
        if types or args.fallback or args.plan:
            raise InvalidArgumentError("--plan, --type, --gate, --up, --down and --fallback do not go with a target")
        target = target_of(args)
        target.max_expert_bytes(source)
        ready = prepared(args, path, source)
        plan, _ = plan_for(source, ready.sensitivities, target)
        if not args.json:
            show_plan(source, plan, ready.sensitivities)
        return plan, ready.calibration.importance
    importance = given_calibration(args.calibration, source).importance if args.calibration else None
    if args.plan is not None:
        if types or args.fallback:
            raise InvalidArgumentError("--gate, --up, --down and --fallback do not go with --plan")
        return load_plan(args.plan), importance
    if not types:
        raise InvalidArgumentError(
            "say what to write: --type, --plan, a type for --gate, --up or --down, or a target such as --shrink"
        )
    return uniform_plan(source, types, check_writable(args.fallback) if args.fallback else None), importance


def run(args: argparse.Namespace) -> int:
    source = resolve(args.model)
    plan, importance = chosen_plan(args, source)
    with progress_bar("quantising") as report:
        result = requantize(
            source,
            args.target,
            plan,
            importance=importance,
            threads=args.threads,
            progress=report,
            overwrite=args.force,
        )
    bits = mean_bits(open_source(result.path))
    shrink = 1 - result.expert_bytes / result.source_expert_bytes
    if args.json:
        out_json(
            {
                "path": result.path,
                "source_expert_bytes": result.source_expert_bytes,
                "expert_bytes": result.expert_bytes,
                "shrink": shrink,
                "bits_per_weight": bits,
                "file_bytes": result.file_bytes,
                "seconds": result.seconds,
            }
        )
    else:
        out(
            f"{result.path}: experts {format_size(result.source_expert_bytes)} before, "
            f"{format_size(result.expert_bytes)} after "
            f"({shrink:.1%} smaller, {bits:.2f} bits a weight), {result.seconds:.1f} s"
        )
    return 0
