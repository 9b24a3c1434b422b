"""From a model to a precision plan: calibrate, measure, choose; what was done before is taken from files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import les
from les._core import GgufFile
from les.errors import InvalidArgumentError, LesError
from les.eval.tokens import Windows, make_windows
from les.precision.calibration import (
    Calibration,
    calibrate,
    check_calibration,
    check_folder,
    default_path,
    load_calibration,
    moments_bytes,
)
from les.precision.imatrix import fit_shapes, load_any
from les.precision.plan import PrecisionPlan, expert_bytes, mean_bits
from les.precision.planner import Choice, choose, layer_options
from les.precision.sensitivity import Sensitivities, is_complete, measure, measured_so_far, measuring_bytes
from les.precision.texts import own_text
from les.sizes import parse_size

WINDOW = 192
CALIBRATION_TOKENS = 6144
SENSITIVITY_TOKENS = 3072

# progress(what, done, total)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Target:
    """What a plan is to reach: exactly one of these. shrink: part of the expert bytes to save. size_bytes: of trunk
    and experts. bits: mean of the experts' weights. max_kl: nats a token."""

    shrink: float | None = None
    size_bytes: int | None = None
    bits: float | None = None
    max_kl: float | None = None

    def max_expert_bytes(self, source: GgufFile) -> int | None:
        """Limit of the experts' bytes; None for a target of quality. Raises InvalidArgumentError."""
        if sum(x is not None for x in (self.shrink, self.size_bytes, self.bits, self.max_kl)) != 1:
            raise InvalidArgumentError("give one of --shrink, --size, --bits and --max-kl")
        if self.max_kl is not None:
            if not self.max_kl >= 0:
                raise InvalidArgumentError(f"a divergence of {self.max_kl} cannot be")
            return None
        whole = expert_bytes(source)
        if self.shrink is not None:
            if not 0 <= self.shrink < 1:
                raise InvalidArgumentError(f"shrink is {self.shrink:.1%}; expected 0 % to less than 100 %")
            return int(whole * (1 - self.shrink))
        if self.bits is not None:
            if not 0 < self.bits <= 32:
                raise InvalidArgumentError(f"bits is {self.bits}; expected more than 0 and at most 32")
            return int(whole * self.bits / mean_bits(source))
        assert self.size_bytes is not None
        trunk = sum(t.size_bytes for t in source.tensors) - stored_expert_bytes(source)
        if self.size_bytes <= trunk:
            raise InvalidArgumentError(
                f"the trunk alone takes {trunk} bytes; a size of {self.size_bytes} cannot be met"
            )
        return self.size_bytes - trunk


def parse_shrink(text: str) -> float:
    """ "26.7%" or "0.267"."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError as error:
        raise InvalidArgumentError(f"shrink {text!r} is not understood; write it like 26.7% or 0.267") from error


def stored_expert_bytes(source: GgufFile) -> int:
    """As they lie in the source, which need not be packed."""
    return (
        sum(s["size_bytes"] * layer.n_expert for layer in source.expert_layers for s in layer.slices.values())
        if not source.is_packed
        else expert_bytes(source)
    )


def shapes_of(source: GgufFile) -> dict[int, tuple[int, int, int]]:
    """layer -> (n_expert, d_in, ff)."""
    return {x.layer: (x.n_expert, x.slices["up"]["n_in"], x.slices["down"]["n_in"]) for x in source.expert_layers}


def calibration_windows(
    model: les.Model, texts: Sequence[str], n_tokens: int, window: int, seed: int, progress: Progress | None
) -> Windows:
    """Of the texts, or of the model's own answers where there are none."""
    if texts:
        return make_windows(model.tokenizer, texts, window, n_tokens)
    report = (lambda done, total: progress("writing a text", done, total)) if progress else None
    windows = own_text(model, n_tokens, window, seed, progress=report)
    if sum(map(len, windows)) < n_tokens // 2:
        raise InvalidArgumentError(
            "the model does not write enough of its own to calibrate with; give it a text with --text"
        )
    return windows


def within_budget(options: dict[str, Any], extra_bytes: int) -> dict[str, Any]:
    """Load options with what the measurement itself needs taken off the budget."""
    budget = parse_size(options.get("memory"))
    if budget is None:
        return options
    if budget <= extra_bytes:
        raise InvalidArgumentError(
            f"measuring takes {extra_bytes} bytes beside the model; the budget is {budget}; give more, or fewer tokens"
        )
    return {**options, "memory": budget - extra_bytes}


