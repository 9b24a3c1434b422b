"""Sizes of memory as people write them."""

from __future__ import annotations

import re

from les.errors import InvalidArgumentError

UNITS = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "kb": 1000,
    "m": 1 << 20,
    "mib": 1 << 20,
    "mb": 1000**2,
    "g": 1 << 30,
    "gib": 1 << 30,
    "gb": 1000**3,
    "t": 1 << 40,
    "tib": 1 << 40,
    "tb": 1000**4,
}


def parse_size(value: str | int | float | None) -> int | None:
    """Bytes of "3GiB", "2.5 GB", "512M" or a number; None and "auto" mean no limit of one's own.

    Raises InvalidArgumentError for anything else.
    """
    if value is None or value == "auto":
        return None
    if isinstance(value, bool):
        raise InvalidArgumentError(f"memory is {value!r}; expected a size such as '3GiB'")
    if isinstance(value, (int, float)):
        size = int(value)
    else:
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", value)
        if not match or match[2].lower() not in UNITS:
            raise InvalidArgumentError(f"size {value!r} is not understood; write it like '3GiB', '2.5GB' or '512MiB'")
        size = int(float(match[1]) * UNITS[match[2].lower()])
    if size <= 0:
        raise InvalidArgumentError(f"size {value!r} is not positive")
    return size


def format_size(n_bytes: float) -> str:
    """Bytes in the largest binary unit that keeps them above one: "3.20 GiB"."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.2f} {unit}" if unit == "GiB" else f"{n_bytes / size:.1f} {unit}"
    return f"{int(n_bytes)} B"
