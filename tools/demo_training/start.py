"""Where training starts: routers from balanced k-means of the FFN inputs, deltas that are zero but well conditioned."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from demo_training.model import N_USED, Dense, Net, Params

N_SINKS = 4  # a chunk's first tokens, where attention parks: unlike all others
N_ITERATIONS, N_SAMPLE = 20, 4000


@dataclass(frozen=True)
class StartOptions:
    n_expert: int = 8
    rank: int = 4
    noise: float = 0.5  # how much a direction that the previous layer cannot predict counts less
    dims: int = 32  # dimensions in which tokens are clustered
    ridge: float = 0.02
    first: float = 0.7  # mean weight of the first of the chosen experts


def balanced_kmeans(x: Tensor, n_expert: int, gen: torch.Generator) -> tuple[Tensor, Tensor]:
    """x [N,d] → centres [E,d] and the biases [E] under which every cluster has the same load."""
    n = len(x)
    sample = x[torch.randperm(n, generator=gen)[:N_SAMPLE]]
    centres = sample[:1]
    for _ in range(n_expert - 1):  # k-means++
        distance = torch.cdist(sample, centres).square().min(1).values
        centres = torch.cat([centres, sample[torch.multinomial(distance, 1, generator=gen)]])
    bias, scale = torch.zeros(n_expert), float(x.var(0).sum())
    for _ in range(N_ITERATIONS):
        score = x @ centres.T - centres.square().sum(1) / 2
        for j in range(40):
            load = torch.bincount((score + bias).argmax(1), minlength=n_expert) / n
            bias = bias - 0.04 * scale * 0.96**j * (load - 1 / n_expert)
        nearest = (score + bias).argmax(1)
        means = []
        for e in range(n_expert):
            mine = x[nearest == e]
            means.append(mine.mean(0) if len(mine) else x[int(torch.randint(n, (1,), generator=gen))])
        centres = torch.stack(means)
    return centres, bias


@torch.no_grad()
def ffn_inputs(net: Net, ids: Tensor) -> list[Tensor]:
    """Inputs of every layer's FFN for chunks ids [n,T], as float16 [n*(T - N_SINKS), D] without the sinks."""
    rows: list[list[Tensor]] = [[] for _ in range(net.shape.n_layer)]

    def tap(layer: int, x: Tensor, h: Tensor) -> None:
        rows[layer].append(h.view_as(x)[:, N_SINKS:].flatten(0, 1).half())

    for i in range(0, len(ids), 4):
        net.hidden(ids[i : i + 4], tap)
    return [torch.cat(parts) for parts in rows]


def predicted_input(dense: Dense, layer: int, before: Tensor) -> Tensor:
    """A layer's FFN input as seen from the layer before: the same residual stream under this layer's norm."""
    here, there = dense.layer(layer, "ffn_norm"), dense.layer(layer - 1, "ffn_norm")
    return before / torch.where(there.abs() < 1e-3, 1e-3, there) * here


def cluster_space(x: Tensor, guess: Tensor | None, o: StartOptions) -> Tensor:
    """[D, dims]: the leading directions of x [N,D] after directions that guess misses were made small."""
    centred = x - x.mean(0)
    covariance = centred.T @ centred / len(x)
    noise = torch.diag(covariance.diag()) / covariance.trace()
    if guess is not None:
        error = guess - x
        mixed = error.T @ error / len(x)
        noise = o.noise * mixed / mixed.trace() + (1 - o.noise) * noise
    d = x.shape[1]
    size, axes = torch.linalg.eigh(noise + o.ridge * torch.eye(d) / d)
    whiten = axes / size.sqrt() @ axes.T
    white = centred @ whiten
    _, leading = torch.linalg.eigh(white.T @ white / len(x))
    return torch.as_tensor(whiten @ leading[:, -o.dims :])


