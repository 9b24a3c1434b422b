"""What a model's experts see on a text: uses and second moments, gathered by running it, kept in a file, or read from
an imatrix."""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from les.engine import Model
from les.errors import CorruptFileError, InvalidArgumentError, NotFoundError, ReadError
from les.eval.tokens import Windows
from les.pack.files import writing_beside

FORMAT = "les-calibration-1"
# An expert's own moments count as much as its layer's mean when it was used this often (in units of mean w^2).
PRIOR_USES = 8.0
SAVE_SECONDS = 30.0
FIELDS = ("uses", "weight", "weight_sq", "in_sq", "mid_sq", "out_sq")

Doubles = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]


@dataclass
class LayerMoments:
    """Sums over the tokens seen, by expert; each use weighted by the square of its routing weight w.

    uses [E]; weight, weight_sq [E]: sums of w, w^2; in_sq [E, d]: of w^2 x^2 of what gate and up read; mid_sq [E,
    ff]: of what down reads; out_sq [E]: of w^2 |output|^2.
    """

    uses: Doubles
    weight: Doubles
    weight_sq: Doubles
    in_sq: Doubles
    mid_sq: Doubles
    out_sq: Doubles


@dataclass
class Calibration:
    """layers: by layer number. windows: the tokens they come from, empty for an imatrix. n_tokens: seen so far."""

    layers: dict[int, LayerMoments]
    n_tokens: int = 0
    windows: Windows = field(default_factory=list)
    n_windows_done: int = 0

    @property
    def is_complete(self) -> bool:
        return self.n_windows_done >= len(self.windows)

    def importance(self, layer: int, slice_name: str, expert: int) -> npt.NDArray[np.float32] | None:
        """Mean square of each input column of one expert's slice, [n_in]; experts that were hardly used lean on the
        layer's mean."""
        moments = self.layers.get(layer)
        if moments is None:
            return None
        squares = moments.mid_sq if slice_name == "down" else moments.in_sq
        total_weight = moments.weight_sq.sum()
        if squares.size == 0 or total_weight <= 0:
            return None
        prior = PRIOR_USES * total_weight / max(1.0, moments.uses.sum())
        mean = (squares[expert] + prior * squares.sum(axis=0) / total_weight) / (moments.weight_sq[expert] + prior)
        return np.asarray(mean, np.float32)

    def fingerprint(self) -> str:
        """Of the moments and tokens, for files that depend on them."""
        digest = hashlib.sha256(repr(self.windows).encode())
        for number, moments in sorted(self.layers.items()):
            digest.update(str(number).encode())
            for name in FIELDS:
                digest.update(np.ascontiguousarray(getattr(moments, name)).tobytes())
        return digest.hexdigest()[:16]


def add_moments(calibration: Calibration, gathered: list[dict[str, object]]) -> None:
    """Adds what a probe gathered."""
    for row in gathered:
        new = LayerMoments(*(np.asarray(row[name], np.float64) for name in FIELDS))
        old = calibration.layers.get(int(row["layer"]))  # type: ignore[call-overload]
        if old is None:
            calibration.layers[int(row["layer"])] = new  # type: ignore[call-overload]
            continue
        for name in FIELDS:
            getattr(old, name).__iadd__(getattr(new, name))


def moments_bytes(model_layers: list[tuple[int, int, int]]) -> int:
    """Memory of the sums, twice over because they are copied out: (n_expert, d_in, ff) of each layer."""
    return 2 * 8 * sum(e * (d + ff + 4) for e, d, ff in model_layers)


def calibrate(
    model: Model, windows: Windows, path: str | Path | None = None, progress: Progress | None = None
) -> Calibration:
    """Runs the windows through the model. With a path the file is kept up to date every half minute and at an
    interruption, and a run that finds it there, for the same windows, goes on where it ended."""
    result = Calibration({}, 0, [list(w) for w in windows])
    target = Path(path) if path is not None else None
    if target is not None and target.exists():
        found = load_calibration(target)
        if found.windows == result.windows:
            result = found
    total = sum(map(len, windows))
    core = model._core
    saved = time.monotonic()

    def collect() -> None:
        add_moments(result, core.stop_probe())
        result.n_tokens, result.n_windows_done = done_tokens, done_windows

    done_windows, done_tokens = result.n_windows_done, result.n_tokens
    if result.is_complete:
        return result
    with model.session() as session:
        core.start_probe({"moments": True})
        try:
            for window in windows[done_windows:]:
                session.rewind(0)
                session.eval(window)
                done_windows, done_tokens = done_windows + 1, done_tokens + len(window)
                if progress:
                    progress(done_tokens, total)
                if target is not None and time.monotonic() - saved > SAVE_SECONDS:
                    collect()
                    save_calibration(result, target)
                    saved = time.monotonic()
                    core.start_probe({"moments": True})
        except BaseException:
            core.stop_probe()  # holds a part of a window
            raise
        collect()
    if target is not None:
        save_calibration(result, target)
    return result


