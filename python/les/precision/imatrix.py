"""Importance matrices as llama.cpp writes them, in their GGUF and their older binary form."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from les._core import GgufFile
from les.errors import CorruptFileError, NotFoundError, ReadError
from les.pack.files import ShardReader
from les.precision.calibration import Calibration, LayerMoments, load_calibration

CALL_TOKENS = 512  # of one call that the older form counts, as llama-imatrix has it unless told otherwise
NAME = re.compile(r"blk\.(\d{1,5})\.ffn_(gate|up|gate_up|down)_exps\.weight")
Sums = dict[tuple[int, str], tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]


def load_any(path: str | Path) -> Calibration:
    """A calibration of les or an imatrix of either form. Raises NotFoundError, ReadError, CorruptFileError."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file") from error
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error
    if head[:2] == b"PK":
        return load_calibration(path)
    return _as_calibration(_read_gguf(path) if head == b"GGUF" else _read_legacy(path), path)


def _as_calibration(sums: Sums, path: str | Path) -> Calibration:
    """sums: (layer, slice) -> (sums of squares [E, n_in], counts [E])."""
    empty = np.zeros((0, 0))
    layers: dict[int, LayerMoments] = {}
    for number in sorted({layer for layer, _ in sums}):
        inputs = next((sums[number, name] for name in ("gate_up", "gate", "up") if (number, name) in sums), None)
        middle = sums.get((number, "down"))
        counts = (inputs or middle)[1]  # type: ignore[index]
        in_sq, mid_sq = (x[0] if x is not None else empty for x in (inputs, middle))
        if inputs is not None and middle is not None and not np.array_equal(inputs[1], middle[1]):
            # Each matrix's own counts turned into those of the other, so that sum / count stays its mean.
            mid_sq = mid_sq * (counts / np.maximum(middle[1], 1e-30))[:, None]
        layers[number] = LayerMoments(counts.copy(), counts.copy(), counts.copy(), in_sq, mid_sq, np.zeros(counts.size))
    if not layers:
        raise CorruptFileError(f"{path}: an importance matrix without experts")
    return Calibration(layers)


def _read_gguf(path: str | Path) -> Sums:
    gguf = GgufFile(str(path))
    tensors = {t.name: t for t in gguf.tensors}
    sums: Sums = {}
    with ShardReader(gguf.shards) as reader:

        def values(name: str) -> npt.NDArray[np.float64]:
            t = tensors[name]
            if t.type != "F32":
                raise CorruptFileError(f"{path}: tensor {name} is {t.type}; expected F32")
            return np.frombuffer(reader.read(t.file_idx, t.offset_bytes, t.size_bytes), "<f4").astype(np.float64)

        for name in tensors:
            match = NAME.fullmatch(name.removesuffix(".in_sum2"))
            if not name.endswith(".in_sum2") or match is None:
                continue
            counts_name = name.removesuffix(".in_sum2") + ".counts"
            if counts_name not in tensors:
                raise CorruptFileError(f"{path}: tensor {counts_name} is missing")
            squares, counts = values(name), values(counts_name)
            sums[int(match[1]), match[2]] = _checked(path, name, squares, counts)
    return sums


def _checked(
    path: str | Path, name: str, squares: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if counts.size == 0 or squares.size % counts.size or not (np.isfinite(squares).all() and np.isfinite(counts).all()):
        raise CorruptFileError(
            f"{path}: {name}: {squares.size} sums for {counts.size} experts, or sums that are not finite"
        )
    return squares.reshape(counts.size, -1), counts


def _read_legacy(path: str | Path) -> Sums:
    """int32 count; then name, int32 calls, int32 values, float32 values of each. It does not say how many experts a
    tensor has nor how often each was used: one row is kept, to be cut when the model's shapes are known."""
    data = Path(path).read_bytes()
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        if size < 0 or at + size > len(data):
            raise CorruptFileError(f"{path}: no importance matrix: {size} bytes wanted at {at} of {len(data)}")
        at += size
        return data[at - size : at]

    def number() -> int:
        return int(struct.unpack("<i", take(4))[0])

    sums: Sums = {}
    n_entries = number()
    if not 0 < n_entries <= 1 << 20:
        raise CorruptFileError(f"{path}: no importance matrix: {n_entries} entries")
    for _ in range(n_entries):
        name = take(number()).decode("utf-8", "replace")
        calls, n_values = number(), number()
        squares = np.frombuffer(take(4 * n_values), "<f4").astype(np.float64)
        match = NAME.fullmatch(name)
        if match is not None:
            sums[int(match[1]), match[2]] = _checked(
                path, name, squares * CALL_TOKENS, np.array([float(max(1, calls) * CALL_TOKENS)])
            )
    return sums


def fit_shapes(calibration: Calibration, shapes: dict[int, tuple[int, int, int]]) -> Calibration:
    """Cuts the rows of an older imatrix into experts. shapes: layer -> (n_expert, d_in, ff)."""
    for number, moments in calibration.layers.items():
        if number not in shapes or moments.uses.size != 1 or shapes[number][0] == 1:
            continue
        n, d, ff = shapes[number]
        if moments.in_sq.size not in (0, n * d) or moments.mid_sq.size not in (0, n * ff):
            continue  # check_calibration says what is wrong
        counts = np.full(n, moments.uses[0] / n)
        moments.uses, moments.weight, moments.weight_sq, moments.out_sq = (
            counts,
            counts.copy(),
            counts.copy(),
            np.zeros(n),
        )
        moments.in_sq, moments.mid_sq = (s.reshape(n, -1) if s.size else s for s in (moments.in_sq, moments.mid_sq))
    return calibration
