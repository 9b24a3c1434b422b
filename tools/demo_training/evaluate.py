"""What docs/demo-model.md says of the recipe: quality, whether experts differ, and how predictable routing is."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from demo_training.model import N_USED, Dense, Net, Params
from demo_training.training import Pools

Used = npt.NDArray[np.int64]  # experts in decoding order [L,T,K]


def lru_hit_rate(used: Used, n_slots: int, is_per_layer: bool) -> float:
    """Share of expert uses found in a cache of n_slots experts, one for each layer or one for all."""
    caches: dict[int, OrderedDict[tuple[int, int], None]] = {}
    n_hits = 0
    for token in range(used.shape[1]):
        for layer, experts in enumerate(used[:, token]):
            cache = caches.setdefault(layer if is_per_layer else 0, OrderedDict())
            for key in [(layer, int(e)) for e in experts]:
                n_hits += key in cache
                cache[key] = None
                cache.move_to_end(key)
                if len(cache) > n_slots:
                    cache.popitem(last=False)
    return n_hits / used.size


def common_share(used: Used) -> float:
    """Share of a token's experts that the token before used too; used [L,T,K] of one chunk."""
    return float((used[:, 1:, :, None] == used[:, :-1, None, :]).any(-1).mean())


@dataclass
class Routing:
    """Routing of one chunk: experts used [L,T,K], and per layer how often the layer before foresaw them."""

    used: Used
    recall_2: list[float]
    recall_3: list[float]


@torch.no_grad()
def run_chunk(net: Net, params: list[Params], ids: Tensor) -> tuple[Tensor, Routing]:
    """Hidden states [T,D] of ids [T], and the routing. The guess is a layer's router on the residual before it."""
    n_layer = net.shape.n_layer
    guesses: dict[int, Tensor] = {}
    used: list[Tensor] = []

    def tap(layer: int, x: Tensor, h: Tensor) -> None:
        if layer + 1 < n_layer:
            ahead = net.norm(x[0], net.dense.layer(layer + 1, "ffn_norm")) @ params[layer + 1]["router"].T
            guesses[layer + 1] = ahead.topk(3, -1).indices

    net.probe = lambda layer, logits, chosen: used.append(chosen)
    hidden = net.hidden(ids[None], tap)[0]
    net.probe = None

    def recall(layer: int, n: int) -> float:
        return float((used[layer][:, :, None] == guesses[layer][:, None, :n]).any(-1).float().mean())

    layers = range(1, n_layer)
    routing = Routing(torch.stack(used).numpy(), [recall(i, 2) for i in layers], [recall(i, 3) for i in layers])
    return hidden, routing


@torch.no_grad()
def quality(ids: Tensor, dense_logits: Tensor, logits: Tensor) -> npt.NDArray[np.float64]:
    """Sums over a chunk's targets: loss dense, loss upcycled, KL(dense, upcycled), same top token, targets."""
    p, q = (functional.log_softmax(x[:-1], -1) for x in (dense_logits, logits))
    following = ids[1:, None]
    kl = (p.exp() * (p - q)).sum()
    same = (p.argmax(-1) == q.argmax(-1)).sum()
    sums = [-p.gather(1, following).sum(), -q.gather(1, following).sum(), kl, same, torch.tensor(len(following))]
    return np.array([float(x) for x in sums])


def shifted(params: list[Params]) -> list[Params]:
    """The same experts, but every router sends its tokens to the next one: what routing is worth."""
    return [{**p, "router": p["router"].roll(1, 0)} for p in params]


@torch.no_grad()
def evaluate(dense: Dense, params: list[Params], pools: Pools, n_chunks: int) -> dict[str, object]:
    """All numbers, for n_chunks held-out chunks of each kind at most."""
    plain, net, wrong = Net(dense), Net(dense, params), Net(dense, shifted(params))
    n_expert, n_layer = len(params[0]["router"]), dense.shape.n_layer
    kinds: dict[str, dict[str, float]] = {}
    routings: list[Routing] = []
    for kind, chunks in pools.items():
        sums, shifted_loss, mine = np.zeros(5), 0.0, []
        for row in torch.from_numpy(chunks[:n_chunks]):
            hidden, routing = run_chunk(net, params, row)
            mine.append(routing)
            sums += quality(row, plain.head(plain.hidden(row[None])[0]), net.head(hidden))
            wrong_logits = wrong.head(wrong.hidden(row[None])[0, :-1])
            shifted_loss += float(functional.cross_entropy(wrong_logits, row[1:], reduction="sum"))
        used = np.concatenate([routing.used for routing in mine], 1)
        n = sums[4]
        kinds[kind] = {
            "tokens": int(n),
            "ppl_dense": math.exp(sums[0] / n),
            "ppl_upcycled": math.exp(sums[1] / n),
            "ppl_shifted": math.exp(shifted_loss / n),
            "kl": sums[2] / n,
            "top1": sums[3] / n,
            "common": float(np.mean([common_share(routing.used) for routing in mine])),
        }
        for percent in (25, 50):
            slots = n_expert * percent // 100
            kinds[kind][f"lru_layer_{percent}"] = lru_hit_rate(used, slots, is_per_layer=True)
            kinds[kind][f"lru_global_{percent}"] = lru_hit_rate(used, slots * n_layer, is_per_layer=False)
        print(kind, " ".join(f"{name} {value:.4g}" for name, value in kinds[kind].items()), flush=True)
        routings += mine
    every = np.concatenate([routing.used for routing in routings], 1)
    load = [np.bincount(x.ravel(), minlength=n_expert) / (x.size / N_USED) for x in every]
    return {
        "kinds": kinds,
        "load_min": [float(x.min()) for x in load],
        "load_max": [float(x.max()) for x in load],
        "recall_2": np.mean([routing.recall_2 for routing in routings], 0).tolist(),
        "recall_3": np.mean([routing.recall_3 for routing in routings], 0).tolist(),
    }
