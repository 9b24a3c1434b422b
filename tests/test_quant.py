"""Quant types against the gguf package (decoding, bit for bit) and against the reference quantizer's errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from les import errors

core = pytest.importorskip("les._core", reason="the native module is not built")
gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")

SHARED = Path(os.environ.get("LES_SHARED", Path(__file__).resolve().parents[2] / "shared"))
REFERENCE = SHARED / "goldens" / "quantize.json"

PLAIN = ["F32", "F16", "BF16"]
SCALED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4"]
SUPER = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ3_S"]
BLOCKS = [*SCALED, *SUPER]
READ_ONLY = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "NVFP4", "TQ1_0", "TQ2_0"]
READ = [*PLAIN, *BLOCKS, *READ_ONLY]

Floats = npt.NDArray[np.float32]


def gguf_type(name: str) -> gguf.GGMLQuantizationType:
    """The gguf package's id; skips if it is too old for the type."""
    if name not in gguf.GGMLQuantizationType.__members__:
        pytest.skip(f"this gguf package does not know {name}")
    return gguf.GGMLQuantizationType[name]


def reference_tensors() -> dict[str, Floats]:
    """The tensors of quantize.md, each 64 x 1024."""
    rng = np.random.default_rng(20261201)
    gauss = (rng.standard_normal((64, 1024)) * 0.02).astype(np.float32)
    heavy = (rng.standard_t(4, (64, 1024)) * 0.01).astype(np.float32)
    outlier = (rng.standard_normal((64, 1024)) * 0.02).astype(np.float32)
    outlier[:, ::97] *= 12
    return {"gauss": gauss, "heavy": heavy, "outlier": outlier}


TENSORS = reference_tensors()


def weighted_error(x: Floats, y: Floats, importance: Floats | float = 1.0) -> float:
    """Root of the weighted squared error over the root of the weighted square."""
    square = (x.astype(np.float64) - y) ** 2 * importance
    return float(np.sqrt(square.sum() / (x.astype(np.float64) ** 2 * importance).sum()))


@pytest.mark.parametrize("name", READ)
def test_sizes(name: str) -> None:
    kind = gguf_type(name)
    assert core.qtype_info(name) == (int(kind), *gguf.GGML_QUANT_SIZES[kind])
    assert core.qtype_info(name.lower()) == core.qtype_info(name)


@pytest.mark.parametrize("name", READ)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random scales overflow
def test_decodes_random_blocks_bit_for_bit(name: str) -> None:
    kind = gguf_type(name)
    _, n_block, n_bytes = core.qtype_info(name)
    data = np.random.default_rng(7).integers(0, 256, (64, n_bytes * 8), dtype=np.uint8)
    expected = gguf.quants.dequantize(data, kind).reshape(64, -1)
    got = core.dequantize(name, data, n_block * 8)
    assert got.shape == expected.shape and got.dtype == np.float32
    is_nan = np.isnan(expected)
    assert is_nan.mean() < 0.2
    np.testing.assert_array_equal(np.isnan(got), is_nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~is_nan], expected.view(np.uint32)[~is_nan])


