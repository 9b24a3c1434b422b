"""One layer's experts in plain arithmetic: how far its output goes when one slice's weights change. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from les._core import dequantize, quantize
from les.errors import UnsupportedError

Floats = npt.NDArray[np.float32]


def activate(act: str, gate: Floats, up: Floats | None) -> Floats:
    """act(gate) * up, or act(gate) without up. Shapes [n, ff]."""
    x = gate.astype(np.float32)
    if act == "swiglu_oai":
        clamped = np.minimum(x, np.float32(7))
        value = clamped / (1 + np.exp(np.float32(-1.702) * clamped))
        return np.asarray(value if up is None else value * (np.clip(up, -7, 7) + 1), np.float32)
    if act == "silu":
        value = x / (1 + np.exp(-x))
    elif act == "gelu_tanh":
        value = x * 0.5 * (1 + np.tanh(np.float32(0.79788456) * (x + np.float32(0.044715) * x**3)))
    elif act == "gelu":
        value = x * _normal_cdf(x)
    elif act == "relu":
        value = np.maximum(x, 0)
    elif act == "relu_squared":
        value = np.maximum(x, 0) ** 2
    else:
        raise UnsupportedError(f"activation {act!r} is not known to the layer arithmetic")
    return np.asarray(value if up is None else value * up, np.float32)


def _normal_cdf(x: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))), np.float32)


@dataclass(frozen=True)
class ExpertWeights:
    """stored: slice -> its bytes; types and n_in: of the stored form."""

    stored: dict[str, npt.NDArray[np.uint8]]
    types: dict[str, str]
    n_in: dict[str, int]

    def floats(self, name: str) -> Floats:
        """[n_out, n_in]."""
        return dequantize(self.types[name], self.stored[name], self.n_in[name])


@dataclass(frozen=True)
class LayerSample:
    """What a probe kept of one layer: x [n, d], y [n, d], chosen and weights [n, n_used], and the experts' facts."""

    x: Floats
    y: Floats
    chosen: npt.NDArray[np.int32]
    weights: Floats
    act: str
    biases: dict[str, Floats]

    @staticmethod
    def from_probe(row: Mapping[str, Any]) -> LayerSample:
        biases = {}
        for name in ("gate", "up", "down"):
            flat = row[f"{name}_bias"]
            if flat.size:
                biases[name] = flat.reshape(row["n_expert"], -1)
        return LayerSample(row["x"], row["y"], row["chosen"], row["weights"], row["act"], biases)


@dataclass(frozen=True)
class Pass:
    """One expert on its tokens: everything needed to change a slice. rows: tokens; w: their routing weights [n, 1]."""

    rows: npt.NDArray[np.intp]
    w: Floats
    x: Floats
    gate: Floats | None
    up: Floats
    middle: Floats
    out: Floats


def run_expert(sample: LayerSample, expert: int, weights: ExpertWeights) -> Pass | None:
    """None when no sampled token chose the expert."""
    rows, rank = np.nonzero(sample.chosen == expert)
    if rows.size == 0:
        return None
    x = sample.x[rows]
    gate = _product(x, weights.floats("gate"), sample, "gate", expert) if "gate" in weights.stored else None
    up = _product(x, weights.floats("up"), sample, "up", expert)
    middle = _middle(sample.act, gate, up)
    out = _product(middle, weights.floats("down"), sample, "down", expert)
    return Pass(rows, sample.weights[rows, rank][:, None], x, gate, up, middle, out)


def _product(x: Floats, w: Floats, sample: LayerSample, name: str, expert: int) -> Floats:
    y = x @ w.T
    return y + sample.biases[name][expert] if name in sample.biases else y


def _middle(act: str, gate: Floats | None, up: Floats) -> Floats:
    return activate(act, up, None) if gate is None else activate(act, gate, up)


def change_of(sample: LayerSample, expert: int, done: Pass, name: str, changed: Floats, down: Floats) -> Floats:
    """Weighted change of the layer's output [n rows, d] when slice name of the expert becomes `changed` [n_out,
    n_in]; down: the expert's down weights."""
    if name == "down":
        return done.w * (_product(done.middle, changed, sample, "down", expert) - done.out)
    if name == "gate":
        middle = _middle(sample.act, _product(done.x, changed, sample, "gate", expert), done.up)
    else:
        middle = _middle(sample.act, done.gate, _product(done.x, changed, sample, "up", expert))
    return np.asarray(done.w * ((middle - done.middle) @ down.T), np.float32)


Change = tuple[str, str]  # slice, type


def layer_changes(
    sample: LayerSample,
    experts: Iterator[tuple[int, ExpertWeights]],
    candidates: Mapping[str, list[str]],
    importance: Callable[[str, int], npt.NDArray[np.float32] | None],
    threads: int = 1,
) -> dict[Change, Floats]:
    """Change of the layer's output [n, d] for each slice and candidate type, only that slice of all experts
    requantised."""
    changes = {(name, kind): np.zeros_like(sample.x) for name, kinds in candidates.items() for kind in kinds}
    for expert, weights in experts:
        done = run_expert(sample, expert, weights)
        if done is None:
            continue
        down = weights.floats("down")
        for name, kinds in candidates.items():
            original, columns = weights.floats(name), importance(name, expert)
            for kind in kinds:
                if kind == weights.types[name]:
                    continue
                stored = quantize(kind, original, columns, threads)
                changes[name, kind][done.rows] += change_of(
                    sample, expert, done, name, dequantize(kind, stored, weights.n_in[name]), down
                )
    return changes


def relative_error(change: Floats, y: Floats) -> float:
    """Mean over tokens of |change|^2 / |y|^2; tokens whose output is next to nothing (a thousandth of the mean
    square) are bounded there."""
    energy = (y.astype(np.float64) ** 2).sum(axis=1)
    floor = max(1e-3 * float(energy.mean()), 1e-30)
    return float(((change.astype(np.float64) ** 2).sum(axis=1) / np.maximum(energy, floor)).mean())
