"""Writing GGUF v3 headers with exact types and offsets; data follows in whatever way the caller streams it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

# GGUF value types.
TYPE_IDS = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "string": 8,
    "array": 9,
    "u64": 10,
    "i64": 11,
    "f64": 12,
}
FORMATS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "f32": "f",
    "bool": "?",
    "u64": "Q",
    "i64": "q",
    "f64": "d",
}

ValueType = tuple[str, str | None]


@dataclass(frozen=True)
class TensorEntry:
    """One line of the tensor table. type_id and shape as GGUF has them; offset_bytes from the start of the data."""

    name: str
    type_id: int
    shape: tuple[int, ...]
    offset_bytes: int
    size_bytes: int


def align_up(value: int, alignment: int) -> int:
    """The next multiple of alignment."""
    return -(-value // alignment) * alignment


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: str, element: str | None, value: Any) -> bytes:
    if kind == "string":
        return _text(value)
    if kind != "array":
        return struct.pack("<" + FORMATS[kind], value)
    assert element is not None
    head = struct.pack("<IQ", TYPE_IDS[element], len(value))
    if element == "string":
        return head + b"".join(map(_text, value))
    if element == "array":
        raise ValueError("nested arrays cannot be written")
    return head + struct.pack(f"<{len(value)}{FORMATS[element]}", *value)


def encode_header(metadata: list[tuple[str, ValueType, Any]], tensors: list[TensorEntry], alignment: int) -> bytes:
    """Everything before the tensor data, padded to the alignment.

    metadata: (key, (type, element type or None), value) in file order.
    """
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, (kind, element), value in metadata:
        parts += [_text(key), struct.pack("<I", TYPE_IDS[kind]), _value(kind, element, value)]
    for t in tensors:
        parts += [
            _text(t.name),
            struct.pack("<I", len(t.shape)),
            struct.pack(f"<{len(t.shape)}Q", *t.shape),
            struct.pack("<IQ", t.type_id, t.offset_bytes),
        ]
    header = b"".join(parts)
    return header + bytes(align_up(len(header), alignment) - len(header))