@pytest.mark.parametrize("name", READ)
def test_decodes_ordinary_blocks_bit_for_bit(name: str) -> None:
    """As above with every weight finite, from real weights where gguf can write the type."""
    kind = gguf_type(name)
    try:
        data = gguf.quants.quantize(TENSORS["heavy"], kind)
    except NotImplementedError:
        n_bytes = core.qtype_info(name)[2]
        data = np.random.default_rng(8).integers(0, 0x3C, (64, n_bytes * 4), dtype=np.uint8)  # halves below 1
    data = np.ascontiguousarray(data).view(np.uint8)
    n_in = data.shape[1] // core.qtype_info(name)[2] * core.qtype_info(name)[1]
    expected = gguf.quants.dequantize(data, kind).reshape(64, n_in)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(core.dequantize(name, data, n_in).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", PLAIN)
def test_plain_floats_are_rounded_as_numpy_does(name: str) -> None:
    bits = np.random.default_rng(9).integers(0, 2**32, 1 << 16, dtype=np.uint32)
    bits[:4096] = (np.arange(4096, dtype=np.uint32) << 12) + 0x38000000  # ties of halves
    bits[4096:8192] = (np.arange(4096, dtype=np.uint32) << 15) + 0x3F000000  # ties of bfloats
    x = bits.view(np.float32)
    x = np.where(np.isnan(x), np.float32(1), x).reshape(64, -1)
    with np.errstate(over="ignore"):
        expected = np.ascontiguousarray(gguf.quants.quantize(x, gguf_type(name))).view(np.uint8)
    np.testing.assert_array_equal(core.quantize(name, x), expected)


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("name", BLOCKS)
def test_error_is_no_larger_than_the_reference(name: str, tensor: str) -> None:
    """At most the reference's error; the search is finer for each type, so no allowance is needed."""
    x = TENSORS[tensor]
    error = weighted_error(x, core.dequantize(name, core.quantize(name, x), 1024))
    if name == "MXFP4":
        kind = gguf_type(name)
        reference = weighted_error(x, gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind))
    elif REFERENCE.exists():
        reference = json.loads(REFERENCE.read_text())["relative_rmse"][name][tensor]
    else:
        pytest.skip(f"no {REFERENCE}; set LES_SHARED")
    assert 0 < error <= reference


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("name", BLOCKS)
def test_importance_lowers_the_weighted_error(name: str, tensor: str) -> None:
    x = TENSORS[tensor]
    importance = np.random.default_rng(3).gamma(0.5, size=1024).astype(np.float32)
    plain = core.dequantize(name, core.quantize(name, x), 1024)
    weighted = core.dequantize(name, core.quantize(name, x, importance), 1024)
    assert weighted_error(x, weighted, importance) < 0.995 * weighted_error(x, plain, importance)


@pytest.mark.parametrize("name", BLOCKS)
def test_threads_and_calls_give_the_same_bytes(name: str) -> None:
    x = TENSORS["gauss"][:13]
    data = core.quantize(name, x)
    assert data.shape == (13, 1024 // core.qtype_info(name)[1] * core.qtype_info(name)[2])
    for threads in (2, 5, 64):
        np.testing.assert_array_equal(core.quantize(name, x, threads=threads), data)
    np.testing.assert_array_equal(np.concatenate([core.quantize(name, x[:4]), core.quantize(name, x[4:])]), data)
    np.testing.assert_array_equal(core.quantize(name, np.asfortranarray(x)), data)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_written_blocks_read_the_same_elsewhere(name: str) -> None:
    data = core.quantize(name, TENSORS["outlier"])
    np.testing.assert_array_equal(core.dequantize(name, data, 1024), gguf.quants.dequantize(data, gguf_type(name)))


def test_empty_matrix() -> None:
    assert core.quantize("Q4_K", np.zeros((0, 256), np.float32), threads=4).shape == (0, 144)
    assert core.dequantize("Q4_K", np.zeros((0, 144), np.uint8), 256).shape == (0, 256)


def test_mistakes_are_named() -> None:
    x = np.zeros((2, 256), np.float32)
    with pytest.raises(errors.UnsupportedError, match="'Q9_X' is unknown"):
        core.qtype_info("Q9_X")
    with pytest.raises(errors.UnsupportedError, match="'Q9_X' is unknown"):
        core.dequantize("Q9_X", np.zeros(4, np.uint8), 4)
    with pytest.raises(errors.UnsupportedError, match="'Q9_X' is unknown"):
        core.quantize("Q9_X", x)
    with pytest.raises(errors.UnsupportedError, match="IQ1_S can be read but not written"):
        core.quantize("IQ1_S", x)
    with pytest.raises(errors.UnsupportedError, match="I32 is no weight type"):
        core.dequantize("I32", np.zeros(4, np.uint8), 1)
    with pytest.raises(errors.InvalidArgumentError, match="100 weights are not whole blocks of 32"):
        core.quantize("Q8_0", np.zeros((2, 100), np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="143 bytes are not whole rows of 144"):
        core.dequantize("Q4_K", np.zeros(143, np.uint8), 256)
    with pytest.raises(errors.InvalidArgumentError, match="1 dimensions instead of 2"):
        core.quantize("Q8_0", x[0])
    with pytest.raises(errors.InvalidArgumentError, match="3 values for 256 columns"):
        core.quantize("Q8_0", x, np.ones(3, np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="column 1 is -1"):
        core.quantize("Q8_0", x, np.where(np.arange(256) == 1, -1, 1).astype(np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="threads is 0"):
        core.quantize("Q8_0", x, threads=0)
