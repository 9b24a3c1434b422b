"""Quant types as precision planning sees them: which can be written, what they cost, which rows they hold."""

from __future__ import annotations

from les._core import ExpertLayer, qtype_info
from les.errors import InvalidArgumentError, UnsupportedError
from les.pack.layout import SLICES

# What the native quantizers write, dearest first; ties by what usually errs less.
WRITABLE = (
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q6_K",
    "Q5_1",
    "Q5_K",
    "Q5_0",
    "Q4_1",
    "Q4_K",
    "IQ4_NL",
    "Q4_0",
    "IQ4_XS",
    "MXFP4",
    "IQ3_S",
    "Q3_K",
    "Q2_K",
)
# Sources of these types lose nothing worth a warning when they are quantised again.
PRECISE = ("F32", "F16", "BF16", "Q8_0")


def bits_of(name: str) -> float:
    """Bits per weight. Raises as qtype_info does for an unknown name."""
    _, elements, block_bytes = qtype_info(name)
    return block_bytes * 8 / elements


def check_writable(name: str) -> str:
    """The type's proper name; raises UnsupportedError naming those that can be written."""
    for known in WRITABLE:
        if known.lower() == name.lower():
            return known
    raise UnsupportedError(f"type {name!r} cannot be written; known: {', '.join(WRITABLE)}")


def fits(name: str, n_in: int) -> bool:
    """Rows of n_in weights are whole blocks of the type."""
    return n_in % qtype_info(name)[1] == 0


def slices_of(layer: ExpertLayer) -> list[str]:
    """Those of gate, up, down that the layer has."""
    return [name for name in SLICES if name in layer.slices]


def check_fits(layer: ExpertLayer, slice_name: str, name: str) -> None:
    """Raises InvalidArgumentError, with the types that would do, where a row is no whole number of blocks."""
    n_in = layer.slices[slice_name]["n_in"]
    if not fits(name, n_in):
        raise InvalidArgumentError(
            f"layer {layer.layer}: {slice_name} has rows of {n_in} weights, which are no whole blocks of {name} "
            f"({qtype_info(name)[1]}); these would do: {', '.join(t for t in WRITABLE if fits(t, n_in))}"
        )
