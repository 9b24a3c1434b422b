"""Lookahead Expert Scheduling: Mixture-of-Experts language models larger than memory, streamed from flash."""

from __future__ import annotations

try:
    from les._core import __version__
except ImportError as error:
    error.add_note("The native part of les is missing: was the package built? `pip install .` builds it.") if hasattr(
        error, "add_note"
    ) else None
    raise

from les._core import Tokenizer
from les.engine import Model, generate, load, plan
from les.errors import (
    BudgetError,
    CancelledError,
    CorruptFileError,
    DownloadError,
    InternalError,
    InvalidArgumentError,
    LesError,
    NotFoundError,
    OutOfMemoryError,
    ReadError,
    UnsupportedError,
)
from les.generate import Chunk, GenerationResult, StreamingStats, TextStream, Timings, TokenLogprob
from les.sampler import SamplingParams
from les.session import Session

__all__ = [
    "BudgetError",
    "CancelledError",
    "Chunk",
    "CorruptFileError",
    "DownloadError",
    "GenerationResult",
    "InternalError",
    "InvalidArgumentError",
    "LesError",
    "Model",
    "NotFoundError",
    "OutOfMemoryError",
    "ReadError",
    "SamplingParams",
    "Session",
    "StreamingStats",
    "TextStream",
    "Timings",
    "TokenLogprob",
    "Tokenizer",
    "UnsupportedError",
    "__version__",
    "generate",
    "load",
    "plan",
]
