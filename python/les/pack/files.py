"""Reading ranges of files without filling the page cache, and writing beside before renaming."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from les.errors import CorruptFileError, InvalidArgumentError, LesError, ReadError

PIECE_BYTES = 8 << 20
WRITEBACK_BYTES = 256 << 20

Progress = Callable[[int, int], None]


def _drop(fd: int, begin: int, end: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)


class ShardReader:
    """Byte ranges of a model's shards; what was read is dropped from the page cache."""

    def __init__(self, shards: list[tuple[str, int]]) -> None:
        self.files: list[FileIO] = []
        for path, _ in shards:
            try:
                self.files.append(open(path, "rb", buffering=0))  # noqa: SIM115 - closed by close()
            except OSError as error:
                self.close()
                raise ReadError(f"{path}: {error.strerror or error}") from error

    def read(self, file_idx: int, offset: int, size: int) -> bytes:
        """Exactly size bytes, or an error that names file, offset, wanted and got."""
        file = self.files[file_idx]
        parts: list[bytes] = []
        got = 0
        while got < size:
            try:
                piece = os.pread(file.fileno(), min(PIECE_BYTES, size - got), offset + got)
            except OSError as error:
                raise ReadError(
                    f"{file.name}: read of {size - got} bytes at {offset + got}: {error.strerror or error}"
                ) from error
            if not piece:
                raise ReadError(f"{file.name}: wanted {size} bytes at {offset}, got {got}")
            parts.append(piece)
            got += len(piece)
        # From a piece before: a page of the cache that spans two ranges stays until it is wholly within one.
        _drop(file.fileno(), max(0, offset - PIECE_BYTES), offset + size)
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
            _drop(file.fileno(), 0, file.seek(0, os.SEEK_END))
        os.replace(part, target)
    except LesError:
        part.unlink(missing_ok=True)
        raise
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ReadError(f"{part}: {error.strerror or error}") from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


class Writeback:
    """Keeps what is written from filling the page cache: each stretch goes to disk and is dropped."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.done_bytes = file, 0

    def step(self) -> None:
        """To be called after every piece; acts once a stretch is complete."""
        if self.file.tell() - self.done_bytes < WRITEBACK_BYTES:
            return
        self.file.flush()
        os.fsync(self.file.fileno())
        self.done_bytes = self.file.tell()
        _drop(self.file.fileno(), 0, self.done_bytes)


def check_equal(what: str, actual: int, expected: int) -> None:
    """Checksums, in hexadecimal in the message."""
    if actual != expected:
        raise CorruptFileError(f"{what}: checksum is {actual:016x}; expected {expected:016x}")
