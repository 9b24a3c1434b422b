"""The precision planner against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import les
from les.precision import planner
from les.precision.planner import Option, choose, lower_bound, pareto


def random_layers(rng: np.random.Generator, n: int, n_options: int) -> list[list[Option]]:
    return [
        [Option({"up": f"{i}"}, int(rng.integers(1, 9)) * 16384, float(rng.gamma(1.0))) for i in range(n_options)]
        for _ in range(n)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_the_planner_finds_what_brute_force_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = random_layers(rng, 5, 4)
    every = [(sum(o.n_bytes for o in c), sum(o.cost for o in c)) for c in itertools.product(*layers)]
    for limit in sorted({b for b, _ in every})[::2]:
        expected = min(c for b, c in every if b <= limit)
        found = choose(layers, max_bytes=limit + 5000)
        assert found.cost == pytest.approx(expected) and found.n_bytes <= limit
        assert [o in row for o, row in zip(found.options, layers, strict=True)] == [True] * 5
        assert lower_bound(layers, limit) <= expected + 1e-9
    for limit in np.quantile([c for _, c in every], [0.0, 0.1, 0.5, 0.9]):
        found = choose(layers, max_cost=float(limit) * (1 + 1e-12))
        assert found.n_bytes == min(b for b, c in every if c <= limit * (1 + 1e-12))
    with pytest.raises(les.InvalidArgumentError, match="cannot be met"):
        choose(layers, max_bytes=min(b for b, _ in every) - 1)
    with pytest.raises(les.InvalidArgumentError, match="cannot be met"):
        choose(layers, max_cost=min(c for _, c in every) / 2)


def test_a_coarse_table_keeps_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = random_layers(np.random.default_rng(4), 6, 5)
    layers[0][0] = Option({"up": "x"}, 16385, 0.1)  # no common unit
    best = choose(layers, max_bytes=25 * 16384)
    monkeypatch.setattr(planner, "MAX_CELLS", 40)
    coarse = choose(layers, max_bytes=25 * 16384)
    assert coarse.n_bytes <= 25 * 16384 and best.cost <= coarse.cost <= best.cost * 2


def test_useless_options_go() -> None:
    options = [Option({}, 10, 1.0), Option({}, 20, 2.0), Option({}, 30, 0.5), Option({}, 30, 0.7), Option({}, 40, 0.5)]
    assert [(o.n_bytes, o.cost) for o in pareto(options)] == [(10, 1.0), (30, 0.5)]
