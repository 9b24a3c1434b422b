"""Reading ranges of files without filling the page cache, and writing beside before renaming."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from les.errors import CorruptFileError, InvalidArgumentError, ReadError

PIECE_BYTES = 8 << 20

Progress = Callable[[int, int], None]


class ShardReader:
    """Byte ranges of a model's shards; what was read is dropped from the page cache."""

    def __init__(self, shards: list[tuple[str, int]]) -> None:
        self.files = [open(path, "rb", buffering=0) for path, _ in shards]  # noqa: SIM115 - closed by close()

    def read(self, file_idx: int, offset: int, size: int) -> bytes:
        """Exactly size bytes, or an error that names file, offset, wanted and got."""
        file = self.files[file_idx]
        parts: list[bytes] = []
        got = 0
        while got < size:
            piece = os.pread(file.fileno(), min(PIECE_BYTES, size - got), offset + got)
            if not piece:
                raise ReadError(f"{file.name}: wanted {size} bytes at {offset}, got {got}")
            parts.append(piece)
            got += len(piece)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), offset, size, os.POSIX_FADV_DONTNEED)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self, file_idx: int, offset: int, size: int) -> Iterator[bytes]:
        """The same bytes in pieces, for ranges of any size."""
        for at in range(0, size, PIECE_BYTES):
            yield self.read(file_idx, offset + at, min(PIECE_BYTES, size - at))

    def close(self) -> None:
        for file in self.files:
            file.close()

    def __enter__(self) -> ShardReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_target(target: Path, inputs: list[str], size_bytes: int, overwrite: bool) -> None:
    """Refuses to write over an input or, unless told to, anything else, or where there is no room."""
    if any(target.resolve() == Path(path).resolve() for path in inputs):
        raise InvalidArgumentError(f"{target}: is one of the input files; choose another output")
    if target.exists() and not overwrite:
        raise InvalidArgumentError(f"{target}: exists; pass overwrite=True (--force) to replace it")
    folder = target.parent if str(target.parent) else Path(".")
    if not folder.is_dir():
        raise InvalidArgumentError(f"{folder}: no such folder")
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise InvalidArgumentError(f"{folder}: {size_bytes / 1e9:.2f} GB needed, {free / 1e9:.2f} GB free")


@contextmanager
def writing_beside(target: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its name only when all of it is on disk; nothing is left of a failed attempt."""
    part = target.with_name(target.name + ".part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ReadError(f"{part}: {error.strerror or error}") from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def check_equal(what: str, actual: int, expected: int) -> None:
    """Checksums, in hexadecimal in the message."""
    if actual != expected:
        raise CorruptFileError(f"{what}: checksum is {actual:016x}; expected {expected:016x}")
