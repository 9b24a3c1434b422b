"""`les pack`, `les unpack`, `les verify`, `les info`: model files."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from les.cli.common import err, out, out_json, progress_bar
from les.models import resolve
from les.pack import inspect, pack, unpack, verify
from les.sizes import format_size


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "pack",
        help="repack a GGUF file for streaming",
        description="Write a .les file, in which every expert is one contiguous record.",
        epilog="examples:\n  les pack model.gguf\n  les pack model-00001-of-00003.gguf /data/model.les",
    )
    p.add_argument("source", help="a GGUF file, any shard of one, or a folder with one model")
    p.add_argument("target", nargs="?", help="default: beside the source, ending in .les")
    p.add_argument("--force", action="store_true", help="replace an existing target")
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=run_pack)
    p = subparsers.add_parser(
        "unpack",
        help="turn a .les file back into GGUF",
        epilog="example:\n  les unpack model.les model.gguf",
    )
    p.add_argument("source")
    p.add_argument("target")
    p.add_argument("--force", action="store_true", help="replace an existing target")
    p.set_defaults(run=run_unpack)
    p = subparsers.add_parser(
        "verify",
        help="check a .les file's checksums",
        epilog="examples:\n  les verify demo\n  les verify model.les --json",
    )
    p.add_argument("model")
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=run_verify)
    p = subparsers.add_parser(
        "info",
        help="show what a model file holds",
        epilog="examples:\n  les info demo\n  les info model.gguf --tensors\n"
        "  les info model.gguf --json | jq .bytes_by_type",
    )
    p.add_argument("model")
    p.add_argument("--tensors", action="store_true", help="list every tensor")
    p.add_argument("--metadata", action="store_true", help="list all metadata")
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=run_info)


def run_pack(args: argparse.Namespace) -> int:
    with progress_bar("packing") as report:
        result = pack(args.source, args.target, progress=report, overwrite=args.force)
    if args.json:
        out_json(
            {
                "path": result.path,
                "source_bytes": result.source_bytes,
                "packed_bytes": result.packed_bytes,
                "n_records": result.n_records,
                "seconds": result.seconds,
            }
        )
    else:
        out(
            f"{result.path}: {result.n_records} experts, {format_size(result.source_bytes)} before, "
            f"{format_size(result.packed_bytes)} after, {result.seconds:.1f} s"
        )
    return 0


def run_unpack(args: argparse.Namespace) -> int:
    with progress_bar("unpacking") as report:
        path = unpack(args.source, args.target, progress=report, overwrite=args.force)
    out(f"{path}: {format_size(path.stat().st_size)}")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    with progress_bar("verifying") as report:
        result = verify(resolve(args.model), report)
    if args.json:
        out_json(
            {
                "path": result.path,
                "is_checked": result.is_checked,
                "n_records": result.n_records,
                "n_tensors": result.n_tensors,
                "read_bytes": result.read_bytes,
            }
        )
    elif result.is_checked:
        out(f"{result.path}: {result.n_records} experts and {result.n_tensors} trunk tensors match their checksums")
    else:
        out(f"{result.path}: a plain GGUF file has no checksums; its headers are sound ({result.n_tensors} tensors)")
    return 0


def run_info(args: argparse.Namespace) -> int:
    info = inspect(resolve(args.model))
    if args.json:
        out_json(info.as_json())
        return 0
    console = Console()
    kind = "packed for streaming" if info.is_packed else f"GGUF v{info.version}, {len(info.shards)} file(s)"
    facts = Table(show_header=False, title=info.name, title_justify="left")
    for name, value in (
        ("architecture", info.architecture),
        ("file", f"{info.path} ({kind}, {format_size(info.file_bytes)})"),
        ("parameters", f"{info.n_parameters / 1e9:.3f} billion"),
        ("trunk", format_size(info.trunk_bytes)),
        ("experts", format_size(info.expert_bytes)),
        ("types", ", ".join(f"{k} {format_size(v)}" for k, v in info.bytes_by_type.items())),
    ):
        facts.add_row(name, value)
    console.print(facts)
    if info.expert_layers:
        table = Table("layers", "experts", "record", "gate", "up", "down", title="experts", title_justify="left")
        for first, last, row in _runs(info.expert_layers):
            table.add_row(
                f"{first}" if first == last else f"{first} to {last}",
                str(row.n_expert),
                format_size(row.record_bytes),
                *(row.types.get(part, "") for part in ("gate", "up", "down")),
            )
        console.print(table)
    if args.tensors:
        table = Table("tensor", "type", "shape", "size")
        for t in info.tensors:
            table.add_row(t.name, t.type, " x ".join(map(str, t.shape)), format_size(t.size_bytes))
        console.print(table)
    if args.metadata:
        table = Table("key", "value")
        for key, value in info.metadata.items():
            text = f"[{len(value)} items]" if isinstance(value, list) and len(value) > 16 else str(value)
            table.add_row(key, text if len(text) <= 200 else text[:200] + "…")
        console.print(table)
    elif err.is_terminal:
        err.print("--tensors and --metadata show more", style="dim")
    return 0


def _runs(layers: list[Any]) -> list[tuple[int, int, Any]]:
    """Neighbouring layers of equal geometry as one line."""
    runs: list[tuple[int, int, Any]] = []
    for row in layers:
        if (
            runs
            and runs[-1][1] == row.layer - 1
            and (runs[-1][2].types, runs[-1][2].record_bytes) == (row.types, row.record_bytes)
        ):
            runs[-1] = (runs[-1][0], row.layer, runs[-1][2])
        else:
            runs.append((row.layer, row.layer, row))
    return runs