def save_calibration(calibration: Calibration, path: str | Path) -> None:
    """A numpy archive, written beside and renamed."""
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "format": np.array(FORMAT),
        "n_tokens": np.array(calibration.n_tokens),
        "n_windows_done": np.array(calibration.n_windows_done),
        "window_sizes": np.array([len(w) for w in calibration.windows], np.int64),
        "tokens": np.array([t for w in calibration.windows for t in w], np.int32),
    }
    for number, moments in calibration.layers.items():
        for name in FIELDS:
            arrays[f"{number}.{name}"] = getattr(moments, name)
    data = io.BytesIO()
    np.savez(data, **arrays)  # type: ignore[arg-type]
    with writing_beside(Path(path)) as file:
        file.write(data.getvalue())


def load_calibration(path: str | Path) -> Calibration:
    """Raises NotFoundError, ReadError, CorruptFileError."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if "format" not in archive or str(archive["format"]) != FORMAT:
                raise CorruptFileError(f"{path}: no calibration of les")
            sizes, tokens = archive["window_sizes"], archive["tokens"]
            if sizes.sum() != tokens.size or (sizes < 0).any():
                raise CorruptFileError(f"{path}: {tokens.size} tokens for windows of {int(sizes.sum())}")
            ends = np.cumsum(sizes)
            windows = [tokens[end - size : end].tolist() for end, size in zip(ends, sizes, strict=True)]
            layers: dict[int, LayerMoments] = {}
            for number in sorted({int(key.split(".")[0]) for key in archive.files if "." in key}):
                layers[number] = LayerMoments(*(archive[f"{number}.{name}"].astype(np.float64) for name in FIELDS))
            return Calibration(layers, int(archive["n_tokens"]), windows, int(archive["n_windows_done"]))
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file") from error
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptFileError(f"{path}: no calibration of les: {error}") from error
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error


def check_calibration(calibration: Calibration, shapes: dict[int, tuple[int, int, int]], what: str) -> None:
    """shapes: layer -> (n_expert, d_in, ff) of the model. Raises InvalidArgumentError where they differ, or for sums
    that cannot be."""
    for number, moments in calibration.layers.items():
        if number not in shapes:
            raise InvalidArgumentError(f"{what}: has layer {number}, which has no experts in the model")
        n, d, ff = shapes[number]
        for name, squares, width in (("inputs", moments.in_sq, d), ("inputs of down", moments.mid_sq, ff)):
            if squares.size and squares.shape != (n, width):
                raise InvalidArgumentError(
                    f"{what}: layer {number}: {name} have shape {squares.shape}; the model has ({n}, {width})"
                )
            if squares.size and not (np.isfinite(squares).all() and (squares >= 0).all()):
                raise InvalidArgumentError(f"{what}: layer {number}: {name} have sums that are negative or not finite")
        if moments.uses.shape != (n,) or moments.weight_sq.shape != (n,):
            raise InvalidArgumentError(
                f"{what}: layer {number}: uses of {moments.uses.size} experts; the model has {n}"
            )
    if not calibration.layers:
        raise InvalidArgumentError(f"{what}: has nothing about experts")


def check_folder(target: str | Path) -> None:
    """Raises InvalidArgumentError where a file cannot be written, before hours are spent on its contents."""
    folder = Path(target).parent
    if not folder.is_dir():
        raise InvalidArgumentError(f"{folder}: no such folder")
    if not os.access(folder, os.W_OK):
        raise InvalidArgumentError(f"{folder}: cannot be written to")


def default_path(model: Path, kind: str) -> Path:
    """Where what is measured of a model is kept: beside it, or in the current folder where that cannot be written."""
    beside = model.with_name(f"{model.stem}.{kind}")
    return beside if os.access(model.parent, os.W_OK) else Path(beside.name)
