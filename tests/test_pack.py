"""Packing models of odd names and metadata, packed files with faults, and what a failed run leaves behind."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import les
from les._core import GgufFile
from les.pack import files, inspect, pack, unpack, verify
from les.pack.gguf_writer import TensorEntry, align_up, encode_header
from les.pack.layout import plan_layer

Tensor = tuple[str, tuple[int, ...]]

PLAIN: list[Tensor] = [
    ("blk.0.ffn_gate_exps.weight", (8, 4, 2)),
    ("blk.0.ffn_up_exps.weight", (8, 4, 2)),
    ("blk.0.ffn_down_exps.weight", (4, 8, 2)),
]
TRUNK: Tensor = ("token_embd.weight", (8, 3))


def write_model(
    path: Path, tensors: list[Tensor], keys: list[tuple[str, Any, Any]] | None = None, alignment: int = 32
) -> Path:
    """F32 tensors of seeded random bytes. keys: (name, (type, element), value)."""
    rng = random.Random(path.name)
    entries, body = [], bytearray()
    for name, shape in tensors:
        size = 4 * math.prod(shape)
        entries.append(TensorEntry(name, 0, shape, len(body), size))
        body += rng.randbytes(size)
        body += bytes(align_up(len(body), alignment) - len(body))
    metadata = [("general.architecture", ("string", None), "test"), *(keys or [])]
    path.write_bytes(encode_header(metadata, entries, alignment) + bytes(body))
    return path


def contents(path: Path) -> tuple[dict[str, tuple[tuple[int, ...], str, bytes]], list[tuple[str, Any, Any]]]:
    data, gguf = path.read_bytes(), GgufFile(str(path))
    tensors = {
        t.name: (tuple(t.shape), t.type, data[t.offset_bytes : t.offset_bytes + t.size_bytes]) for t in gguf.tensors
    }
    return tensors, [(k, gguf.metadata_types[k], v) for k, v in gguf.metadata.items()]


def round_trip(source: Path) -> None:
    packed = pack(source, source.with_suffix(".les")).path
    assert verify(packed).is_checked
    back = unpack(packed, source.with_name("back.gguf"))
    assert contents(back) == contents(source)


@pytest.mark.parametrize(
    "name",
    [
        "foo.experts",
        "blk.x.ffn_up_exps.weight",
        "x.y.ffn_gate_up_exps.weight",
        "blk.00.ffn_up_exps.weight",
        "blk.0.ffn_up_exps.bias",
        "blk.0.experts.weight",
    ],
)
def test_tensors_named_almost_like_experts_come_back(name: str, tmp_path: Path) -> None:
    round_trip(write_model(tmp_path / "m.gguf", [TRUNK, *PLAIN, (name, (8, 4))]))


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_a_stated_alignment_comes_back_in_its_place(alignment: int, at: int, tmp_path: Path) -> None:
    keys = [("other", ("u8", None), 1)]
    keys.insert(at, ("general.alignment", ("u32", None), alignment))
    round_trip(write_model(tmp_path / "m.gguf", [TRUNK, *PLAIN], keys, alignment))


def test_every_type_of_metadata_comes_back(tmp_path: Path) -> None:
    bounds = {
        "u8": 2**8 - 1,
        "i8": -(2**7),
        "u16": 2**16 - 1,
        "i16": -(2**15),
        "u32": 2**32 - 1,
        "i32": -(2**31),
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f32": -math.inf,
        "f64": 0.1,
        "bool": True,
        "string": "é\udcff\n",
    }
    keys = [(f"one.{kind}", (kind, None), value) for kind, value in bounds.items()]
    keys += [(f"list.{kind}", ("array", kind), [value, value]) for kind, value in bounds.items()]
    keys += [(f"none.{kind}", ("array", kind), []) for kind in bounds]
    round_trip(write_model(tmp_path / "m.gguf", [TRUNK, *PLAIN], keys))


def test_what_the_format_keeps_for_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(les.UnsupportedError, match=r"les\.trunk\.checksums"):
        pack(write_model(tmp_path / "key.gguf", PLAIN, [("les.trunk.checksums", ("u32", None), 5)]))
    with pytest.raises(les.UnsupportedError, match=r"blk\.3\.experts"):
        pack(write_model(tmp_path / "name.gguf", [*PLAIN, ("blk.3.experts", (4,))]))
    with pytest.raises(les.UnsupportedError, match="no routed experts"):
        pack(write_model(tmp_path / "dense.gguf", [TRUNK]))
    with pytest.raises(les.UnsupportedError, match="one tensor an expert"):
        pack(
            write_model(
                tmp_path / "old.gguf",
                [(f"blk.0.ffn_{n}.{e}.weight", (8, 8)) for n in ("gate", "up", "down") for e in (0, 1)],
            )
        )
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".gguf"] * 4


@pytest.mark.parametrize(
    "key",
    [
        ("les.trunk.checksums", ("u32", None), 3),
        ("les.trunk.checksums", ("array", "string"), ["a"]),
        ("les.trunk.checksums", ("array", "u64"), []),
    ],
)
def test_verify_refuses_keys_of_other_kinds(key: tuple[str, Any, Any], tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.les", [TRUNK], [("les.version", ("u32", None), 1), key])
    with pytest.raises(les.CorruptFileError, match="checksums"):
        verify(path)


@pytest.mark.parametrize(
    "key",
    [
        ("les.source_alignment", ("string", None), "32"),
        ("les.source_alignment", ("u32", None), 0),
        ("les.source_alignment", ("u32", None), 3),
        ("les.source_alignment", ("u64", None), 2**63),
        ("les.fused_layers", ("u32", None), 0),
        ("les.fused_layers", ("array", "string"), ["0"]),
    ],
)
def test_unpack_refuses_keys_of_other_kinds(key: tuple[str, Any, Any], tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.les", [TRUNK], [("les.version", ("u32", None), 1), key])
    with pytest.raises(les.CorruptFileError, match=key[0]):
        unpack(path, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_flipped_byte_is_found_and_named(tmp_path: Path) -> None:
    packed = pack(write_model(tmp_path / "m.gguf", [TRUNK, *PLAIN])).path
    good, gguf = packed.read_bytes(), GgufFile(str(packed))
    ((_, offset, size, _),) = gguf.expert_layers[0].extents(1)
    trunk = next(t for t in gguf.tensors if t.name == TRUNK[0])
    for at, name in [
        (offset, "layer 0 expert 1"),
        (offset + size - 1, "layer 0 expert 1"),
        (trunk.offset_bytes, TRUNK[0]),
    ]:
        packed.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(les.CorruptFileError, match=f"{name}: checksum"):
            verify(packed)
    packed.write_bytes(good[: offset + size - 1])
    with pytest.raises(les.CorruptFileError, match="truncated"):
        verify(packed)


def test_a_failed_run_names_the_file_at_fault_and_the_next_one_works(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m.gguf", [TRUNK, *PLAIN])
    good = source.read_bytes()
    (tmp_path / "m.les.part").write_bytes(b"of a killed run")
    with pytest.raises(les.ReadError, match=r"m\.gguf: wanted") as caught:
        pack(source, progress=lambda done, total: os.truncate(source, 200))
    assert ".part" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]
    source.write_bytes(good)
    assert verify(pack(source).path).n_records == 2


def test_targets_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "m.gguf", [TRUNK, *PLAIN])
    with pytest.raises(les.InvalidArgumentError, match="no such folder"):
        pack(source, tmp_path / "absent" / "m.les")
    (tmp_path / "link.gguf").symlink_to(source)
    with pytest.raises(les.InvalidArgumentError, match="input"):
        pack(source, tmp_path / "link.gguf", overwrite=True)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(les.InvalidArgumentError, match=r"needed, 0\.00 GB free"):
        pack(source)


def test_writing_in_stretches_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "m.gguf", [("token_embd.weight", (64, 512)), *PLAIN])
    whole = pack(source, tmp_path / "whole.les").path.read_bytes()
    monkeypatch.setattr(files, "WRITEBACK_BYTES", 10_000)
    monkeypatch.setattr(files, "PIECE_BYTES", 4096)
    drops: list[tuple[int, int]] = []
    advise = os.posix_fadvise
    monkeypatch.setattr(
        files.os, "posix_fadvise", lambda fd, at, size, how: (drops.append((at, size)), advise(fd, at, size, how))
    )
    packed = pack(source, tmp_path / "pieces.les").path.read_bytes()
    assert len(packed) == len(whole)
    records = next(t for t in GgufFile(str(tmp_path / "whole.les")).tensors if t.name == "blk.0.experts")
    assert packed[records.offset_bytes :] == whole[records.offset_bytes :]
    assert any(size >= 10_000 for _, size in drops)


def test_inspect_counts_every_byte_once(tmp_path: Path) -> None:
    source = write_model(tmp_path / "m.gguf", [TRUNK, *PLAIN, ("foo.experts", (8,))])
    plain, packed = inspect(source), inspect(pack(source).path)
    assert plain.trunk_bytes == packed.trunk_bytes == 4 * (24 + 8)
    assert plain.expert_bytes == 3 * 256 and packed.expert_bytes == 2 * 16384
    assert plain.n_parameters == packed.n_parameters == 24 + 8 + 192


def test_a_layer_may_have_another_type_for_each_slice(tmp_path: Path) -> None:
    tensors = [
        ("blk.0.ffn_gate_exps.weight", (64, 32, 2)),
        ("blk.0.ffn_up_exps.weight", (64, 32, 2)),
        ("blk.0.ffn_down_exps.weight", (32, 64, 2)),
    ]
    layer = GgufFile(str(write_model(tmp_path / "m.gguf", tensors))).expert_layers[0]
    planned = plan_layer(layer, {"gate": "Q8_0", "down": "Q4_0"})
    assert [(s.type, s.size_bytes) for s in planned.slices.values()] == [
        ("Q8_0", 32 * 68),
        ("F32", 32 * 256),
        ("Q4_0", 64 * 18),
    ]
    assert all(s.offset_bytes % 64 == 0 for s in planned.slices.values())
    assert planned.record_bytes == 16384
