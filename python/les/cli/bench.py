"""`les bench`: measurements that anyone can repeat."""

from __future__ import annotations

import argparse
import time
import zlib
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import les
from les.cli.bench_kernels import register_kernels
from les.cli.common import add_model_options, load_model, out_json
from les.errors import InvalidArgumentError
from les.sizes import format_size


def register(subparsers: Any) -> None:
    bench = subparsers.add_parser(
        "bench",
        help="measure speed",
        epilog="example:\n  les bench decode demo --memory 400MiB",
    )
    kinds = bench.add_subparsers(dest="kind", metavar="KIND", required=True)
    p = kinds.add_parser(
        "decode",
        help="prefill and decode speed of a model",
        epilog="examples:\n  les bench decode demo\n  les bench decode model.les --memory 3GiB --flash ufs4 --json",
    )
    p.add_argument("model")
    p.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens to decode")
    p.add_argument("--prompt-tokens", type=int, default=128, metavar="N", help="tokens to prefill")
    p.add_argument("--repeat", type=int, default=3, metavar="N", help="runs; the median is shown")
    p.add_argument("--warm-up", type=int, default=0, metavar="N", help="runs before, not measured; default: none")
    p.add_argument("--json", action="store_true")
    add_model_options(p)
    p.set_defaults(run=run_decode)
    register_kernels(kinds)


def prompt_tokens(model: les.Model, n: int) -> list[int]:
    """A text of n tokens, the same in every run."""
    text = "The glacier moved a little every year, and the village below it learned to live with the noise. "
    ids = model.tokenizer.encode(text, special=True)
    body = model.tokenizer.encode(text)
    while len(ids) < n:
        ids += body
    return ids[:n]


def run_once(model: les.Model, n_prompt: int, n_tokens: int) -> dict[str, Any]:
    """One prefill and greedy decode in a fresh session, with the figures of both."""
    with model.session() as session:
        started = time.perf_counter()
        logits = session.eval(prompt_tokens(model, n_prompt))
        prefill_s = time.perf_counter() - started
        model.reset_stats()
        tokens = []
        started = time.perf_counter()
        for _ in range(n_tokens):
            tokens.append(int(np.argmax(logits[-1])))
            logits = session.eval([tokens[-1]])
        decode_s = time.perf_counter() - started
    stats = model.stats()
    used = stats["hit"] + stats["miss"] + stats["late"]
    return {
        "tok_s": n_tokens / decode_s,
        "prefill_tok_s": n_prompt / prefill_s,
        "hit_rate": stats["hit"] / used if used else 1.0,
        "mib_per_token": stats["flash_bytes"] / n_tokens / 2**20,
        "stall_fraction": stats["stall_ns"] / 1e9 / decode_s,
        "useful_bytes": stats["useful_bytes"],
        "late_bytes": stats["late_bytes"],
        "wasted_bytes": stats["wasted_bytes"],
        "peak_bytes": stats["peak_bytes"],
        "text_hash": f"{zlib.crc32(np.array(tokens, np.int32).tobytes()):08x}",
    }


def run_decode(args: argparse.Namespace) -> int:
    if min(args.tokens, args.prompt_tokens, args.repeat) < 1:
        raise InvalidArgumentError("--tokens, --prompt-tokens and --repeat take 1 or more")
    with load_model(args) as model:
        for _ in range(args.warm_up):
            run_once(model, args.prompt_tokens, 1)
        runs = [run_once(model, args.prompt_tokens, args.tokens) for _ in range(args.repeat)]
        row = sorted(runs, key=lambda r: r["tok_s"])[len(runs) // 2]
        row.update(
            model=args.model,
            tokens=args.tokens,
            prompt_tokens=args.prompt_tokens,
            repeat=args.repeat,
            tok_s_min=min(r["tok_s"] for r in runs),
            tok_s_max=max(r["tok_s"] for r in runs),
            reader=model.stats()["reader"],
            isa=les._core.isa(),
            n_slots=model.plan["n_slots"],
            n_experts=model.plan["n_experts_total"],
        )
    if args.json:
        out_json(row)
        return 0
    table = Table(
        show_header=False,
        title=f"{args.model}: {args.tokens} tokens after {args.prompt_tokens}, median of {args.repeat}",
        title_justify="left",
    )
    for label, value in (
        ("decode", f"{row['tok_s']:.1f} tok/s ({row['tok_s_min']:.1f} to {row['tok_s_max']:.1f})"),
        ("prefill", f"{row['prefill_tok_s']:.1f} tok/s"),
        ("experts in memory", f"{row['n_slots']} of {row['n_experts']}"),
        ("hit rate", f"{row['hit_rate']:.1%}"),
        ("read from disk", f"{row['mib_per_token']:.2f} MiB/token"),
        ("waiting for reads", f"{row['stall_fraction']:.1%} of the time"),
        (
            "read ahead",
            f"{format_size(row['useful_bytes'])} useful, {format_size(row['late_bytes'])} late, "
            f"{format_size(row['wasted_bytes'])} wasted",
        ),
        ("peak memory", format_size(row["peak_bytes"])),
        ("reader, kernels", f"{row['reader']}, {row['isa']}"),
        ("text", row["text_hash"]),
    ):
        table.add_row(label, value)
    Console().print(table)
    return 0
