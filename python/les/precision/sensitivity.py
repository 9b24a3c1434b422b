"""How much each layer's slices suffer from each quant type: KL divergence of the model's output, kept in a file.

For a layer the change of its output is computed exactly from sampled inputs, for every slice and candidate type. The
changes of one type for each slice, the references, are added to that layer's output in a run of the whole model,
which gives the divergence they cause in full; it is shared out among slices and types by their squared relative
errors.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from les._core import ExpertLayer, GgufFile
from les.engine import Model
from les.errors import CorruptFileError, InvalidArgumentError, ReadError
from les.eval.tokens import Reference, Windows, kl_rows, logits_of
from les.pack.files import ShardReader
from les.precision.calibration import Calibration
from les.precision.layer_error import ExpertWeights, LayerSample, layer_changes, relative_error
from les.precision.qtypes import WRITABLE, bits_of, fits, slices_of
from les.precision.writer import read_checked

FORMAT = "les-sensitivity"
VERSION = 2
# Floats save nothing; MXFP4 is written only where it is asked for by name.
CANDIDATES = tuple(name for name in WRITABLE if name not in ("F32", "F16", "BF16", "MXFP4"))
REFERENCE_BITS = 5.0  # where most plans move; far from it the squared error is a poorer guide
SAMPLE_BYTES = 128 << 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Score:
    """error: mean squared error of the layer's output, relative; kl: nats a token that this change alone costs."""

    error: float
    kl: float


