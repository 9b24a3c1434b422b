"""`les calibrate` and `les plan-precision`, and what they share with `les quantize`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

import les
from les._core import GgufFile
from les.cli.common import add_model_options, err, load_settings, out, out_json
from les.errors import InvalidArgumentError
from les.eval.tokens import Reference, Windows, make_windows, read_texts
from les.models import resolve
from les.pack.layout import SLICES
from les.precision.calibration import check_folder, default_path, load_calibration, save_calibration
from les.precision.compare import compare_precision, evaluate_types, sample_changes, spearman, summed_up
from les.precision.pipeline import (
    CALIBRATION_TOKENS,
    SENSITIVITY_TOKENS,
    WINDOW,
    Prepared,
    Progress,
    Target,
    ensure_calibration,
    given_calibration,
    parse_shrink,
    plan_for,
    prepare,
    sensitivity_windows,
)
from les.precision.plan import PrecisionPlan, bytes_per_token, expert_bytes, mean_bits, save_plan
from les.precision.qtypes import bits_of
from les.precision.texts import HELD_OUT, own_text
from les.precision.writer import default_threads, open_source
from les.sizes import format_size, parse_size


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "calibrate",
        help="see what a model's experts see on a text",
        description="Run a model over a text and keep, by expert and projection, how often it is used and the "
        "mean squares of "
        "its inputs. Without a text the model's own answers to a list of requests serve. An "
        "interrupted run goes on where it was.",
        epilog="examples:\n  les calibrate demo\n  les calibrate model.gguf --text notes.txt code.txt "
        "--tokens 32768 --memory 3GiB\n"
        "  les calibrate model.gguf --imatrix imatrix.gguf",
    )
    p.add_argument("model")
    p.add_argument(
        "--text", nargs="+", default=[], metavar="FILE", help="plain text, UTF-8; default: the model's own answers"
    )
    p.add_argument(
        "--imatrix", metavar="FILE", help="take the sums of llama.cpp's importance matrix instead of running the model"
    )
    p.add_argument("--out", metavar="FILE", help="default: beside the model, ending in .calibration.npz")
    p.add_argument(
        "--tokens",
        type=int,
        default=CALIBRATION_TOKENS,
        metavar="N",
        help=f"tokens at most (default {CALIBRATION_TOKENS})",
    )
    p.add_argument(
        "--window", type=int, default=WINDOW, metavar="N", help=f"tokens with one context (default {WINDOW})"
    )
    p.add_argument("--seed", type=int, default=0, metavar="N", help="of the model's own answers")
    p.add_argument("--force", action="store_true", help="do it anew where it was done")
    p.add_argument("--json", action="store_true")
    add_model_options(p)
    p.set_defaults(run=run_calibrate)
    p = subparsers.add_parser(
        "plan-precision",
        help="find the quant type of each layer and projection",
        description="Choose types so that the least is lost for a number of bytes, or the fewest bytes are "
        "used for a loss. "
        "Calibrates and measures first, if that was not done.",
        epilog="examples:\n  les plan-precision demo --shrink 26.7% --out plan.json\n"
        "  les plan-precision model.gguf --bits 3.5\n"
        "  les plan-precision model.gguf --size 12GiB --json\n  les plan-precision demo --max-kl 0.02",
    )
    p.add_argument("model")
    p.add_argument("--out", metavar="FILE", help="write the plan, for les quantize --plan")
    p.add_argument("--json", action="store_true")
    add_target_options(p)
    add_measuring_options(p)
    add_model_options(p)
    p.set_defaults(run=run_plan)


def add_target_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("target (one of these)")
    group.add_argument("--shrink", metavar="PART", help="expert bytes to save, as 26.7%%")
    group.add_argument("--size", metavar="SIZE", help="of the whole model, as 12GiB")
    group.add_argument("--bits", type=float, metavar="X", help="mean bits of the experts' weights")
    group.add_argument("--max-kl", type=float, metavar="X", help="divergence from the model, nats a token")


def add_measuring_options(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("measuring")
    group.add_argument(
        "--calibration",
        metavar="FILE",
        help="of les calibrate, or an imatrix; made if it is not there (default: beside the model)",
    )
    group.add_argument(
        "--sensitivity",
        metavar="FILE",
        help="what was measured of each layer; made if it is not there (default: beside the model)",
    )
    group.add_argument(
        "--sensitivity-tokens",
        type=int,
        default=SENSITIVITY_TOKENS,
        metavar="N",
        help=f"tokens to measure layers on (default {SENSITIVITY_TOKENS})",
    )


def has_target(args: argparse.Namespace) -> bool:
    return any(getattr(args, name) is not None for name in ("shrink", "size", "bits", "max_kl"))


def target_of(args: argparse.Namespace) -> Target:
    return Target(
        parse_shrink(args.shrink) if args.shrink is not None else None, parse_size(args.size), args.bits, args.max_kl
    )


@contextmanager
def stages_bar() -> Iterator[Progress]:
    """progress(what, done, total) as one bar for each stage, on stderr; silent where that is no terminal."""
    columns = (
        TextColumn("{task.description:>16}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report


def prepared(args: argparse.Namespace, path: Path, source: GgufFile) -> Prepared:
    with stages_bar() as report:
        return prepare(
            path,
            source,
            load_settings(args),
            calibration_file=args.calibration,
            sensitivity_file=args.sensitivity,
            n_tokens=args.sensitivity_tokens,
            threads=default_threads(args.threads),
            progress=report,
        )


def run_calibrate(args: argparse.Namespace) -> int:
    if args.tokens < 64 or args.window < 16:
        raise InvalidArgumentError("--tokens takes 64 or more, --window 16 or more")
    path = resolve(args.model)
    source = open_source(path)
    target = Path(args.out) if args.out else default_path(path, "calibration.npz")
    if args.force:
        target.unlink(missing_ok=True)
    elif target.exists() and not args.text and not args.imatrix and load_calibration(target).is_complete:
        err.print(f"{target} is there already; --force makes it anew", style="dim", markup=False, soft_wrap=True)
    if args.imatrix is not None:
        if args.text:
            raise InvalidArgumentError("--text and --imatrix do not go together")
        result = given_calibration(args.imatrix, source)
        save_calibration(result, target)
    else:
        with stages_bar() as report:
            result = ensure_calibration(
                path,
                source,
                target,
                load_settings(args),
                texts=read_texts(args.text),
                n_tokens=args.tokens,
                window=args.window,
                seed=args.seed,
                progress=report,
            )
    least = min((int(m.uses.min()) for m in result.layers.values()), default=0)
    n_unused = sum(int((m.uses < 1).sum()) for m in result.layers.values())
    if args.json:
        out_json(
            {
                "path": target,
                "n_tokens": result.n_tokens,
                "n_layers": len(result.layers),
                "least_uses": least,
                "n_unused": n_unused,
                "layers": {
                    n: {"uses": m.uses, "mean_weight": m.weight / m.uses.clip(min=1)} for n, m in result.layers.items()
                },
            }
        )
        return 0
    seen = f"{result.n_tokens} tokens" if result.n_tokens else "an importance matrix"
    out(
        f"{target}: {len(result.layers)} layers, {seen}; the least used expert was used {least} times, {n_unused} never"
    )
    return 0


def show_plan(source: GgufFile, plan: PrecisionPlan, sensitivities: Any) -> None:
    """A line a layer: types, what each is predicted to cost, and a bar of mean bits."""
    names = [n for n in SLICES if any(n in layer.slices for layer in source.expert_layers)]
    table = Table("layer", *names, "bits", "cost (nats)", "", title="plan", title_justify="left")
    for layer in source.expert_layers:
        types = plan.types[layer.layer]
        weights = {n: layer.slices[n]["n_in"] * layer.slices[n]["n_out"] for n in types}
        bits = sum(bits_of(types[n]) * weights[n] for n in types) / sum(weights.values())
        cost = sum(sensitivities.scores[layer.layer][n][types[n]].kl for n in types)
        table.add_row(
            str(layer.layer), *(types.get(n, "") for n in names), f"{bits:.2f}", f"{cost:.2g}", "█" * round(bits * 2)
        )
    console = Console()
    console.print(table)
    console.print(
        f"experts {format_size(expert_bytes(source))} before, {format_size(plan.notes['expert_bytes'])} after "
        f"({plan.notes['shrink']:.1%} smaller), {mean_bits(source, plan.types):.2f} bits a weight, "
        f"{format_size(bytes_per_token(source, plan.types))} a token from disk when nothing is in memory; "
        f"predicted divergence (losses taken to add up) {plan.notes['predicted_kl']:.3g} nats a token",
        highlight=False,
        soft_wrap=True,
    )


def run_plan(args: argparse.Namespace) -> int:
    path = resolve(args.model)
    source = open_source(path)
    if args.out:
        check_folder(args.out)
    target = target_of(args)
    target.max_expert_bytes(source)  # bad targets are found before anything is measured
    ready = prepared(args, path, source)
    plan, _ = plan_for(source, ready.sensitivities, target)
    if args.out:
        save_plan(plan, args.out)
    if args.json:
        out_json({**plan.as_json(), "bytes_per_token": bytes_per_token(source, plan.types), "out": args.out})
    else:
        show_plan(source, plan, ready.sensitivities)
    return 0


def add_comparison(kinds: Any) -> None:
    """`les eval precision` and `les eval sensitivity`."""
    p = kinds.add_parser(
        "precision",
        help="a precision plan against uniform types",
        description="Write the model with a plan, with the best uniform types and with a usual recipe, at most "
        "the same bytes each, "
        "and compare their divergence from the model. Needs room for one smaller model and the model's logits.",
        epilog="examples:\n  les eval precision demo --shrink 26.7% --json\n"
        "  les eval precision demo --shrink 20% 40% --text held-out.txt",
    )
    p.add_argument("model")
    p.add_argument("--shrink", nargs="+", required=True, metavar="PART", help="expert bytes to save, as 26.7%%")
    _add_evaluation_options(p)
    p.set_defaults(run=run_precision)
    p = kinds.add_parser(
        "sensitivity",
        help="what was measured of layers against whole files",
        description="Take a sample of single changes (layer, projection, type), write the model with each, and "
        "compare the divergence "
        "with what was measured layer by layer.",
        epilog="example:\n  les eval sensitivity demo --sample 24 --json",
    )
    p.add_argument("model")
    p.add_argument("--sample", type=int, default=24, metavar="N", help="changes to try (default 24)")
    _add_evaluation_options(p)
    p.set_defaults(run=run_sensitivity)


def _add_evaluation_options(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--text",
        nargs="+",
        default=[],
        metavar="FILE",
        help="held-out text; default: the model's answers to other requests than the calibration's",
    )
    p.add_argument("--tokens", type=int, default=4096, metavar="N", help="tokens to compare on (default 4096)")
    p.add_argument("--window", type=int, default=256, metavar="N", help="tokens with one context (default 256)")
    p.add_argument(
        "--compute",
        default="f32",
        choices=["int8", "f32"],
        help="f32 (default): activations are not rounded, so that only weights differ",
    )
    p.add_argument(
        "--work",
        metavar="FOLDER",
        help="for files that are needed meanwhile; default: the system's for temporary files",
    )
    p.add_argument("--json", action="store_true")
    add_measuring_options(p)
    add_model_options(p)


def _reference(
    args: argparse.Namespace, path: Path, options: dict[str, Any], report: Progress, windows: Windows | None = None
) -> Reference:
    with les.load(path, **options) as model:
        if windows is None and args.text:
            windows = make_windows(model.tokenizer, read_texts(args.text), args.window, args.tokens)
        elif windows is None:
            windows = own_text(
                model, args.tokens, args.window, 1, HELD_OUT, lambda done, total: report("writing a text", done, total)
            )
        return Reference(model, windows, lambda done, total: report("base", done, total), args.work)


def run_precision(args: argparse.Namespace) -> int:
    path = resolve(args.model)
    source = open_source(path)
    shrinks = [parse_shrink(text) for text in args.shrink]
    for shrink in shrinks:
        Target(shrink=shrink).max_expert_bytes(source)
    ready = prepared(args, path, source)
    options = {**load_settings(args), "context": args.window, "compute": args.compute}
    with stages_bar() as report, _reference(args, path, options, report) as base:
        results = compare_precision(
            path,
            ready,
            shrinks,
            base,
            options,
            folder=args.work,
            threads=default_threads(args.threads),
            progress=report,
        )
    whole = expert_bytes(source)
    reports = [
        {"model": args.model, "compute": args.compute, **summed_up(shrink, entries, whole)}
        for shrink, entries in zip(shrinks, results, strict=True)
    ]
    if args.json:
        out_json(reports[0] if len(reports) == 1 else reports)
        return 0
    for shrink, entries in zip(shrinks, results, strict=True):
        table = Table(
            "",
            "expert bytes",
            "KL (nats a token)",
            "predicted",
            "same likeliest token",
            "perplexity ratio",
            title=f"{args.model}, experts {shrink:.1%} smaller (95 % confidence in brackets)",
            title_justify="left",
        )
        for e in entries:
            table.add_row(
                e.name,
                f"{e.n_bytes / whole:.2%}",
                e.result.kl.text(".3g"),
                f"{e.predicted_kl:.3g}",
                e.result.top1.text(".2%"),
                e.result.ratio.text(".4f"),
            )
        Console().print(table)
    return 0


def run_sensitivity(args: argparse.Namespace) -> int:
    path = resolve(args.model)
    source = open_source(path)
    if args.sample < 3:
        raise InvalidArgumentError("--sample takes 3 or more")
    ready = prepared(args, path, source)
    # On the tokens of the measurement itself, or rank would differ by the choice of text.
    windows = sensitivity_windows(ready.calibration.windows, args.sensitivity_tokens) or None
    longest = max(map(len, windows)) if windows else args.window
    options = {**load_settings(args), "context": longest, "compute": args.compute}
    rows: list[dict[str, Any]] = []
    with stages_bar() as report, _reference(args, path, options, report, windows) as base:
        changes = sample_changes(ready.sensitivities, args.sample)
        for done, (layer, name, kind) in enumerate(changes):
            report("changes", done, len(changes))
            result = evaluate_types(
                path,
                {layer: {name: kind}},
                ready.calibration.importance,
                base,
                options,
                args.work,
                default_threads(args.threads),
            )
            rows.append(
                {
                    "layer": layer,
                    "slice": name,
                    "type": kind,
                    "kl_layer": ready.sensitivities.scores[layer][name][kind].kl,
                    "kl_whole": result.kl.value,
                }
            )
    rank = spearman([r["kl_layer"] for r in rows], [r["kl_whole"] for r in rows])
    if args.json:
        out_json({"model": args.model, "spearman": rank, "n_tokens": sum(map(len, base.windows)), "changes": rows})
        return 0
    table = Table(
        "layer",
        "slice",
        "type",
        "KL by layer",
        "KL of the file",
        title=f"rank correlation (Spearman): {rank:.3f}",
        title_justify="left",
    )
    for r in rows:
        table.add_row(str(r["layer"]), r["slice"], r["type"], f"{r['kl_layer']:.3g}", f"{r['kl_whole']:.3g}")
    Console().print(table)
    return 0
