"""Model files: packing and unpacking, shards, and every way a file can be broken."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from conftest import shared_or_skip

import les
from les._core import GgufFile, xxh3_64
from les.pack import pack, unpack, verify

MODELS = ["qwen3moe", "gemma4", "nemotron_h_moe", "gpt-oss-mxfp4", "qwen3moe-256-q4_k"]


def tensor_bytes(path: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    return {t.name: data[t.offset_bytes : t.offset_bytes + t.size_bytes] for t in GgufFile(str(path)).tensors}


@pytest.mark.parametrize("name", MODELS)
def test_pack_then_unpack_gives_the_original(name: str, tmp_path: Path) -> None:
    source = shared_or_skip("goldens", name, "model.gguf")
    result = pack(source, tmp_path / "m.les")
    assert verify(result.path).n_records == result.n_records
    packed = GgufFile(str(result.path))
    for layer in packed.expert_layers:
        for expert in range(layer.n_expert):
            ((_, offset, size, _),) = layer.extents(expert)
            assert offset % 16384 == 0 and size % 16384 == 0
    back = unpack(result.path, tmp_path / "m.gguf")
    assert tensor_bytes(back) == tensor_bytes(source)
    assert GgufFile(str(back)).metadata == GgufFile(str(source)).metadata


def test_refusals(golden_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(les.InvalidArgumentError, match="input"):
        pack(golden_gguf, golden_gguf)
    target = pack(golden_gguf, tmp_path / "m.les").path
    with pytest.raises(les.InvalidArgumentError, match="exists"):
        pack(golden_gguf, target)
    with pytest.raises(les.UnsupportedError, match="packed already"):
        pack(target, tmp_path / "n.les")


def test_an_interrupted_pack_leaves_nothing(golden_gguf: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(golden_gguf, tmp_path / "m.les", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_truncation_anywhere_is_a_clear_error(golden_gguf: Path, tmp_path: Path) -> None:
    data = golden_gguf.read_bytes()
    tensors = GgufFile(str(golden_gguf)).tensors
    cuts = {0, 3, 4, 8, 16, 23, 24, 100, 1000, 5000}
    for t in tensors[::3]:
        cuts |= {t.offset_bytes - 1, t.offset_bytes, t.offset_bytes + 1, t.offset_bytes + t.size_bytes - 1}
    broken = tmp_path / "broken.gguf"
    for cut in sorted(cuts):
        if cut >= len(data):
            continue
        broken.write_bytes(data[:cut])
        with pytest.raises(les.LesError, match="broken.gguf"):
            GgufFile(str(broken))


@pytest.mark.parametrize("offset", [8, 16])
@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**40])
def test_counts_that_overflow_are_refused(golden_gguf: Path, tmp_path: Path, offset: int, value: int) -> None:
    data = bytearray(golden_gguf.read_bytes())
    data[offset : offset + 8] = struct.pack("<Q", value)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(data)
    with pytest.raises(les.CorruptFileError, match="items"):
        GgufFile(str(broken))


def write_shards(source: Path, folder: Path, count: int) -> list[Path]:
    """The model in `count` shards, the first with metadata only, as common splitting tools write them."""
    from les.pack.gguf_writer import TensorEntry, align_up, encode_header
    from les._core import qtype_info

    gguf, data = GgufFile(str(source)), source.read_bytes()
    paths = []
    groups = [[], *(gguf.tensors[i :: count - 1] for i in range(count - 1))]
    for i, tensors in enumerate(groups):
        entries, body, at = [], b"", 0
        for t in tensors:
            entries.append(TensorEntry(t.name, qtype_info(t.type)[0], tuple(t.shape), at, t.size_bytes))
            body += data[t.offset_bytes : t.offset_bytes + t.size_bytes]
            body += bytes(align_up(len(body), 32) - len(body))
            at = len(body)
        kinds = gguf.metadata_types
        metadata = [(k, kinds[k], v) for k, v in gguf.metadata.items()] if i == 0 else []
        metadata += [
            ("split.no", ("u16", None), i),
            ("split.count", ("u16", None), count),
            ("split.tensors.count", ("i32", None), len(gguf.tensors)),
        ]
        path = folder / f"m-{i + 1:05d}-of-{count:05d}.gguf"
        path.write_bytes(encode_header(metadata, entries, 32) + body)
        paths.append(path)
    return paths


def test_shards_pack_to_the_same_bytes_and_a_missing_one_is_named(golden_gguf: Path, tmp_path: Path) -> None:
    whole = pack(golden_gguf, tmp_path / "whole.les").path
    folder = tmp_path / "shards"
    folder.mkdir()
    shards = write_shards(golden_gguf, folder, 3)
    for i, opened in enumerate([*shards, folder]):
        packed = pack(opened, tmp_path / f"{i}.les").path
        a, b = tensor_bytes(whole), tensor_bytes(packed)
        assert a == b
    shards[1].unlink()
    with pytest.raises(les.NotFoundError, match="00002-of-00003"):
        GgufFile(str(shards[0]))


def test_checksum_is_xxh3() -> None:
    xxhash = pytest.importorskip("xxhash")
    for n in [*range(300), 1023, 1024, 1025, 5000, 100_000]:
        data = bytes((i * 131 + 7) & 255 for i in range(n))
        assert xxh3_64(data) == xxhash.xxh3_64_intdigest(data)


def test_a_message_that_quotes_bytes_of_no_encoding_is_still_a_typed_error() -> None:
    with pytest.raises(les.NotFoundError, match="nowhere"):
        GgufFile(b"/nowhere/\xff\xfe.gguf")  # type: ignore[arg-type]
