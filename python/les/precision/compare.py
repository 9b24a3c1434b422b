"""A plan against what one would do without measuring layers, at the same bytes, on the same tokens."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import les
from les._core import GgufFile
from les.errors import InvalidArgumentError
from les.eval.tokens import Comparison, Reference, compare
from les.pack.files import Progress
from les.precision.pipeline import Prepared, Target, plan_for
from les.precision.plan import PrecisionPlan, Types, expert_bytes
from les.precision.qtypes import bits_of, slices_of
from les.precision.sensitivity import Sensitivities
from les.precision.writer import Importance, requantize

N_UNIFORM = 2  # of the best predicted, that are measured


@dataclass(frozen=True)
class Entry:
    """One way to store the experts, and how far it is from the model. name: "plan", "uniform", "recipe" or "uniform
    plain"."""

    name: str
    types: Types
    n_bytes: int
    predicted_kl: float
    result: Comparison

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "expert_bytes": self.n_bytes,
            "predicted_kl": self.predicted_kl,
            "kl": self.result.kl.as_json(),
            "top1": self.result.top1.as_json(),
            "perplexity_ratio": self.result.ratio.as_json(),
            "types": summary(self.types),
        }


def summary(types: Types) -> dict[str, str]:
    """Slice -> its types in order of layers, runs of equal ones together: "Q5_1 x 30"."""
    result: dict[str, str] = {}
    for name in sorted({n for entry in types.values() for n in entry}):
        runs: list[tuple[str, int]] = []
        for layer in sorted(types):
            kind = types[layer].get(name, "-")
            if runs and runs[-1][0] == kind:
                runs[-1] = (kind, runs[-1][1] + 1)
            else:
                runs.append((kind, 1))
        result[name] = ", ".join(f"{kind} x {n}" for kind, n in runs)
    return result


def predicted_kl(scores: Sensitivities, types: Types) -> float:
    """Sum of the single changes."""
    return sum(scores.scores[layer][name][kind].kl for layer, entry in types.items() for name, kind in entry.items())


def _choices(scores: Sensitivities, name: str) -> list[str]:
    """Types that this slice was measured with in every layer that has it."""
    sets = [set(slices[name]) for slices in scores.scores.values() if name in slices]
    return sorted(set.intersection(*sets), key=lambda k: (-bits_of(k), k)) if sets else []


def uniform_types(source: GgufFile, scores: Sensitivities, max_bytes: int) -> list[tuple[float, Types]]:
    """Every choice of one type for gate, one for up and one for down, the same in all layers, that fits: best
    predicted first. Pure."""
    names = [n for n in ("gate", "up", "down") if _choices(scores, n)]
    found = []
    for kinds in product(*(_choices(scores, n) for n in names)):
        chosen = dict(zip(names, kinds, strict=True))
        types = {layer.layer: {n: chosen[n] for n in slices_of(layer)} for layer in source.expert_layers}
        if expert_bytes(source, types) <= max_bytes:
            found.append((predicted_kl(scores, types), types))
    return sorted(found, key=lambda f: f[0])


def is_favoured(idx: int, n: int) -> bool:
    """Layers that the common recipes give more bits to: the first eighth, the last eighth, and every third between."""
    return idx < n // 8 or idx >= 7 * n // 8 or (idx - n // 8) % 3 == 2


def recipe_types(source: GgufFile, scores: Sensitivities, max_bytes: int) -> list[tuple[float, Types]]:
    """One type for gate and up and down each, and a larger one for down in the favoured layers: best predicted first.
    Pure."""
    downs = _choices(scores, "down")
    inputs = [n for n in ("gate", "up") if _choices(scores, n)]
    n = len(source.expert_layers)
    found = []
    for kind in _choices(scores, "up"):
        for low, high in product(downs, downs):
            if bits_of(high) <= bits_of(low):
                continue
            types = {
                layer.layer: {
                    **{i: kind for i in inputs if i in layer.slices},
                    "down": high if is_favoured(idx, n) else low,
                }
                for idx, layer in enumerate(source.expert_layers)
            }
            if expert_bytes(source, types) <= max_bytes:
                found.append((predicted_kl(scores, types), types))
    return sorted(found, key=lambda f: f[0])


