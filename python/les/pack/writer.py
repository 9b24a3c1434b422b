"""Packing a GGUF model into a `.les` file and back; checking one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from les._core import ExpertLayer, GgufFile, TensorInfo, qtype_info, xxh3_64
from les.errors import CorruptFileError, InvalidArgumentError, UnsupportedError
from les.pack.files import Progress, ShardReader, Writeback, check_equal, check_target, writing_beside
from les.pack.gguf_writer import TensorEntry, ValueType, align_up, encode_header
from les.pack.layout import (
    RECORD_ALIGNMENT,
    FileLayout,
    LayerLayout,
    check_packable,
    is_record_tensor,
    layer_metadata,
    plan_file,
)
from les.pack.layout import SLICES as SLICE_NAMES


@dataclass(frozen=True)
class PackResult:
    """What was written."""

    path: Path
    source_bytes: int
    packed_bytes: int
    n_records: int
    seconds: float


@dataclass(frozen=True)
class VerifyReport:
    """What was checked. is_checked False: a plain GGUF file, which has no checksums; only its structure was read."""

    path: Path
    is_checked: bool
    n_records: int
    n_tensors: int
    read_bytes: int


class _Meter:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, n_bytes: int) -> None:
        self.done += n_bytes
        if self.progress:
            self.progress(self.done, self.total)


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(align_up(file.tell(), alignment) - file.tell()))


def read_record(reader: ShardReader, layer: ExpertLayer, expert: int, record_bytes: int) -> bytes:
    """One expert as a record: slices at their offsets, zeros between and behind."""
    record = bytearray(record_bytes)
    for file_idx, offset, size, at in layer.extents(expert):
        record[at : at + size] = reader.read(file_idx, offset, size)
    return bytes(record)


def _copy_trunk(file: BinaryIO, reader: ShardReader, tensor: TensorInfo, meter: _Meter, writeback: Writeback) -> int:
    """Copies one tensor; returns the checksum of all of it."""
    parts = []
    for piece in reader.pieces(tensor.file_idx, tensor.offset_bytes, tensor.size_bytes):
        file.write(piece)
        writeback.step()
        parts.append(xxh3_64(piece))
        meter.add(len(piece))
    return parts[0] if len(parts) == 1 else xxh3_64(b"".join(p.to_bytes(8, "little") for p in parts))


def _header(layout: FileLayout, trunk_sums: list[int], record_sums: list[list[int]]) -> bytes:
    metadata = list(layout.metadata)
    metadata.append(("les.trunk.checksums", ("array", "u64"), trunk_sums))
    for layer, sums in zip(layout.layers, record_sums, strict=True):
        metadata += layer_metadata(layer, sums)
    return encode_header(metadata, layout.tensors, RECORD_ALIGNMENT)


def pack(
    source: str | Path, target: str | Path | None = None, *, progress: Progress | None = None, overwrite: bool = False
) -> PackResult:
    """Writes source (a GGUF file, sharded or not) as target (default: beside it, ending in .les).

    Streams: memory stays near two records, whatever the size. The file is written beside and renamed when all of it is
    on disk. progress(done_bytes, total_bytes). Raises InvalidArgumentError for a target that cannot be,
    UnsupportedError for a model without experts or one that is packed already, CorruptFileError and ReadError for a
    bad source.
    """
    gguf = GgufFile(str(source))
    if gguf.is_packed:
        raise UnsupportedError(f"{source}: is packed already")
    if not gguf.expert_layers:
        raise UnsupportedError(f"{source}: has no routed experts, so there is nothing to pack; les runs it as it is")
    check_packable(gguf)
    first = Path(gguf.shards[0][0])
    path = Path(target) if target is not None else first.with_name(first.stem + ".les")
    return write_packed(gguf, plan_file(gguf), path, _copied_records, progress=progress, overwrite=overwrite)


# The records of one layer, in the order of its experts.
RecordSource = Callable[[ShardReader, ExpertLayer, LayerLayout], Iterator[bytes]]


def _copied_records(reader: ShardReader, layer: ExpertLayer, planned: LayerLayout) -> Iterator[bytes]:
    for expert in range(planned.n_expert):
        yield read_record(reader, layer, expert, planned.record_bytes)


def write_packed(
    gguf: GgufFile,
    layout: FileLayout,
    path: Path,
    records: RecordSource,
    *,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> PackResult:
    """Writes a `.les` file with the trunk of gguf and whatever records gives, beside path and then renamed.

    Raises InvalidArgumentError for a target that cannot be, and what records raises.
    """
    started = time.monotonic()
    n_records = sum(layer.n_expert for layer in layout.layers)
    header_bytes = len(_header(layout, [0] * len(layout.trunk), [[0] * layer.n_expert for layer in layout.layers]))
    check_target(path, [p for p, _ in gguf.shards], header_bytes + layout.data_bytes, overwrite)
    total = sum(t.size_bytes for t in layout.trunk) + sum(
        layer.payload_bytes * layer.n_expert for layer in layout.layers
    )
    meter = _Meter(total, progress)
    with ShardReader(gguf.shards) as reader, writing_beside(path) as file:
        file.write(bytes(header_bytes))  # the checksums in it are known at the end
        writeback = Writeback(file)
        trunk_sums = []
        for tensor in layout.trunk:
            trunk_sums.append(_copy_trunk(file, reader, tensor, meter, writeback))
            _pad(file, RECORD_ALIGNMENT)
        record_sums: list[list[int]] = []
        for layer, planned in zip(gguf.expert_layers, layout.layers, strict=True):
            sums = []
            for record in records(reader, layer, planned):
                sums.append(xxh3_64(record))
                file.write(record)
                writeback.step()
                meter.add(planned.payload_bytes)
            record_sums.append(sums)
        file.seek(0)
        file.write(_header(layout, trunk_sums, record_sums))
    source_bytes = sum(size for _, size in gguf.shards)
    return PackResult(path, source_bytes, path.stat().st_size, n_records, time.monotonic() - started)


def _number(gguf: GgufFile, key: str, default: int) -> int:
    value = gguf.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CorruptFileError(f"{gguf.shards[0][0]}: key {key} is no integer")
    return value


def _numbers(gguf: GgufFile, key: str) -> list[int]:
    value = gguf.metadata.get(key, [])
    if not isinstance(value, list) or not all(isinstance(x, int) for x in value):
        raise CorruptFileError(f"{gguf.shards[0][0]}: key {key} is no array of integers")
    return value


def verify(path: str | Path, progress: Progress | None = None) -> VerifyReport:
    """Reads all of a `.les` file and checks every checksum. Raises CorruptFileError naming the layer and expert, or the
    tensor, that does not match."""
    gguf = GgufFile(str(path))
    if not gguf.is_packed:
        return VerifyReport(Path(path), False, 0, len(gguf.tensors), 0)
    trunk = [t for t in gguf.tensors if not is_record_tensor(t.name)]
    expected = _numbers(gguf, "les.trunk.checksums")
    if len(expected) != len(trunk):
        raise CorruptFileError(f"{path}: {len(expected)} trunk checksums for {len(trunk)} tensors")
    meter = _Meter(sum(t.size_bytes for t in gguf.tensors), progress)
    n_records = 0
    with ShardReader(gguf.shards) as reader:
        for tensor, wanted in zip(trunk, expected, strict=True):
            parts = []
            for piece in reader.pieces(tensor.file_idx, tensor.offset_bytes, tensor.size_bytes):
                parts.append(xxh3_64(piece))
                meter.add(len(piece))
            actual = parts[0] if len(parts) == 1 else xxh3_64(b"".join(p.to_bytes(8, "little") for p in parts))
            check_equal(f"{path}: tensor {tensor.name}", actual, wanted)
        for layer in gguf.expert_layers:
            for expert in range(layer.n_expert):
                record = read_record(reader, layer, expert, layer.slot_bytes)
                checksum = layer.checksum(expert)
                if checksum is None:
                    raise CorruptFileError(f"{path}: layer {layer.layer} expert {expert} has no checksum")
                check_equal(f"{path}: layer {layer.layer} expert {expert}", xxh3_64(record), checksum)
                meter.add(len(record))
                n_records += 1
    return VerifyReport(Path(path), True, n_records, len(trunk), meter.done)


def unpack(
    source: str | Path, target: str | Path, *, progress: Progress | None = None, overwrite: bool = False
) -> Path:
    """The inverse of pack: a plain GGUF file with the original tensors, byte for byte, and the original metadata."""
    gguf = GgufFile(str(source))
    if not gguf.is_packed:
        raise InvalidArgumentError(f"{source}: is not packed")
    alignment = _number(gguf, "les.source_alignment", 32)
    if not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise CorruptFileError(
            f"{source}: les.source_alignment is {alignment}; expected a power of two up to {1 << 20}"
        )
    kinds = gguf.metadata_types
    metadata: list[tuple[str, ValueType, Any]] = []
    is_source = True  # les.version ends what came from the source
    for key, value in gguf.metadata.items():
        is_source = is_source and key != "les.version"
        if key == "general.alignment" and is_source:
            metadata.append((key, kinds[key], alignment))
        elif key != "general.alignment" and not key.startswith("les."):
            metadata.append((key, kinds[key], value))
    plan = _unpacked_tensors(gguf, alignment)
    header = encode_header(metadata, [entry for entry, _ in plan], alignment)
    path = Path(target)
    end = max((e.offset_bytes + e.size_bytes for e, _ in plan), default=0)
    check_target(path, [p for p, _ in gguf.shards], len(header) + end, overwrite)
    meter = _Meter(sum(e.size_bytes for e, _ in plan), progress)
    with ShardReader(gguf.shards) as reader, writing_beside(path) as file:
        file.write(header)
        writeback = Writeback(file)
        for _, ranges in plan:
            for file_idx, offset, size in ranges:
                for piece in reader.pieces(file_idx, offset, size):
                    file.write(piece)
                    writeback.step()
                    meter.add(len(piece))
            _pad(file, alignment)
    return path


def _unpacked_tensors(gguf: GgufFile, alignment: int) -> list[tuple[TensorEntry, list[tuple[int, int, int]]]]:
    """Each tensor of the plain file, with the ranges of the packed file that make it up."""
    plan: list[tuple[TensorEntry, list[tuple[int, int, int]]]] = []
    at = 0

    def add(name: str, type_id: int, shape: tuple[int, ...], ranges: list[tuple[int, int, int]]) -> None:
        nonlocal at
        size = sum(r[2] for r in ranges)
        plan.append((TensorEntry(name, type_id, shape, at, size), ranges))
        at = align_up(at + size, alignment)

    for t in gguf.tensors:
        if not is_record_tensor(t.name):
            add(t.name, qtype_info(t.type)[0], t.shape, [(t.file_idx, t.offset_bytes, t.size_bytes)])
    fused = set(_numbers(gguf, "les.fused_layers"))
    for layer in gguf.expert_layers:
        types = {n: layer.slices[n]["type"] for n in SLICE_NAMES if n in layer.slices}
        # One tensor has one type, so halves that were given different types come back as two tensors.
        is_fused = layer.layer in fused and types.get("gate") == types["up"]
        groups = [("gate", "up"), ("down",)] if is_fused else [(n,) for n in types]
        for names in groups:
            slices = [layer.slices[n] for n in names]
            ranges = []
            for expert in range(layer.n_expert):
                file_idx, offset, _, _ = layer.extents(expert)[0]
                ranges += [(file_idx, offset + s["offset_bytes"], s["size_bytes"]) for s in slices]
            shape = (slices[0]["n_in"], sum(s["n_out"] for s in slices), layer.n_expert)
            add(f"blk.{layer.layer}.ffn_{'_'.join(names)}_exps.weight", qtype_info(slices[0]["type"])[0], shape, ranges)
    return plan
