"""Which type for which layer and slice: the least KL divergence for a number of bytes, or the fewest bytes for a
divergence.

Pure functions. The costs of slices are taken to add up. A layer's options are the combinations of its slices' types;
the sizes are whole records, padding and all; the best choice over all layers is found exactly, by dynamic programming
over bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from les._core import ExpertLayer
from les.errors import InvalidArgumentError
from les.pack.layout import plan_layer
from les.precision.sensitivity import Score

MAX_CELLS = 1 << 20  # of the table over bytes; beyond it sizes are rounded up to a coarser unit


@dataclass(frozen=True)
class Option:
    """One way to store a layer's experts: types of its slices, bytes of all its records, cost in nats a token."""

    types: dict[str, str]
    n_bytes: int
    cost: float


@dataclass(frozen=True)
class Choice:
    """One option for each layer, and their sums."""

    options: list[Option]
    n_bytes: int
    cost: float


def pareto(options: Sequence[Option]) -> list[Option]:
    """Those that no other beats in both bytes and cost, smallest first."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.n_bytes, o.cost, sorted(o.types.items()))):
        if not kept or option.cost < kept[-1].cost:
            kept.append(option)
    return kept


def layer_options(layer: ExpertLayer, scores: dict[str, dict[str, Score]]) -> list[Option]:
    """All combinations of types that were measured, the useless ones left out."""
    names = list(scores)
    options = []
    for kinds in product(*(list(scores[name]) for name in names)):
        types = dict(zip(names, kinds, strict=True))
        cost = sum(scores[name][kind].kl for name, kind in types.items())
        options.append(Option(types, plan_layer(layer, types).record_bytes * layer.n_expert, cost))
    return pareto(options)


def choose(layers: Sequence[Sequence[Option]], max_bytes: int | None = None, max_cost: float | None = None) -> Choice:
    """The cheapest choice of at most max_bytes, or the smallest of at most max_cost; exactly one of them is given.

    Exact while the table over bytes has at most MAX_CELLS cells; otherwise sizes are rounded up, so that the limit
    holds all the same. Raises InvalidArgumentError, with the limit that can be met, where none can.
    """
    if (max_bytes is None) == (max_cost is None):
        raise InvalidArgumentError("choose takes a limit of either bytes or cost")
    smallest = [min(o.n_bytes for o in options) for options in layers]
    least_bytes = sum(smallest)
    top = sum(max(o.n_bytes for o in options) for options in layers) if max_bytes is None else max_bytes
    if top < least_bytes:
        raise InvalidArgumentError(f"the smallest types make {least_bytes} bytes of experts; {max_bytes} cannot be met")
    # Sizes above each layer's smallest option, in the largest unit that divides them all.
    extra = [[o.n_bytes - low for o in options] for options, low in zip(layers, smallest, strict=True)]
    unit = math.gcd(*(e for row in extra for e in row)) or 1
    room = min(top - least_bytes, sum(max(row) for row in extra))
    unit = max(unit, -(-room // MAX_CELLS))
    n_cells = room // unit + 1
    best = np.zeros(n_cells)
    picks = np.zeros((len(layers), n_cells), np.int32)
    for row, (options, sizes) in enumerate(zip(layers, extra, strict=True)):
        new = np.full(n_cells, np.inf)
        for i, (option, size) in enumerate(zip(options, sizes, strict=True)):
            shift = -(-size // unit)
            if shift >= n_cells:
                continue
            candidate = best[: n_cells - shift] + option.cost
            better = candidate < new[shift:]
            new[shift:][better] = candidate[better]
            picks[row, shift:][better] = i
        best = new
    cell = n_cells - 1
    if max_cost is not None:
        within = np.nonzero(best <= max_cost)[0]
        if within.size == 0:
            raise InvalidArgumentError(
                f"the least divergence that can be planned is {float(best.min()):.3g}; {max_cost:.3g} cannot be met"
            )
        cell = int(within[0])
    chosen: list[Option] = []
    for row in range(len(layers) - 1, -1, -1):
        option = layers[row][int(picks[row, cell])]
        cell -= -(-extra[row][int(picks[row, cell])] // unit)
        chosen.append(option)
    chosen.reverse()
    return Choice(chosen, sum(o.n_bytes for o in chosen), math.fsum(o.cost for o in chosen))


def lower_bound(layers: Sequence[Sequence[Option]], max_bytes: int) -> float:
    """A cost that no choice of at most max_bytes can be below (Lagrange's dual), as a check on choose."""
    bound = 0.0
    scale = max(max(o.cost for o in options) for options in layers) / max(
        1, min(max(1, o.n_bytes) for options in layers for o in options)
    )
    for price in np.concatenate([[0.0], scale * np.logspace(-9, 3, 600)]):
        value = sum(min(o.cost + price * o.n_bytes for o in options) for options in layers) - price * max_bytes
        bound = max(bound, float(value))
    return bound
