"""What a model file holds, for `les info`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from les._core import GgufFile
from les.pack.layout import is_expert_tensor, is_record_tensor


@dataclass(frozen=True)
class ExpertLayerInfo:
    """Geometry of one layer's experts."""

    layer: int
    n_expert: int
    record_bytes: int
    types: dict[str, str]


@dataclass(frozen=True)
class TensorRow:
    """One line of the tensor table."""

    name: str
    type: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True)
class ModelInfo:
    """A model file's headers, summed up."""

    path: Path
    name: str
    architecture: str
    is_packed: bool
    version: int
    shards: list[tuple[str, int]]
    file_bytes: int
    n_parameters: int
    trunk_bytes: int
    expert_bytes: int
    bytes_by_type: dict[str, int]
    expert_layers: list[ExpertLayerInfo]
    tensors: list[TensorRow]
    metadata: dict[str, Any] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """Plain values; long metadata arrays are cut to their length."""
        d = asdict(self)
        d["path"] = str(self.path)
        d["metadata"] = {
            k: (f"[{len(v)} items]" if isinstance(v, list) and len(v) > 64 else v) for k, v in self.metadata.items()
        }
        return d


def inspect(path: str | Path) -> ModelInfo:
    """Reads headers only. Raises as opening the file does."""
    gguf = GgufFile(str(path))
    by_type: Counter[str] = Counter()
    expert_bytes = n_parameters = 0
    layers = []
    for layer in gguf.expert_layers:
        expert_bytes += layer.slot_bytes * layer.n_expert
        layers.append(
            ExpertLayerInfo(
                layer.layer, layer.n_expert, layer.slot_bytes, {k: s["type"] for k, s in layer.slices.items()}
            )
        )
        for s in layer.slices.values():
            by_type[s["type"]] += s["size_bytes"] * layer.n_expert
            n_parameters += s["n_in"] * s["n_out"] * layer.n_expert
    trunk_bytes = 0
    for t in gguf.tensors:
        if is_record_tensor(t.name) if gguf.is_packed else is_expert_tensor(t.name):
            continue
        trunk_bytes += t.size_bytes
        by_type[t.type] += t.size_bytes
        n_parameters += t.n_elements
    metadata = gguf.metadata
    return ModelInfo(
        path=Path(path),
        name=str(metadata.get("general.name", Path(path).stem)),
        architecture=str(metadata.get("general.architecture", "unknown")),
        is_packed=gguf.is_packed,
        version=gguf.version,
        shards=gguf.shards,
        file_bytes=sum(size for _, size in gguf.shards),
        n_parameters=n_parameters,
        trunk_bytes=trunk_bytes,
        expert_bytes=expert_bytes,
        bytes_by_type=dict(by_type.most_common()),
        expert_layers=layers,
        tensors=[TensorRow(t.name, t.type, tuple(t.shape), t.size_bytes) for t in gguf.tensors],
        metadata=metadata,
    )