@dataclass
class Sensitivities:
    """scores: layer -> slice -> type. model, calibration: fingerprints of what they were measured on."""

    model: str
    calibration: str
    n_tokens: int
    scores: dict[int, dict[str, dict[str, Score]]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        layers = {
            str(number): {name: {kind: [s.error, s.kl] for kind, s in kinds.items()} for name, kinds in slices.items()}
            for number, slices in sorted(self.scores.items())
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "calibration": self.calibration,
            "n_tokens": self.n_tokens,
            "layers": layers,
        }


def load_sensitivities(path: str | Path) -> Sensitivities:
    """Raises CorruptFileError or ReadError."""
    try:
        value = json.loads(Path(path).read_text("utf-8"))
        if value["format"] != FORMAT or value["version"] != VERSION:
            raise ValueError("another format")
        scores = {
            int(number): {
                name: {kind: Score(float(s[0]), float(s[1])) for kind, s in kinds.items()}
                for name, kinds in slices.items()
            }
            for number, slices in value["layers"].items()
        }
        return Sensitivities(value["model"], value["calibration"], int(value["n_tokens"]), scores)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CorruptFileError(f"{path}: no sensitivities of les: {error}") from error


def save_sensitivities(result: Sensitivities, path: str | Path) -> None:
    """Written beside and renamed."""
    part = Path(f"{path}.part")
    try:
        part.write_text(json.dumps(result.as_json(), indent=1) + "\n", "utf-8")
        os.replace(part, path)
    except OSError as error:
        raise ReadError(f"{part}: {error.strerror or error}") from error


def model_fingerprint(source: GgufFile) -> str:
    """Of shapes, types and the beginnings of each layer's first and last expert; the same for a GGUF file and its
    packed form."""
    digest = hashlib.sha256(str(source.metadata.get("general.architecture")).encode())
    with ShardReader(source.shards) as reader:
        for layer in source.expert_layers:
            digest.update(repr((layer.layer, layer.n_expert)).encode())
            for expert in (0, layer.n_expert - 1):
                weights = read_expert(source, reader, layer, expert, is_checked=False)
                for name in slices_of(layer):
                    s = layer.slices[name]
                    digest.update(repr((name, s["type"], s["n_in"], s["n_out"])).encode())
                    digest.update(weights.stored[name][:65536].tobytes())
    return digest.hexdigest()[:16]


def read_expert(
    source: GgufFile, reader: ShardReader, layer: ExpertLayer, expert: int, is_checked: bool = True
) -> ExpertWeights:
    """One expert's stored slices."""
    record = np.frombuffer(read_checked(source, reader, layer, expert, is_checked), np.uint8)
    names = slices_of(layer)
    return ExpertWeights(
        {
            n: record[s["offset_bytes"] : s["offset_bytes"] + s["size_bytes"]]
            for n, s in layer.slices.items()
            if n in names
        },
        {n: layer.slices[n]["type"] for n in names},
        {n: layer.slices[n]["n_in"] for n in names},
    )


def candidates_of(layer: ExpertLayer, kinds: tuple[str, ...] = CANDIDATES) -> dict[str, list[str]]:
    """Slice -> types that it can have and that are smaller than its own."""
    result = {}
    for name in slices_of(layer):
        s = layer.slices[name]
        result[name] = [k for k in kinds if k != s["type"] and bits_of(k) < bits_of(s["type"]) and fits(k, s["n_in"])]
    return result


def reference_of(errors: dict[str, float]) -> str:
    """The type whose change the whole model is run with: near REFERENCE_BITS, and not beaten in both bits and error."""
    useful = [
        kind
        for kind, error in errors.items()
        if not any(bits_of(k) <= bits_of(kind) and e < error for k, e in errors.items() if k != kind)
    ]
    return min(useful, key=lambda k: (abs(bits_of(k) - REFERENCE_BITS), -errors[k], k))


def disturbed_kl(model: Model, base: Reference, layer: int, change: npt.NDArray[np.float32]) -> float:
    """KL(base || model with change [n tokens, d] added to the layer's output), mean over all tokens."""
    core = model._core
    core.start_probe({"disturbed_layer": layer, "disturbance": change})
    try:
        rows = [kl_rows(p, q) for p, q in zip(base, logits_of(model, base.windows), strict=True)]
    finally:
        core.stop_probe()
    return float(np.concatenate(rows).mean())


def sample_layers(model: Model, windows: Windows, layers: list[int]) -> dict[int, LayerSample]:
    """Runs the windows and keeps what the layers' experts saw."""
    core = model._core
    core.start_probe({"sample_layers": layers, "max_samples": sum(map(len, windows))})
    try:
        with model.session() as session:
            for window in windows:
                session.rewind(0)
                session.eval(window)
    finally:
        rows = core.stop_probe()
    return {row["layer"]: LayerSample.from_probe(row) for row in rows if row["layer"] in layers}


def measured_so_far(
    source: GgufFile, calibration: Calibration, n_tokens: int | None, path: str | Path | None
) -> Sensitivities:
    """What the file has for this model, calibration and number of tokens (None: any); empty where it has none."""
    result = Sensitivities(model_fingerprint(source), calibration.fingerprint(), n_tokens or 0)
    if path is None or not Path(path).exists():
        return result
    found = load_sensitivities(path)
    is_same = (found.model, found.calibration) == (result.model, result.calibration)
    return found if is_same and n_tokens in (None, found.n_tokens) else result


def is_complete(result: Sensitivities, source: GgufFile, kinds: tuple[str, ...] = CANDIDATES) -> bool:
    """All layers have all their types."""
    return all(_is_measured(result, layer, kinds) for layer in source.expert_layers)


def measuring_bytes(source: GgufFile, n_tokens: int, window: int) -> int:
    """Memory that measure takes beside the model: samples, changes of a layer's output, logits, experts in floats."""
    layers = source.expert_layers
    d = max((layer.slices["up"]["n_in"] for layer in layers), default=0)
    n_changes = max((sum(map(len, candidates_of(layer).values())) for layer in layers), default=0)
    n_weights = max((sum(s["n_in"] * s["n_out"] for s in layer.slices.values()) for layer in layers), default=0)
    n_vocab = len(source.metadata.get("tokenizer.ggml.tokens", ()))
    samples = max(SAMPLE_BYTES, n_tokens * d * 8)
    return samples + n_changes * n_tokens * d * 4 + 3 * window * n_vocab * 4 + 4 * n_weights * 4


def measure(
    model: Model,
    source: GgufFile,
    calibration: Calibration,
    windows: Windows,
    *,
    path: str | Path | None = None,
    kinds: tuple[str, ...] = CANDIDATES,
    threads: int = 1,
    progress: Progress | None = None,
) -> Sensitivities:
    """Measures what is not in the file yet (layer by layer; the file is kept up to date). The model is to be loaded
    from source with compute="f32", or rounding of activations shows as divergence. progress(done, total) in
    layers."""
    if not windows:
        raise InvalidArgumentError("sensitivities need tokens to measure on")
    n_tokens = sum(map(len, windows))
    result = measured_so_far(source, calibration, n_tokens, path)
    todo = [layer for layer in source.expert_layers if not _is_measured(result, layer, kinds)]
    total = len(source.expert_layers)
    if progress:
        progress(total - len(todo), total)
    if not todo:
        return result
    width = max(layer.slices["up"]["n_in"] for layer in todo)
    at_once = max(1, SAMPLE_BYTES // (n_tokens * width * 8))
    with Reference(model, windows) as base, ShardReader(source.shards) as reader:
        for first in range(0, len(todo), at_once):
            group = todo[first : first + at_once]
            samples = sample_layers(model, windows, [layer.layer for layer in group])
            for layer in group:
                result.scores[layer.layer] = _measure_layer(
                    model,
                    base,
                    source,
                    reader,
                    layer,
                    samples.pop(layer.layer),
                    calibration,
                    candidates_of(layer, kinds),
                    threads,
                )
                if path is not None:
                    save_sensitivities(result, path)
                if progress:
                    progress(len(result.scores), total)
    return result


def _is_measured(result: Sensitivities, layer: ExpertLayer, kinds: tuple[str, ...]) -> bool:
    have = result.scores.get(layer.layer, {})
    return all(set(wanted) <= set(have.get(name, {})) for name, wanted in candidates_of(layer, kinds).items())


def _measure_layer(
    model: Model,
    base: Reference,
    source: GgufFile,
    reader: ShardReader,
    layer: ExpertLayer,
    sample: LayerSample,
    calibration: Calibration,
    candidates: dict[str, list[str]],
    threads: int,
) -> dict[str, dict[str, Score]]:
    def experts() -> Iterator[tuple[int, ExpertWeights]]:
        for expert in range(layer.n_expert):
            if (sample.chosen == expert).any():
                yield expert, read_expert(source, reader, layer, expert)

    changes = layer_changes(
        sample, experts(), candidates, lambda name, expert: calibration.importance(layer.layer, name, expert), threads
    )
    errors = {
        name: {kind: relative_error(changes[name, kind], sample.y) for kind in kinds}
        for name, kinds in candidates.items()
    }
    together = np.zeros_like(sample.y)
    for name, of_kind in errors.items():
        if of_kind:
            together += changes[name, reference_of(of_kind)]
    error = relative_error(together, sample.y)
    per_error = max(0.0, disturbed_kl(model, base, layer.layer, together)) / error if error > 0 else 0.0
    return {
        name: {layer.slices[name]["type"]: Score(0.0, 0.0), **{k: Score(e, e * per_error) for k, e in of_kind.items()}}
        for name, of_kind in errors.items()
    }
