"""Perplexity of a text, and KL divergence and agreement of two models on the same tokens."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from les._core import Tokenizer
from les.engine import Model
from les.errors import InvalidArgumentError, NotFoundError, ReadError
from les.eval.statistics import Estimate, grouped_mean

Floats = npt.NDArray[np.float32]
Windows = list[list[int]]
Progress = Callable[[int, int], None]
ROWS = 64  # of logits worked on at once


@dataclass(frozen=True)
class Perplexity:
    """n_tokens: scored. nats: mean negative log-likelihood of a token; perplexity: its exponential."""

    n_tokens: int
    nats: Estimate
    perplexity: Estimate

    def as_json(self) -> dict[str, Any]:
        return {"n_tokens": self.n_tokens, "nats": self.nats.as_json(), "perplexity": self.perplexity.as_json()}


@dataclass(frozen=True)
class Comparison:
    """Another model against a base, at every position of the same windows.

    kl: KL(base || other) in nats a token; kl_median, kl_p99, kl_max over tokens. top1: share of positions at which both
    think the same token likeliest. ratio: perplexity of other over that of base.
    """

    n_tokens: int
    kl: Estimate
    kl_median: float
    kl_p99: float
    kl_max: float
    top1: Estimate
    base: Perplexity
    other: Perplexity
    ratio: Estimate

    def as_json(self) -> dict[str, Any]:
        return {
            "n_tokens": self.n_tokens,
            "kl": self.kl.as_json(),
            "kl_median": self.kl_median,
            "kl_p99": self.kl_p99,
            "kl_max": self.kl_max,
            "top1": self.top1.as_json(),
            "base": self.base.as_json(),
            "other": self.other.as_json(),
            "perplexity_ratio": self.ratio.as_json(),
        }


def read_texts(paths: Sequence[str | Path]) -> list[str]:
    """The texts of files. Raises NotFoundError, ReadError or InvalidArgumentError (no UTF-8, empty)."""
    texts = []
    for path in paths:
        try:
            text = Path(path).read_text("utf-8")
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such file") from error
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"{path}: no UTF-8 text: byte {error.start}") from error
        except OSError as error:
            raise ReadError(f"{path}: {error.strerror or error}") from error
        if not text.strip():
            raise InvalidArgumentError(f"{path}: is empty")
        texts.append(text)
    return texts


def make_windows(tokenizer: Tokenizer, texts: Sequence[str], window: int = 256, max_tokens: int = 0) -> Windows:
    """Windows of at most window tokens, each beginning with BOS where the model wants one; no window spans two texts.

    Several texts take turns until max_tokens (0: all) are reached, so that none is left out. Tails of less than 16
    tokens are dropped, unless there is nothing else. Raises InvalidArgumentError when there is nothing to score.
    """
    if window < 2:
        raise InvalidArgumentError(f"window is {window}; expected 2 or more")
    begin = [tokenizer.bos] if tokenizer.adds_bos and tokenizer.bos is not None else []
    size = window - len(begin)
    of_text: list[Windows] = []
    for text in texts:
        ids = tokenizer.encode(text)
        pieces = [ids[i : i + size] for i in range(0, len(ids), size)]
        if len(pieces) > 1 and len(pieces[-1]) < 16:
            pieces.pop()
        of_text.append([begin + piece for piece in pieces])
    windows: Windows = []
    n_tokens = 0
    for turn in range(max((len(w) for w in of_text), default=0)):
        for pieces in of_text:
            if turn < len(pieces) and (max_tokens <= 0 or n_tokens < max_tokens):
                piece = pieces[turn] if max_tokens <= 0 else pieces[turn][: max(2, max_tokens - n_tokens)]
                if len(piece) >= 2:
                    windows.append(piece)
                    n_tokens += len(piece)
    if not windows:
        raise InvalidArgumentError("the text gives no two tokens in a row to score")
    return windows


def logits_of(model: Model, windows: Windows, progress: Progress | None = None) -> Iterator[Floats]:
    """Logits [n, n_vocab] at every position of each window in turn."""
    longest = max(map(len, windows))
    if longest > model.context:
        raise InvalidArgumentError(f"windows of {longest} tokens do not fit into a context of {model.context}")
    total, done = sum(map(len, windows)), 0
    with model.session() as session:
        for window in windows:
            session.rewind(0)
            yield session.eval(window, all_logits=True)
            done += len(window)
            if progress:
                progress(done, total)


def log_softmax(logits: Floats) -> Floats:
    """Of each row; float32, normaliser summed in double."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    normaliser = np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64))
    return np.asarray(shifted - normaliser.astype(np.float32))


