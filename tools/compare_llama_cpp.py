"""Decode and prefill speed of les beside llama.cpp: same GGUF file, same threads, interleaved, as ratios.

Needs llama-cpp-python somewhere: pip install llama-cpp-python==0.3.36 (compiles for ten minutes), best in an
environment of its own, whose interpreter --peer-python names. Both programs run as processes of their own, one after
the other, with all weights in memory; a pair of runs is one repeat, and the ratio is taken within the pair.

example:
  python tools/compare_llama_cpp.py demo.gguf --peer-python ~/llama/bin/python --repeat 5
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any


def run_peer(model: str, threads: int, n_prompt: int, n_tokens: int) -> dict[str, float]:
    """In the peer's interpreter: tokens per second of llama.cpp, as `les bench decode` measures them."""
    import ctypes

    import llama_cpp
    import numpy as np

    params = dict(n_ctx=n_prompt + n_tokens + 8, n_batch=512, n_threads=threads, n_threads_batch=threads)
    llm = llama_cpp.Llama(model, verbose=False, use_mmap=False, **params)
    text = "The glacier moved a little every year, and the village below it learned to live with the noise. "
    tokens = llm.tokenize((text * (n_prompt // 8 + 1)).encode(), add_bos=True)[:n_prompt]
    llm.eval(tokens[:2])  # first touch of the weights
    llm.reset()
    started = time.perf_counter()
    llm.eval(tokens)
    prefill_s = time.perf_counter() - started
    n_vocab = llm.n_vocab()
    started = time.perf_counter()
    for _ in range(n_tokens):
        logits = llama_cpp.llama_get_logits_ith(llm.ctx, -1)
        view = np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (n_vocab,))
        llm.eval([int(np.argmax(view))])
    decode_s = time.perf_counter() - started
    return {"tok_s": n_tokens / decode_s, "prefill_tok_s": n_prompt / prefill_s}


def run_json(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return result


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Medians of both programs, and the median of the ratios within each pair of runs."""
    sizes = ["--threads", str(args.threads), "--prompt-tokens", str(args.prompt_tokens), "--tokens", str(args.tokens)]
    ours = [
        sys.executable,
        "-m",
        "les",
        "bench",
        "decode",
        args.model,
        "--json",
        "--repeat",
        "1",
        "--warm-up",
        "1",
        *sizes,
    ]
    peer = [args.peer_python, __file__, args.model, "--child", *sizes]
    pairs = []
    for i in range(args.repeat):
        print(f"pair {i + 1} of {args.repeat}", file=sys.stderr)
        pairs.append((run_json(ours), run_json(peer)))
    row: dict[str, Any] = {
        "model": args.model,
        "threads": args.threads,
        "repeat": args.repeat,
        "isa": pairs[0][0]["isa"],
    }
    for key in ("tok_s", "prefill_tok_s"):
        row[f"les_{key}"] = statistics.median(a[key] for a, _ in pairs)
        row[f"llama_cpp_{key}"] = statistics.median(b[key] for _, b in pairs)
        ratios = sorted(a[key] / b[key] for a, b in pairs)
        row[f"ratio_{key}"] = statistics.median(ratios)
        row[f"ratio_{key}_range"] = [ratios[0], ratios[-1]]
    return row


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("model", help="a GGUF file that fits in memory")
    parser.add_argument("--peer-python", default=sys.executable, metavar="FILE", help="interpreter with llama_cpp")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run_peer(args.model, args.threads, args.prompt_tokens, args.tokens)))
        return 0
    print(json.dumps(compare(args), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
