"""Every error that les raises on purpose.

The native engine raises these too: a status code there is a class here.
"""

from __future__ import annotations


class LesError(Exception):
    """Base of all; catching it catches everything les raises on purpose."""


class InvalidArgumentError(LesError, ValueError):
    """The caller's mistake; the message says what is allowed."""


class NotFoundError(LesError, FileNotFoundError):
    """No such file, tensor, key or model name."""


class CorruptFileError(LesError):
    """A file contradicts itself, its size or its checksums."""


class UnsupportedError(LesError):
    """Valid, but not known to this version: a model family, a quant type, a tokenizer."""


class ReadError(LesError, OSError):
    """The operating system refused a read or a write."""


class OutOfMemoryError(LesError, MemoryError):
    """An allocation failed."""


class BudgetError(LesError):
    """The memory budget is below the floor; the message names the floor."""


class CancelledError(LesError):
    """Stopped on request; the session is as it was before the step."""


class InternalError(LesError):
    """A broken invariant: please report it."""


class DownloadError(LesError):
    """A model could not be fetched; the message says what to do."""
