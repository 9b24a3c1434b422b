"""`les eval`: quality of a model, and the distance of one from another."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

import les
from les.cli.common import add_model_options, load_model, out_json, progress_bar
from les.cli.precision import add_comparison
from les.eval.choices import ChoiceReport, evaluate_choices, load_items
from les.eval.statistics import Estimate
from les.eval.tokens import Comparison, Reference, compare, make_windows, perplexity, read_texts

EXAMPLES = """examples:
  les eval perplexity demo text.txt
  les eval kl demo smaller.les text.txt
  les eval choices demo questions.jsonl --compare smaller.les
"""


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "eval",
        help="measure quality",
        description="Measure how good a model is, or how far one is from another.",
        epilog=EXAMPLES,
    )
    kinds = p.add_subparsers(dest="kind", metavar="KIND", required=True)
    p = kinds.add_parser(
        "perplexity",
        help="of text files",
        epilog="examples:\n  les eval perplexity demo text.txt\n"
        "  les eval perplexity demo a.txt b.txt --compare smaller.les --json",
    )
    p.add_argument("model")
    p.add_argument("texts", nargs="+", metavar="FILE", help="plain text, UTF-8")
    p.add_argument("--compare", metavar="MODEL", help="another model on the same tokens")
    _add_options(p)
    p.set_defaults(run=run_perplexity)
    for kind, what in (
        ("kl", "KL divergence of another model from a base"),
        ("agreement", "how often two models think the same token likeliest"),
    ):
        p = kinds.add_parser(
            kind,
            help=what,
            epilog=f"example:\n  les eval {kind} model.gguf smaller.les text.txt --tokens 8192",
        )
        p.add_argument("model", metavar="BASE")
        p.add_argument("other", metavar="OTHER")
        p.add_argument("texts", nargs="+", metavar="FILE", help="plain text, UTF-8")
        _add_options(p)
        p.set_defaults(run=run_comparison)
    p = kinds.add_parser(
        "choices",
        help="multiple-choice questions",
        description="Files of JSON lines: {question, choices, answer}, "
        "or the forms of ARC, HellaSwag and WinoGrande. The choice with the highest likelihood counts.",
        epilog="examples:\n  les eval choices demo questions.jsonl\n"
        "  les eval choices demo questions.jsonl --compare smaller.les --json",
    )
    p.add_argument("model")
    p.add_argument("files", nargs="+", metavar="FILE", help="JSON lines")
    p.add_argument("--compare", metavar="MODEL", help="another model on the same items")
    p.add_argument("--limit", type=int, default=0, metavar="N", help="items at most; default: all")
    _add_options(p, has_windows=False)
    p.set_defaults(run=run_choices)
    add_comparison(kinds)


def _add_options(p: argparse.ArgumentParser, has_windows: bool = True) -> None:
    if has_windows:
        p.add_argument(
            "--window", type=int, default=256, metavar="N", help="tokens scored with one context (default 256)"
        )
        p.add_argument("--tokens", type=int, default=4096, metavar="N", help="tokens at most (default 4096; 0: all)")
    p.add_argument(
        "--compute",
        default="int8",
        choices=["int8", "f32"],
        help="f32: activations are not rounded, so that only weights differ",
    )
    p.add_argument("--json", action="store_true")
    add_model_options(p)


def _load(args: argparse.Namespace, name: str) -> les.Model:
    window = getattr(args, "window", 0)
    context = max(args.context, window) if args.context else window or 2048
    return load_model(argparse.Namespace(**{**vars(args), "model": name, "context": context}))


def _compare(args: argparse.Namespace, other: str) -> Comparison:
    """One model after the other, so that each may have the whole budget."""
    texts = read_texts(args.texts)
    with _load(args, args.model) as model, progress_bar("base") as report:
        base = Reference(model, make_windows(model.tokenizer, texts, args.window, args.tokens), report)
    with base, _load(args, other) as model, progress_bar("other") as report:
        return compare(base, model, report)


def _show(title: str, rows: list[tuple[str, str]]) -> None:
    table = Table(show_header=False, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _comparison_rows(c: Comparison) -> list[tuple[str, str]]:
    return [
        ("tokens", str(c.n_tokens)),
        ("KL(base, other)", f"{c.kl.text()} nats a token"),
        ("its median, 99 %, largest", f"{c.kl_median:.3g}, {c.kl_p99:.3g}, {c.kl_max:.3g}"),
        ("same likeliest token", c.top1.text(".2%")),
        ("perplexity of base", c.base.perplexity.text(".4f")),
        ("perplexity of other", c.other.perplexity.text(".4f")),
        ("their ratio", c.ratio.text(".5f")),
    ]


def run_perplexity(args: argparse.Namespace) -> int:
    if args.compare is not None:
        return _report_comparison(args, args.compare)
    with _load(args, args.model) as model, progress_bar("scoring") as report:
        result = perplexity(
            model, make_windows(model.tokenizer, read_texts(args.texts), args.window, args.tokens), report
        )
    if args.json:
        out_json({"model": args.model, "window": args.window, **result.as_json()})
    else:
        _show(
            args.model,
            [
                ("tokens", str(result.n_tokens)),
                ("perplexity", result.perplexity.text(".4f")),
                ("nats a token", result.nats.text(".4f")),
            ],
        )
    return 0


def run_comparison(args: argparse.Namespace) -> int:
    return _report_comparison(args, args.other)


def _report_comparison(args: argparse.Namespace, other: str) -> int:
    result = _compare(args, other)
    if args.json:
        out_json({"model": args.model, "other": other, "window": args.window, **result.as_json()})
    else:
        _show(f"{other} against {args.model} (95 % confidence in brackets)", _comparison_rows(result))
    return 0


def run_choices(args: argparse.Namespace) -> int:
    items = load_items(args.files)
    if args.limit > 0:
        items = items[: args.limit]
    reports: list[ChoiceReport] = []
    for name in [args.model] + ([args.compare] if args.compare else []):
        with _load(args, name) as model, progress_bar("scoring") as report:
            reports.append(evaluate_choices(model, items, report))
    difference = reports[0].difference(reports[1]) if args.compare else None
    if args.json:
        value: dict[str, Any] = {"model": args.model, **reports[0].as_json()}
        if args.compare:
            value.update(other=args.compare, other_scores=reports[1].as_json(), difference=difference)
        out_json(value)
        return 0
    rows = []
    for name, result in zip([args.model, args.compare], reports, strict=False):
        rows += [
            (f"{name}: right", f"{result.accuracy.text('.2%')} of {result.n_items}"),
            (f"{name}: right, by bytes", result.accuracy_norm.text(".2%")),
        ]
    if difference:
        for key, label in (("accuracy", "difference"), ("accuracy_norm", "difference, by bytes")):
            d = difference[key]
            rows.append(
                (
                    label,
                    Estimate(d["value"], *(float("nan") if d[k] is None else d[k] for k in ("low", "high"))).text(
                        "+.2%"
                    ),
                )
            )
        rows.append(("items that changed", str(difference["n_changed"])))
    _show("multiple choice (95 % confidence in brackets)", rows)
    return 0
