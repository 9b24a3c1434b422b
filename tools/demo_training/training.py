"""Training of routers and deltas: KL to the dense model on its own text, next-token loss on all other."""

from __future__ import annotations

import math
import os
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from demo_training.data import OWN
from demo_training.model import Dense, Net, Params

SHARE = {"chat": 0.26, "story": 0.10, "tech": 0.24, "code": 0.22, "data": 0.10, "math": 0.08}  # of the tokens
N_TEACHER = 64  # classes of the dense model's distribution that are kept; the rest is one class
N_WARM_UP, N_GENTLE = 12, 40  # steps of rising rate; steps with a quarter of the KL weight

Pick = tuple[str, int]  # kind, chunk
Pools = dict[str, npt.NDArray[np.int64]]


@dataclass(frozen=True)
class TrainOptions:
    steps: int = 240
    batch: int = 4
    rate: float = 1.5e-3
    router_rate: float = 1.0  # relative to the deltas'
    kl: float = 4.0
    balance: float = 0.01
    clip: float = 1.0


def plan_steps(sizes: dict[str, int], o: TrainOptions) -> list[tuple[list[Pick], list[Pick]]]:
    """For each step the chunks of the dense model's text and of others'. sizes: chunks of each kind.

    Every chunk of a kind is used once before any is used again.
    """
    r = random.Random(5)
    own, other = [k for k in sizes if k in OWN], [k for k in sizes if k not in OWN]
    pools: dict[str, list[int]] = {kind: [] for kind in sizes}

    def draw(kinds: list[str]) -> Pick:
        kind = r.choices(kinds, [SHARE[k] for k in kinds])[0]
        if not pools[kind]:
            pools[kind] = r.sample(range(sizes[kind]), sizes[kind])
        return kind, pools[kind].pop()

    share = sum(SHARE[k] for k in own) / sum(SHARE[k] for k in sizes)
    n_own = 0 if not own else o.batch if not other else min(max(1, round(o.batch * share)), o.batch - 1)
    n_other = o.batch - n_own
    return [([draw(own) for _ in range(n_own)], [draw(other) for _ in range(n_other)]) for _ in range(o.steps)]


@torch.no_grad()
def teach(dense: Net, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The dense model's likeliest tokens after each of ids [T]: log probabilities float16 and ids [T,N_TEACHER]."""
    logits = dense.head(dense.hidden(ids[None])[0])
    top, tokens = logits.topk(min(N_TEACHER, logits.shape[-1]), -1)
    return (top - logits.logsumexp(-1, keepdim=True)).half(), tokens.to(torch.int32)


@torch.no_grad()
def lm_loss(net: Net, h: Tensor, ids: Tensor) -> tuple[float, Tensor]:
    """Summed next-token cross entropy of a chunk, h [T,D], and its gradient by h [T,D]."""
    q = torch.softmax(net.head(h[:-1]), -1)
    following = ids[1:, None]
    loss = -float(q.gather(1, following).clamp_min(1e-30).log().sum())
    q.scatter_add_(1, following, torch.full_like(following, -1, dtype=q.dtype))
    return loss, grad_rows(net, q)


@torch.no_grad()
def kl_loss(net: Net, h: Tensor, teacher: tuple[Tensor, Tensor]) -> tuple[float, Tensor]:
    """Summed KL(dense || net) of a chunk over the teacher's tokens and the rest as one class, and its gradient."""
    log_p, tokens = teacher[0][:-1].float(), teacher[1][:-1].long()
    q = torch.softmax(net.head(h[:-1]), -1)
    p, q_top = log_p.exp(), q.gather(1, tokens).clamp_min(1e-30)
    p_rest, q_rest = (1 - p.sum(-1)).clamp_min(1e-6), (1 - q_top.sum(-1)).clamp_min(1e-6)
    loss = float((p * (log_p - q_top.log())).sum() + (p_rest * (p_rest.log() - q_rest.log())).sum())
    q *= (1 - p_rest / q_rest)[:, None]
    q.scatter_(1, tokens, q_top - p)
    return loss, grad_rows(net, q)


def grad_rows(net: Net, logits_grad: Tensor) -> Tensor:
    """The gradient by h from the one by the logits [T-1,V]; the last position predicts nothing. The head is frozen."""
    rows = logits_grad @ net.dense.weights["token_embd.weight"]
    return torch.cat([rows, torch.zeros_like(rows[:1])])


def make_optimizer(params: list[Params], o: TrainOptions) -> torch.optim.AdamW:
    """Adam's step is absolute, so the rate of what starts with a size follows that size; B starts at zero."""
    groups = []
    for p in params:
        for name, x in p.items():
            size = 1.0 if name.endswith("_b") else float(x.detach().square().mean().sqrt())
            factor = o.router_rate if name == "router" else 1.0
            groups.append({"params": [x.requires_grad_(True)], "base": o.rate * size * factor, "lr": 0.0})
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)


def rate_factor(step: int, n_steps: int) -> float:
    """Linear warm-up, then half a cosine to zero."""
    return min(1.0, (step + 1) / N_WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * step / n_steps))