def _candidates(ready: Prepared, shrink: float) -> Iterator[tuple[str, Types, Importance | None]]:
    importance = ready.calibration.importance
    plan, _ = plan_for(ready.source, ready.sensitivities, Target(shrink=shrink))
    max_bytes = int(expert_bytes(ready.source) * (1 - shrink))
    uniform = uniform_types(ready.source, ready.sensitivities, max_bytes)
    if not uniform:
        raise InvalidArgumentError(f"no uniform type makes the experts {shrink:.1%} smaller")
    yield "plan", plan.types, importance
    for _, types in uniform[:N_UNIFORM]:
        yield "uniform", types, importance
    yield "uniform plain", uniform[0][1], None
    for _, types in recipe_types(ready.source, ready.sensitivities, max_bytes)[:1]:
        yield "recipe", types, importance


def evaluate_types(
    path: Path,
    types: Types,
    importance: Importance | None,
    base: Reference,
    options: dict[str, Any],
    folder: str | None,
    threads: int,
    progress: Progress | None = None,
) -> Comparison:
    """Writes the model with these types to a file that goes again, and compares."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        target = Path(temporary) / "model.les"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            requantize(path, target, PrecisionPlan(types), importance=importance, threads=threads)
        with les.load(target, **options) as model:
            return compare(base, model, progress)


def compare_precision(
    path: Path,
    ready: Prepared,
    shrinks: list[float],
    base: Reference,
    options: dict[str, Any],
    *,
    folder: str | None = None,
    threads: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[list[Entry]]:
    """For each shrink: the plan, the best uniform choices, a recipe, and the best uniform choice without importance.
    base: the model's own logits; options: of les.load. Files go to folder (default: the system's for temporary
    files), one at a time."""
    todo = [(i, c) for i, shrink in enumerate(shrinks) for c in _candidates(ready, shrink)]
    results: list[list[Entry]] = [[] for _ in shrinks]
    for done, (i, (name, types, importance)) in enumerate(todo):
        if progress:
            progress("comparing", done, len(todo))
        result = evaluate_types(path, types, importance, base, options, folder, threads)
        results[i].append(
            Entry(name, types, expert_bytes(ready.source, types), predicted_kl(ready.sensitivities, types), result)
        )
    return results


def summed_up(shrink: float, entries: list[Entry], source_bytes: int) -> dict[str, Any]:
    """The comparison as plain values. kl_uniform is the best of the uniform choices, with the plan's importance
    weights."""
    plan = next(e for e in entries if e.name == "plan")
    uniform = min((e for e in entries if e.name == "uniform"), key=lambda e: e.result.kl.value)
    recipe = next((e for e in entries if e.name == "recipe"), None)
    plain = next(e for e in entries if e.name == "uniform plain")
    best = min(uniform.result.kl.value, recipe.result.kl.value if recipe else float("inf"))
    return {
        "shrink": 1 - plan.n_bytes / source_bytes,
        "asked_shrink": shrink,
        "kl_plan": plan.result.kl.value,
        "kl_uniform": uniform.result.kl.value,
        "kl_recipe": recipe.result.kl.value if recipe else None,
        "kl_uniform_plain": plain.result.kl.value,
        "ratio": plan.result.kl.value / best if best > 0 else None,
        "top1": plan.result.top1.value,
        "top1_uniform": uniform.result.top1.value,
        "kl_predicted": plan.predicted_kl,
        "n_tokens": plan.result.n_tokens,
        "entries": [e.as_json() for e in entries],
    }


def spearman(first: list[float], second: list[float]) -> float:
    """Rank correlation; ties share their ranks."""

    def ranks(values: list[float]) -> Any:
        v = np.asarray(values)
        return np.array([(v < x).sum() + ((v == x).sum() - 1) / 2 for x in v])

    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale else 0.0


def sample_changes(scores: Sensitivities, n: int) -> list[tuple[int, str, str]]:
    """n single changes (layer, slice, type), spread evenly over the order of their predicted cost. Pure."""
    every = sorted(
        (s.kl, layer, name, kind)
        for layer, slices in scores.scores.items()
        for name, kinds in slices.items()
        for kind, s in kinds.items()
        if s.error > 0
    )
    return [every[(2 * i + 1) * len(every) // (2 * n)][1:] for i in range(min(n, len(every)))]