def _nats(logits: Floats, window: list[int]) -> npt.NDArray[np.float64]:
    """Negative log-likelihoods of the tokens behind the first."""
    parts = []
    for at in range(0, len(window) - 1, ROWS):
        rows = min(ROWS, len(window) - 1 - at)
        target = np.asarray(window[at + 1 : at + 1 + rows])
        parts.append(-log_softmax(logits[at : at + rows])[np.arange(rows), target].astype(np.float64))
    return np.concatenate(parts)


def _summed_up(groups: Sequence[npt.NDArray[np.float64]]) -> Perplexity:
    nats = grouped_mean(groups)
    return Perplexity(
        sum(g.size for g in groups),
        nats,
        Estimate(*(math.exp(min(x, 700.0)) for x in (nats.value, nats.low, nats.high))),
    )


def perplexity(model: Model, windows: Windows, progress: Progress | None = None) -> Perplexity:
    """Every token but a window's first is scored; what stands before it in the window is its context."""
    return _summed_up(
        [_nats(logits, w) for logits, w in zip(logits_of(model, windows, progress), windows, strict=True)]
    )


class Reference:
    """A base model's logits on windows, kept in an unnamed file on disk so that the model may be closed. A context
    manager."""

    def __init__(
        self, model: Model, windows: Windows, progress: Progress | None = None, folder: str | Path | None = None
    ) -> None:
        """folder: where the file goes; default the system's for temporary files. Takes n_tokens x n_vocab x 4 bytes."""
        self.windows = windows
        self.n_vocab = model.n_vocab
        size = sum(map(len, windows)) * self.n_vocab * 4
        where = Path(folder or tempfile.gettempdir())
        free = shutil.disk_usage(where).free
        if free < size:
            raise InvalidArgumentError(
                f"{where}: the base's logits take {size / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; use fewer tokens"
            )
        self._file = tempfile.TemporaryFile(dir=where)  # noqa: SIM115 - closed by close()
        try:
            for logits in logits_of(model, windows, progress):
                self._file.write(logits.tobytes())
        except OSError as error:
            self.close()
            raise ReadError(f"{where}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Floats]:
        self._file.seek(0)
        for window in self.windows:
            size = len(window) * self.n_vocab * 4
            data = self._file.read(size)
            if len(data) != size:
                raise ReadError(f"the base's logits end early: wanted {size} bytes, got {len(data)}")
            yield np.frombuffer(data, np.float32).reshape(len(window), self.n_vocab)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kl_rows(base: Floats, other: Floats) -> npt.NDArray[np.float64]:
    """KL(base || other) of each row of logits, in nats."""

    def piece(at: int) -> npt.NDArray[np.float64]:
        p, q = log_softmax(base[at : at + ROWS]), log_softmax(other[at : at + ROWS])
        return np.asarray((np.exp(p) * (p - q)).sum(axis=1, dtype=np.float64))

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return np.concatenate(list(pool.map(piece, range(0, base.shape[0], ROWS))))


def compare(base: Reference, model: Model, progress: Progress | None = None) -> Comparison:
    """Raises InvalidArgumentError for models of different vocabularies."""
    if model.n_vocab != base.n_vocab:
        raise InvalidArgumentError(f"the models have vocabularies of {base.n_vocab} and {model.n_vocab} tokens")
    kl, top1, nats_base, nats_other = [], [], [], []
    for window, p, q in zip(base.windows, base, logits_of(model, base.windows, progress), strict=True):
        kl.append(kl_rows(p, q))
        top1.append((p.argmax(axis=1) == q.argmax(axis=1)).astype(np.float64))
        nats_base.append(_nats(p, window))
        nats_other.append(_nats(q, window))
    tokens = np.concatenate(kl)
    difference = grouped_mean([b - a for a, b in zip(nats_base, nats_other, strict=True)])
    return Comparison(
        tokens.size,
        grouped_mean(kl),
        float(np.median(tokens)),
        float(np.quantile(tokens, 0.99)),
        float(tokens.max()),
        grouped_mean(top1),
        _summed_up(nats_base),
        _summed_up(nats_other),
        Estimate(*(math.exp(min(x, 700.0)) for x in (difference.value, difference.low, difference.high))),
    )