def save_checkpoint(path: Path, step: int, params: list[Params], optimizer: Any, o: TrainOptions) -> None:
    """Written beside its place, made durable, then moved there: a crash leaves the one before."""
    partial = path.with_name(path.name + ".partial")
    tensors = [{name: x.detach() for name, x in p.items()} for p in params]
    with partial.open("wb") as file:
        torch.save({"step": step, "params": tensors, "optimizer": optimizer.state_dict(), "options": asdict(o)}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """step, params, optimizer, options. Raises ValueError if it is no checkpoint."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        return {key: state[key] for key in ("step", "params", "optimizer", "options")}
    except FileNotFoundError:
        raise ValueError(f"{path} is not there: run `train` first") from None
    except Exception as error:  # torch raises whatever its unpickler meets
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{path} cannot be read as a checkpoint ({reason}); delete it to start anew") from error


@torch.no_grad()
def copy_params(saved: list[Params], into: list[Params], path: Path) -> None:
    if [{k: x.shape for k, x in p.items()} for p in saved] != [{k: x.shape for k, x in p.items()} for p in into]:
        raise ValueError(f"{path} has other shapes than the starting point: delete it to start anew")
    for p, q in zip(into, saved, strict=True):
        for name, x in p.items():
            x.copy_(q[name])


class Trainer:
    """Holds what lasts from step to step: the two models, the optimizer and the teacher's answers."""

    def __init__(self, dense: Dense, params: list[Params], pools: Pools, o: TrainOptions) -> None:
        self.dense, self.net, self.o, self.params = Net(dense), Net(dense, params), o, params
        self.pools = {kind: torch.from_numpy(chunks) for kind, chunks in pools.items()}
        self.optimizer = make_optimizer(params, o)
        self.answers: dict[Pick, tuple[Tensor, Tensor]] = {}

    def answer(self, pick: Pick) -> tuple[Tensor, Tensor]:
        if pick not in self.answers:
            self.answers[pick] = teach(self.dense, self.pools[pick[0]][pick[1]])
        return self.answers[pick]

    def step(self, index: int, own: list[Pick], other: list[Pick]) -> dict[str, float]:
        """One update; returns mean losses a token, the balance loss and the gradient's norm."""
        ids = torch.stack([self.pools[kind][i] for kind, i in own + other])
        self.net.balance = []
        h = self.net.hidden(ids)
        n_targets = ids.shape[1] - 1
        kl_weight = self.o.kl * (0.25 if index < N_GENTLE else 1.0)  # the pull grows once the deltas have moved
        grads, kl, lm = [], 0.0, 0.0
        for i, pick in enumerate(own):
            loss, grad = kl_loss(self.net, h[i].detach(), self.answer(pick))
            kl += loss / (n_targets * len(own))
            grads.append(kl_weight * grad)
        for i in range(len(own), len(ids)):
            loss, grad = lm_loss(self.net, h[i].detach(), ids[i])
            lm += loss / (n_targets * len(other))
            grads.append(grad)
        balance = torch.stack(self.net.balance).mean()
        self.net.balance = None
        torch.autograd.backward(
            [h, balance], [torch.stack(grads) / (n_targets * len(ids)), torch.tensor(self.o.balance)]
        )
        tensors = [x for p in self.params for x in p.values()]
        norm = float(torch.nn.utils.clip_grad_norm_(tensors, self.o.clip))
        if not math.isfinite(norm):
            raise ValueError(f"step {index + 1}: the gradient is not finite: lower --rate")
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * rate_factor(index, self.o.steps)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"kl": kl, "lm": lm, "balance": float(balance.detach()), "norm": norm}


def train(
    dense: Dense, start: list[Params], pools: Pools, checkpoint: Path, o: TrainOptions, save_every: int = 20
) -> None:
    """Trains from checkpoint if it is there, else from start. Raises ValueError if it was made with other options."""
    trainer = Trainer(dense, start, pools, o)
    plan = plan_steps({kind: len(chunks) for kind, chunks in pools.items()}, o)
    first = 0
    if checkpoint.exists():
        state = load_checkpoint(checkpoint)
        if state["options"] != asdict(o):
            raise ValueError(f"{checkpoint} was made with other options ({state['options']}): delete it or use them")
        first = state["step"]
        copy_params(state["params"], start, checkpoint)
        trainer.optimizer.load_state_dict(state["optimizer"])
        print(f"resumed after step {first}", flush=True)
    started = time.monotonic()
    for index in range(first, o.steps):
        losses = trainer.step(index, *plan[index])
        n_done = index + 1 - first
        n_tokens = n_done * o.batch * next(iter(pools.values())).shape[1]
        seconds = time.monotonic() - started
        left = seconds / n_done * (o.steps - index - 1)
        text = " ".join(f"{name} {value:.4f}" for name, value in losses.items())
        print(f"step {index + 1}/{o.steps} {text} {n_tokens / seconds:.0f} tok/s, {left:.0f} s left", flush=True)
        if (index + 1) % save_every == 0 or index + 1 == o.steps:
            save_checkpoint(checkpoint, index + 1, start, trainer.optimizer, o)