def ensure_calibration(
    path: Path,
    source: GgufFile,
    target: Path,
    options: dict[str, Any],
    *,
    texts: Sequence[str] = (),
    n_tokens: int = CALIBRATION_TOKENS,
    window: int = WINDOW,
    seed: int = 0,
    progress: Progress | None = None,
) -> Calibration:
    """The calibration in the target file, finished there if it is not. A file of other texts than those given is
    replaced."""
    check_folder(target)
    shapes = shapes_of(source)
    found = load_calibration(target) if target.exists() else None
    if found is not None and found.is_complete and not texts:
        check_calibration(found, shapes, str(target))
        return found
    extra = moments_bytes(list(shapes.values()))
    report = (lambda done, total: progress("calibrating", done, total)) if progress else None
    with les.load(path, **{**within_budget(options, extra), "context": window}) as model:
        windows = (
            found.windows
            if found is not None and not texts
            else calibration_windows(model, texts, n_tokens, window, seed, progress)
        )
        return calibrate(model, windows, target, report)


def given_calibration(path: str | Path, source: GgufFile) -> Calibration:
    """From a file of les or an imatrix, checked against the model."""
    shapes = shapes_of(source)
    found = fit_shapes(load_any(path), shapes)
    check_calibration(found, shapes, str(path))
    if not found.is_complete:
        raise InvalidArgumentError(f"{path}: the calibration is not finished; run les calibrate again to go on")
    return found


def sensitivity_windows(windows: Windows, n_tokens: int) -> Windows:
    """Whole windows, drawn at random but always the same ones, until there are n_tokens."""
    if not windows:
        return []
    n = max(1, min(len(windows), round(n_tokens * len(windows) / max(1, sum(map(len, windows))))))
    return [windows[i] for i in sorted(np.random.default_rng(0).permutation(len(windows))[:n])]


def ensure_sensitivities(
    path: Path,
    source: GgufFile,
    calibration: Calibration,
    target: Path,
    options: dict[str, Any],
    *,
    n_tokens: int = SENSITIVITY_TOKENS,
    threads: int,
    progress: Progress | None = None,
) -> Sensitivities:
    """Those in the target file, with what is missing measured."""
    check_folder(target)
    report = (lambda done, total: progress("measuring layers", done, total)) if progress else None
    longest = max(map(len, calibration.windows), default=WINDOW)
    windows = sensitivity_windows(calibration.windows, n_tokens)
    found = measured_so_far(source, calibration, sum(map(len, windows)) if windows else None, target)
    if is_complete(found, source):
        return found
    options = within_budget(options, measuring_bytes(source, n_tokens, longest))
    with les.load(path, **{**options, "context": longest, "compute": "f32"}) as model:
        if not windows:  # an imatrix says nothing about tokens
            windows = calibration_windows(model, [], n_tokens, WINDOW, 0, progress)
        return measure(model, source, calibration, windows, path=target, threads=threads, progress=report)


def plan_for(source: GgufFile, sensitivities: Sensitivities, target: Target) -> tuple[PrecisionPlan, Choice]:
    """The best plan for a target. Pure."""
    limit = target.max_expert_bytes(source)
    missing = [layer.layer for layer in source.expert_layers if layer.layer not in sensitivities.scores]
    if missing:
        raise LesError(f"layer {missing[0]} was not measured")
    layers = [layer_options(layer, sensitivities.scores[layer.layer]) for layer in source.expert_layers]
    choice = choose(layers, max_bytes=limit) if limit is not None else choose(layers, max_cost=target.max_kl)
    types = {layer.layer: option.types for layer, option in zip(source.expert_layers, choice.options, strict=True)}
    before = expert_bytes(source)
    notes = {
        "expert_bytes": choice.n_bytes,
        "shrink": 1 - choice.n_bytes / before,
        "bits_per_weight": mean_bits(source, types),
        "predicted_kl": choice.cost,
        "model": sensitivities.model,
        "calibration": sensitivities.calibration,
    }
    return PrecisionPlan(types, notes), choice


@dataclass(frozen=True)
class Prepared:
    """All that leads to a plan."""

    source: GgufFile
    calibration: Calibration
    sensitivities: Sensitivities


def prepare(
    path: Path,
    source: GgufFile,
    options: dict[str, Any],
    *,
    calibration_file: str | None = None,
    sensitivity_file: str | None = None,
    texts: Sequence[str] = (),
    n_tokens: int = SENSITIVITY_TOKENS,
    threads: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Calibration and sensitivities of a model, from their files where they are, else measured and kept beside the
    model."""
    if calibration_file is not None and Path(calibration_file).exists():
        calibration = given_calibration(calibration_file, source)
    else:
        target = Path(calibration_file) if calibration_file else default_path(path, "calibration.npz")
        calibration = ensure_calibration(path, source, target, options, texts=texts, progress=progress)
    target = Path(sensitivity_file) if sensitivity_file else default_path(path, "sensitivity.json")
    found = ensure_sensitivities(
        path, source, calibration, target, options, n_tokens=n_tokens, threads=threads, progress=progress
    )
    return Prepared(source, calibration, found)
