"""`les generate`: one prompt, one text."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from les.cli.common import (
    add_model_options,
    add_sampling_options,
    err,
    load_model,
    out,
    out_json,
    result_json,
    sampling_settings,
    stats_line,
)
from les.errors import InvalidArgumentError

EXAMPLES = """examples:
  les generate demo "What is a glacier?"
  les generate demo --system "Answer in one word." "Capital of France?" --temperature 0
  cat letter.txt | les generate demo "Summarise this:" -
  les generate MODEL.les --raw "Once upon a time" --max-tokens 100 --seed 1 --memory 2GiB
"""


def register(subparsers: Any) -> None:
    p = subparsers.add_parser(
        "generate",
        help="one prompt, one text",
        description="Write one text; only the text goes to stdout.",
        epilog=EXAMPLES,
    )
    p.add_argument("model", help="file, folder or name of a model")
    p.add_argument("prompt", nargs="*", help="the prompt; '-' is standard input, as is no prompt at all")
    p.add_argument("--system", metavar="TEXT", help="system message before the prompt")
    p.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the chat template")
    p.add_argument("--quiet", action="store_true", help="no statistics on stderr")
    p.add_argument("--json", action="store_true", help="text, tokens and statistics as JSON on stdout")
    add_model_options(p)
    add_sampling_options(p)
    p.set_defaults(run=run)


def read_prompt(words: list[str]) -> str:
    """The prompt's words, '-' replaced by what comes on standard input."""
    if not words:
        if sys.stdin.isatty():
            raise InvalidArgumentError("no prompt: give one, or pipe one in")
        words = ["-"]
    text = "\n".join(sys.stdin.read() if word == "-" else word for word in words)
    if not text.strip():
        raise InvalidArgumentError("the prompt is empty")
    return text


def run(args: argparse.Namespace) -> int:
    prompt = read_prompt(args.prompt)
    with load_model(args) as model:
        stream = model.generate(prompt, stream=True, raw=args.raw, system=args.system, **sampling_settings(args))
        interrupted = False
        with stream:
            try:
                for chunk in stream:
                    if not args.json:
                        out(chunk.text, end="")
            except KeyboardInterrupt:
                interrupted = True
        result = stream.result
        if args.json:
            out_json(result_json(result))
        else:
            out()
            if not args.quiet:
                err.print(stats_line(result), style="dim", markup=False, soft_wrap=True)
    return 130 if interrupted else 0
