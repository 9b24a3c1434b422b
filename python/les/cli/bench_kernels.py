"""`les bench kernels`: the speed of products of matrices, as fractions of what memory and registers give."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from les import _core
from les.cli.common import out_json
from les.errors import InvalidArgumentError, LesError
from les.sizes import parse_size

TYPES = "Q8_0 Q6_K Q5_K Q4_K Q4_0 MXFP4 IQ4_XS IQ4_NL Q5_0 Q3_K Q2_K IQ3_S IQ3_XXS IQ2_S IQ2_XS IQ2_XXS F16 BF16 F32"
SHAPES = "2048x768 2048x4096"  # an expert's gate or up matrix, and a query projection
COLUMNS = "4 64 512"


@dataclass(frozen=True)
class Shape:
    """A matrix: n_out rows of n_in weights."""

    n_in: int
    n_out: int

    def __str__(self) -> str:
        return f"{self.n_in}x{self.n_out}"


@dataclass(frozen=True)
class Row:
    """What was measured of one type and shape. prefill: columns -> GFLOP/s; fractions are of bandwidth and dot peak."""

    type: str
    shape: str
    decode_gb_s: float
    read_gb_s: float
    decode_fraction: float
    prefill_gflop_s: dict[int, float]
    prefill_fraction: dict[int, float]


def register_kernels(kinds: Any) -> None:
    p = kinds.add_parser(
        "kernels",
        help="speed of the products of matrices, by weight type",
        description="Decode: GB/s of weights that one token's product reads from memory, beside plain reading.\n"
        "Prefill: GFLOP/s of several tokens' product, beside integer dot products in registers.\n"
        "LES_FORCE_ISA chooses the kernels.",
        epilog="examples:\n  les bench kernels --types Q4_K,Q8_0\n"
        "  les bench kernels --shapes 4096x14336 --threads 4 --json",
    )
    p.add_argument("--types", default=TYPES, metavar="LIST", help="weight types, comma-separated; default: the common")
    p.add_argument("--shapes", default=SHAPES, metavar="LIST", help=f"inputs x outputs; default: {SHAPES}")
    p.add_argument("--columns", default=COLUMNS, metavar="LIST", help=f"prefill tokens; default: {COLUMNS}")
    p.add_argument("--threads", type=int, default=0, metavar="N", help="compute threads; default: big cores")
    p.add_argument("--memory", default="256MiB", metavar="SIZE", help="weights read in decode; default: 256MiB")
    p.add_argument("--rounds", type=int, default=5, metavar="N", help="the best of so many counts; default: 5")
    p.add_argument("--float", action="store_true", help="activations in float, not rounded to 8 bits")
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=run_kernels)


def words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", text) if word]


def parse_shape(text: str) -> Shape:
    match = re.fullmatch(r"(\d{1,7})x(\d{1,7})", text)
    if match is None or not int(match[1]) or not int(match[2]):
        raise InvalidArgumentError(f"shape {text!r}: expected inputs x outputs, as 2048x768")
    return Shape(int(match[1]), int(match[2]))


def parse_columns(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1 << 16:
        raise InvalidArgumentError(f"columns {text!r}: expected 1 to 65536")
    return int(text)


def measure(type: str, shape: Shape, columns: list[int], args: argparse.Namespace, memory: int, peak: float) -> Row:
    """One row; peak in operations per second, memory in bytes."""
    weights, reading = _core.bench_decode(
        type, shape.n_in, shape.n_out, args.threads, memory, args.rounds, use_float=args.float
    )
    prefill = {
        n: _core.bench_prefill(type, shape.n_in, shape.n_out, n, args.threads, args.rounds, use_float=args.float)
        for n in columns
    }
    return Row(
        type=type.upper(),
        shape=str(shape),
        decode_gb_s=weights / 1e9,
        read_gb_s=reading / 1e9,
        decode_fraction=weights / reading,
        prefill_gflop_s={n: speed / 1e9 for n, speed in prefill.items()},
        prefill_fraction={n: speed / peak for n, speed in prefill.items()},
    )


def run_kernels(args: argparse.Namespace) -> int:
    args.threads = args.threads or _core.cpu_info()["default_threads"]
    if min(args.threads, args.rounds) < 1:
        raise InvalidArgumentError("--threads and --rounds take 1 or more")
    types, shapes = words(args.types), [parse_shape(s) for s in words(args.shapes)]
    columns, memory = [parse_columns(c) for c in words(args.columns)], parse_size(args.memory)
    if memory is None:
        raise InvalidArgumentError("--memory needs a size, as 256MiB")
    if not types or not shapes:
        raise InvalidArgumentError("--types and --shapes need a value each")
    for name in types:
        _core.qtype_info(name)  # an unknown name is refused before anything is measured
    isa, console = _core.isa(), Console()
    peak = _core.bench_dot_peak(args.threads, args.rounds)
    rows: list[Row] = []
    skipped: list[str] = []
    status = Console(stderr=True).status("measuring")
    with status:
        for shape in shapes:
            for name in types:
                status.update(f"measuring {name} {shape}")
                try:
                    rows.append(measure(name, shape, columns, args, memory, peak))
                except LesError as error:
                    skipped.append(f"{name} {shape}: {error}")
    best_read = max((row.read_gb_s for row in rows), default=0.0)
    if args.json:
        out_json(
            {
                "isa": isa,
                "threads": args.threads,
                "read_gb_s": best_read,
                "dot_peak_gflop_s": peak / 1e9,
                "float": args.float,
                "rows": [asdict(row) for row in rows],
                "skipped": skipped,
            }
        )
        return 0 if rows else 1
    table = Table(
        title=f"{isa}, {args.threads} threads; reading {best_read:.1f} GB/s, dot products {peak / 1e9:.0f} GFLOP/s",
        title_justify="left",
        caption="Columns of numbers: tokens at once. GFLOP/s, and their part of what dot products reach in registers.",
        caption_justify="left",
    )
    for heading in ("type", "shape", "GB/s", "of reading", *map(str, columns)):
        table.add_column(heading, justify="left" if heading in ("type", "shape") else "right")
    for row in rows:
        prefill = [f"{row.prefill_gflop_s[n]:.0f} ({row.prefill_fraction[n]:.0%})" for n in columns]
        table.add_row(row.type, row.shape, f"{row.decode_gb_s:.2f}", f"{row.decode_fraction:.0%}", *prefill)
    console.print(table)
    for line in skipped:
        console.print(f"not measured: {line}", highlight=False)
    return 0 if rows else 1
