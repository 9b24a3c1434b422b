"""What the commands share: model and sampling options, progress bars, output."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

import les
from les.models import pull, resolve
from les.models.cache import is_demo
from les.sizes import format_size

err = Console(stderr=True, highlight=False)


def out(text: str = "", end: str = "\n") -> None:
    """Plain text on stdout, at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def out_json(value: Any) -> None:
    out(json.dumps(value, indent=2, default=str))


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads a model."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--memory", metavar="SIZE", help="budget of the whole process, as 3GiB; default: what the model needs"
    )
    group.add_argument("--context", type=int, default=0, metavar="N", help="tokens; default: the model's, at most 4096")
    group.add_argument("--threads", type=int, default=0, metavar="N", help="compute threads; default: big cores")
    group.add_argument("--kv-type", default="f16", choices=["f16", "f32", "q8_0"], help="type of the KV cache")
    group.add_argument("--flash", metavar="DEVICE", help="simulate flash: ufs4, nvme, emmc or GB/s,lanes,µs")
    group.add_argument("--reader", default="auto", choices=["auto", "pread", "uring"], help="how files are read")
    group.add_argument("--lanes", type=int, default=0, metavar="N", help="concurrent reads; default: by the device")
    group.add_argument(
        "--prefetch", default="auto", choices=["auto", "on", "off"], help="read ahead what routing predicts"
    )
    group.add_argument("--no-verify", action="store_true", help="do not check experts' checksums when first read")
    group.add_argument("--verbose", action="store_true", help="say on stderr what is going on")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that writes text."""
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--max-tokens", type=int, default=None, metavar="N", help="longest reply; -1: until the context is full"
    )
    group.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0: always the likeliest token")
    group.add_argument("--top-k", type=int, default=40, metavar="K")
    group.add_argument("--top-p", type=float, default=0.95, metavar="P")
    group.add_argument("--min-p", type=float, default=0.05, metavar="P")
    group.add_argument("--repeat-penalty", type=float, default=1.0, metavar="X")
    group.add_argument("--presence-penalty", type=float, default=0.0, metavar="X")
    group.add_argument("--frequency-penalty", type=float, default=0.0, metavar="X")
    group.add_argument("--seed", type=int, default=None, metavar="N", help="same seed, same text")
    group.add_argument(
        "--draft",
        default=None,
        metavar="DRAFTER",
        help="speculative decoding: ngram, or a DSpark GGUF file; changes speed only",
    )
    group.add_argument("--draft-max", type=int, default=8, metavar="N", help="most tokens drafted at a time")
    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end the reply before this text (repeatable)"
    )


SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "seed")


def sampling_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of Model.generate."""
    settings: dict[str, Any] = {name: getattr(args, name) for name in SAMPLING}
    settings["stop"] = list(args.stop)
    if args.draft is not None:
        settings["draft"], settings["draft_max"] = args.draft, args.draft_max
    if args.max_tokens is not None:
        settings["max_tokens"] = args.max_tokens
    return settings


def load_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of les.load."""
    return {
        "log": (lambda line: err.print(line, style="dim", markup=False)) if args.verbose else None,
        "memory": args.memory,
        "context": args.context,
        "threads": args.threads,
        "kv_type": args.kv_type,
        "flash": args.flash,
        "reader": args.reader,
        "lanes": args.lanes,
        "prefetch": args.prefetch,
        "verify": not args.no_verify,
        "compute": getattr(args, "compute", "int8"),
    }


@contextmanager
def progress_bar(label: str) -> Iterator[Any]:
    """progress(done, total) as a bar on stderr; silent where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        task = bars.add_task(label, total=None)

        def report(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        yield report


STAGES = {"download": "downloading", "build": "building experts", "pack": "packing"}


def pull_with_bar(name: str, **options: Any) -> Any:
    """les.models.pull with one bar for each of its stages."""
    columns = (
        TextColumn("{task.description:>16}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[size]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(STAGES.get(stage, stage), total=total, size="")
            size = "" if stage == "build" else f"{format_size(done)} of {format_size(total)}"
            bars.update(tasks[stage], completed=done, total=total, size=size)

        return pull(name, report, **options)


def load_model(args: argparse.Namespace) -> les.Model:
    """The model of the command line, with a bar while it loads. The demo is fetched and built when it is not there."""
    name = args.model
    if is_demo(name):
        try:
            resolve(name)
        except les.NotFoundError:
            err.print(f"[dim]{name} is not installed yet: fetching and building it (93 MB, about half a minute)[/]")
            # In a process of its own, so that building does not count in this one's memory.
            done = subprocess.run([sys.executable, "-m", "les", "pull", name])
            if done.returncode:
                sys.exit(done.returncode)
    with progress_bar("loading") as report:
        return les.load(name, progress=report, **load_settings(args))


def stats_line(result: les.GenerationResult) -> str:
    """One line about a finished generation."""
    t, s = result.timings, result.stats
    parts = [
        f"{t.completion_tokens} tokens, {t.decode_tok_s:.1f} tok/s",
        f"first token {t.ttft_s:.2f} s ({t.prefilled_tokens} prompt tokens, {t.prefill_tok_s:.0f} tok/s)",
        f"experts {s.hit_rate:.0%} in memory, {s.flash_bytes_per_token / 2**20:.1f} MiB/token from disk, "
        f"waited {s.stall_s:.2f} s",
        f"peak {format_size(s.peak_bytes)}",
    ]
    if result.draft is not None:
        d = result.draft
        widths = ", ".join(f"{k}x{n}" for k, n in sorted(d.widths.items()))
        parts.append(
            f"drafts: {d.n_accepted} of {d.n_drafted} accepted, {d.tokens_per_round:.2f} tokens/round (widths {widths})"
        )
    return " | ".join(parts)


def result_json(result: les.GenerationResult) -> dict[str, Any]:
    """A generation as plain values."""
    t, s = result.timings, result.stats
    draft = {"draft": result.draft.as_dict()} if result.draft is not None else {}
    return {
        "text": result.text,
        "tokens": result.tokens,
        "finish_reason": result.finish_reason,
        "stop_reason": result.stop_reason,
        "timings": {
            "prompt_tokens": t.prompt_tokens,
            "prefilled_tokens": t.prefilled_tokens,
            "completion_tokens": t.completion_tokens,
            "ttft_s": t.ttft_s,
            "prefill_tok_s": t.prefill_tok_s,
            "decode_tok_s": t.decode_tok_s,
        },
        "stats": {
            "hit_rate": s.hit_rate,
            "hits": s.hits,
            "misses": s.misses,
            "late": s.late,
            "flash_bytes": s.flash_bytes,
            "stall_s": s.stall_s,
            "useful_bytes": s.useful_bytes,
            "wasted_bytes": s.wasted_bytes,
            "peak_bytes": s.peak_bytes,
        },
        **draft,
    }