def make_router(x: Tensor, guess: Tensor | None, o: StartOptions, gen: torch.Generator) -> Tensor:
    """Router [E,D] for FFN inputs x [N,D]: equal loads, and o.first as the mean weight of the first expert."""
    d = x.shape[1]
    space, mean = cluster_space(x, guess, o), x.mean(0)
    points = (x - mean) @ space
    length = points.norm(dim=1, keepdim=True)
    points = points * (2 * length.median() / length).clamp(max=1)  # outliers would take a cluster each
    centres, bias = balanced_kmeans(points, o.n_expert, gen)
    # The file format has no bias: a constant goes through the direction v with v . h = 1 for all inputs, nearly.
    constant = bias - centres.square().sum(1) / 2 - centres @ (mean @ space)
    second = x.T @ x / len(x)
    v = torch.linalg.solve(second + 1e-4 * second.trace() / d * torch.eye(d), mean)
    router, one = centres @ space.T, (x @ v)[:, None]
    logits = x @ router.T
    spread = float((logits + one * constant).std())
    for j in range(150):
        chosen = (logits + one * constant).topk(N_USED, -1).indices
        load = torch.bincount(chosen.flatten(), minlength=o.n_expert) / len(x)
        constant = constant - 0.4 * spread * 0.98**j * (load - N_USED / o.n_expert)
    router = router + constant[:, None] * v
    top = (x @ router.T).topk(N_USED, -1).values
    return torch.mul(router, weight_scale(top[:, 0] - top[:, 1], o.first))


def weight_scale(gap: Tensor, first: float) -> float:
    """The factor that makes the mean weight of the first of two experts `first`; gap: logit differences [N]."""
    low, high = 1e-7, 1e7
    for _ in range(60):
        scale = math.sqrt(low * high)
        if float(torch.sigmoid(scale * gap).mean()) < first:
            low = scale
        else:
            high = scale
    return low


def leading_rows(x: Tensor, rank: int) -> Tensor:
    """[rank, d]: the leading directions of x [N,d], scaled so that each maps x to values of mean square one."""
    _, s, v = torch.svd_lowrank(x, q=min(rank + 4, *x.shape), niter=2)
    return torch.as_tensor((v[:, :rank] / (s[:rank] / math.sqrt(len(x))).clamp_min(1e-6)).T)


def rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def make_deltas(dense: Dense, layer: int, x: Tensor, router: Tensor, o: StartOptions, gen: torch.Generator) -> Params:
    """A spans the leading inputs of the expert's own tokens, at the scale of the matrix's output; B is zero."""
    gate_w, up_w, down_w = (dense.layer(layer, f"ffn_{part}") for part in ("gate", "up", "down"))
    chosen = (x @ router.T).topk(N_USED, -1).indices
    into, down, sizes = [], [], []
    for e in range(o.n_expert):
        mine = x[(chosen == e).any(1)]
        if len(mine) <= o.rank:
            raise ValueError(f"layer {layer}: expert {e} gets {len(mine)} tokens: use more --init-chunks")
        mine = mine[torch.randperm(len(mine), generator=gen)[:1200]]
        gate, up = mine @ gate_w.T, mine @ up_w.T
        act = functional.silu(gate) * up
        into.append(leading_rows(mine, o.rank))
        down.append(leading_rows(act, o.rank))
        sizes.append((rms(gate), rms(up), rms(act @ down_w.T)))
    size_gate, size_up, size_down = np.mean(sizes, 0).tolist()
    rows = torch.cat(into)
    return {
        "router": router,
        "in_a": torch.stack([rows * size_gate, rows * size_up]),
        "in_b": torch.zeros(2, len(rows), dense.shape.d_ff),
        "down_a": torch.cat(down) * size_down,
        "down_b": torch.zeros(len(rows), dense.shape.d),
    }


def make_start(net: Net, ids: Tensor, o: StartOptions) -> list[Params]:
    """Parameters for every layer; ids [n,T]: the chunks to take statistics of. net: the dense model."""
    torch.manual_seed(0)
    gen, started = torch.Generator().manual_seed(0), time.monotonic()
    inputs = ffn_inputs(net, ids)
    params: list[Params] = []
    before: Tensor | None = None
    for layer, half in enumerate(inputs):
        x = half.float()
        guess = None if before is None else predicted_input(net.dense, layer, before)
        router = make_router(x, guess, o, gen)
        params.append(make_deltas(net.dense, layer, x, router, o, gen))
        load = torch.bincount((x @ router.T).topk(N_USED, -1).indices.flatten(), minlength=o.n_expert) / len(x)
        seconds = time.monotonic() - started
        print(f"layer {layer}: load {load.min():.3f} to {load.max():.3f}, {seconds:.0f} s", flush=True)
        before = x
    return params
