"""Where everything lies in a `.les` file: pure arithmetic from the source's headers, as csrc/store/FORMAT.md says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from les._core import ExpertLayer, GgufFile, TensorInfo, qtype_info
from les.errors import CorruptFileError, UnsupportedError
from les.pack.gguf_writer import TensorEntry, ValueType, align_up

FORMAT_VERSION = 1
RECORD_ALIGNMENT = 16 * 1024
SLICE_ALIGNMENT = 64
SLICES = ("gate", "up", "down")
NO_TYPE = 0xFFFFFFFF
EXPERT_NAME = re.compile(r"blk\.(0|[1-9][0-9]{0,4})\.ffn_(gate|up|down|gate_up)_exps\.weight")
RECORD_NAME = re.compile(r"blk\.(0|[1-9][0-9]{0,4})\.experts")


@dataclass(frozen=True)
class SliceLayout:
    """One of gate, up, down within a record."""

    type: str
    n_in: int
    n_out: int
    size_bytes: int
    offset_bytes: int


@dataclass(frozen=True)
class LayerLayout:
    """The records of one layer."""

    layer: int
    n_expert: int
    slices: dict[str, SliceLayout]
    record_bytes: int

    @property
    def payload_bytes(self) -> int:
        return sum(s.size_bytes for s in self.slices.values())


@dataclass
class FileLayout:
    """A `.les` file about to be written: header contents and the order of the data."""

    metadata: list[tuple[str, ValueType, Any]]
    layers: list[LayerLayout]
    trunk: list[TensorInfo]
    tensors: list[TensorEntry] = field(default_factory=list)
    data_bytes: int = 0


def is_expert_tensor(name: str) -> bool:
    """Routed expert weights, which become records; biases and scales of experts stay in the trunk."""
    return EXPERT_NAME.fullmatch(name) is not None


def is_record_tensor(name: str) -> bool:
    """The records of one layer of a packed file."""
    return RECORD_NAME.fullmatch(name) is not None


def check_packable(source: GgufFile) -> None:
    """Refuses names the format keeps for itself and metadata that cannot be written again. Raises UnsupportedError."""
    path = source.shards[0][0]
    for tensor in source.tensors:
        if is_record_tensor(tensor.name):
            raise UnsupportedError(f"{path}: tensor {tensor.name}: the name is kept for packed experts")
    for key, (_, element) in source.metadata_types.items():
        if key.startswith("les."):
            raise UnsupportedError(f"{path}: key {key}: names beginning with les. are kept for packed files")
        if element == "array":
            raise UnsupportedError(f"{path}: key {key}: arrays of arrays are read but cannot be packed")


def plan_layer(layer: ExpertLayer, types: dict[str, str] | None = None) -> LayerLayout:
    """Slices one after another, 64-byte aligned; the record 16 KiB aligned. types: another type for some slices."""
    slices: dict[str, SliceLayout] = {}
    at = 0
    for name in SLICES:
        if name not in layer.slices:
            continue
        source = layer.slices[name]
        kind = (types or {}).get(name, source["type"])
        _, elements, block_bytes = qtype_info(kind)
        size = source["n_in"] // elements * block_bytes * source["n_out"]
        slices[name] = SliceLayout(kind, source["n_in"], source["n_out"], size, at)
        at = align_up(at + size, SLICE_ALIGNMENT)
    return LayerLayout(layer.layer, layer.n_expert, slices, align_up(at, RECORD_ALIGNMENT))


def layer_metadata(layout: LayerLayout, checksums: list[int]) -> list[tuple[str, ValueType, Any]]:
    """The keys that describe one layer's records."""
    key = f"les.blk.{layout.layer}."
    get = [layout.slices.get(name) for name in SLICES]
    return [
        (key + "types", ("array", "u32"), [qtype_info(s.type)[0] if s else NO_TYPE for s in get]),
        (key + "offsets", ("array", "u64"), [s.offset_bytes if s else 0 for s in get]),
        (key + "n_in", ("array", "u64"), [s.n_in if s else 0 for s in get]),
        (key + "n_out", ("array", "u64"), [s.n_out if s else 0 for s in get]),
        (key + "checksums", ("array", "u64"), checksums),
    ]


def source_metadata(source: GgufFile) -> list[tuple[str, ValueType, Any]]:
    """The keys that came from the original GGUF file, in its order; of a packed file what the format added is left out.

    general.alignment keeps its place, with the format's value, where the original had it.
    """
    kinds = source.metadata_types
    metadata: list[tuple[str, ValueType, Any]] = []
    is_original = True  # les.version ends what came from the original
    for key, value in source.metadata.items():
        is_original = is_original and key != "les.version"
        if key == "general.alignment":
            if is_original:
                metadata.append((key, ("u32", None), RECORD_ALIGNMENT))
        elif not key.startswith(("split.", "les.") if source.is_packed else "split."):
            metadata.append((key, kinds[key], value))
    return metadata


def plan_file(source: GgufFile, types: dict[int, dict[str, str]] | None = None) -> FileLayout:
    """The whole file. types: layer -> slice -> quant type, where it is to differ from the source's.

    general.alignment stands where the source has it, or behind les.version if it has none, so that unpacking can tell.
    """
    layers = [plan_layer(layer, (types or {}).get(layer.layer)) for layer in source.expert_layers]
    is_expert = is_record_tensor if source.is_packed else is_expert_tensor
    trunk = [t for t in source.tensors if not is_expert(t.name)]
    metadata = source_metadata(source)
    is_aligned = any(key == "general.alignment" for key, _, _ in metadata)
    metadata.append(("les.version", ("u32", None), FORMAT_VERSION))
    if not is_aligned:
        metadata.append(("general.alignment", ("u32", None), RECORD_ALIGNMENT))
    if source.is_packed:
        alignment, fused = source.metadata.get("les.source_alignment", 32), source.metadata.get("les.fused_layers", [])
        if not isinstance(alignment, int) or not isinstance(fused, list):
            raise CorruptFileError(
                f"{source.shards[0][0]}: les.source_alignment or les.fused_layers has the wrong type"
            )
    else:
        alignment = source.alignment_bytes
        fused = [
            int(m[1]) for m in map(EXPERT_NAME.fullmatch, (t.name for t in source.tensors)) if m and m[2] == "gate_up"
        ]
    metadata.append(("les.source_alignment", ("u32", None), alignment))
    metadata.append(("les.fused_layers", ("array", "u32"), fused))
    layout = FileLayout(metadata, layers, trunk)
    at = 0
    for tensor in trunk:
        layout.tensors.append(TensorEntry(tensor.name, qtype_info(tensor.type)[0], tensor.shape, at, tensor.size_bytes))
        at = align_up(at + tensor.size_bytes, RECORD_ALIGNMENT)
    for layer in layers:
        size = layer.record_bytes * layer.n_expert
        entry = TensorEntry(
            f"blk.{layer.layer}.experts", qtype_info("I8")[0], (layer.record_bytes, layer.n_expert), at, size
        )
        layout.tensors.append(entry)
        at = align_up(at + size, RECORD_ALIGNMENT)
    layout.data_bytes = at
    return layout
