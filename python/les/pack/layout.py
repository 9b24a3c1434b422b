"""Where everything lies in a `.les` file: pure arithmetic from the source's headers. csrc/store/FORMAT.md is the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from les._core import ExpertLayer, GgufFile, TensorInfo, qtype_info
from les.pack.gguf_writer import TensorEntry, ValueType, align_up

FORMAT_VERSION = 1
RECORD_ALIGNMENT = 16 * 1024
SLICE_ALIGNMENT = 64
SLICES = ("gate", "up", "down")
NO_TYPE = 0xFFFFFFFF
EXPERT_SUFFIXES = ("ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight", "ffn_gate_up_exps.weight")


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
    return name.startswith("blk.") and name.split(".", 2)[-1] in EXPERT_SUFFIXES


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


def plan_file(source: GgufFile, types: dict[int, dict[str, str]] | None = None) -> FileLayout:
    """The whole file. types: layer -> slice -> quant type, where it is to differ from the source's."""
    layers = [plan_layer(layer, (types or {}).get(layer.layer)) for layer in source.expert_layers]
    trunk = [t for t in source.tensors if not is_expert_tensor(t.name)]
    metadata: list[tuple[str, ValueType, Any]] = []
    kinds = source.metadata_types
    for key, value in source.metadata.items():
        if key == "general.alignment" or key.startswith("split."):
            continue
        metadata.append((key, kinds[key], value))
    metadata.append(("general.alignment", ("u32", None), RECORD_ALIGNMENT))
    metadata.append(("les.version", ("u32", None), FORMAT_VERSION))
    metadata.append(("les.source_alignment", ("u32", None), source.alignment_bytes))
    fused = [int(t.name.split(".")[1]) for t in source.tensors if t.name.endswith("ffn_gate_up_exps.weight")]
    metadata.append(("les.fused_layers", ("array", "u32"), fused))
    layout = FileLayout(metadata, layers, trunk)
    at = 0
    for tensor in trunk:
        layout.tensors.append(TensorEntry(tensor.name, qtype_info(tensor.type)[0], tensor.shape, at, tensor.size_bytes))
        at = align_up(at + tensor.size_bytes, RECORD_ALIGNMENT)
    for layer in layers:
        size = layer.record_bytes * layer.n_expert
        entry = TensorEntry(f"blk.{layer.layer}.experts", qtype_info("I8")[0], (layer.record_bytes, layer.n_expert), at, size)
        layout.tensors.append(entry)
        at = align_up(at + size, RECORD_ALIGNMENT)
    layout.data_bytes = at
    return layout
