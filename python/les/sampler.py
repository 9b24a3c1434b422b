"""From logits to a token: penalties, biases, temperature, truncation, choice. Numpy only; knows no text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt

from les.errors import InternalError, InvalidArgumentError

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen. temperature 0 takes the most likely one; the truncations then change nothing.

    Raises InvalidArgumentError, naming parameter, value and range, when made with values that make no sense.
    """

    temperature: float = 0.8
    top_k: int = 40  # 0: all
    top_p: float = 0.95  # 1: all
    min_p: float = 0.05  # 0: all
    repeat_penalty: float = 1.0  # 1: none
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64  # tokens the penalties look back on; -1: all
    seed: int | None = None  # None: another text each time
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # -inf forbids a token

    def __post_init__(self) -> None:
        ranges: list[tuple[str, float, float]] = [
            ("temperature", 0, math.inf),
            ("top_k", 0, math.inf),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("repeat_penalty", 1e-6, math.inf),
            ("presence_penalty", -100, 100),
            ("frequency_penalty", -100, 100),
            ("penalty_last_n", -1, math.inf),
        ]
        for name, low, high in ranges:
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or not low <= value <= high:
                upper = "" if high == math.inf else f" to {high:g}"
                raise InvalidArgumentError(f"{name} is {value!r}; expected {low:g}{upper or ' or more'}")
        for name in ("top_k", "penalty_last_n"):
            if int(getattr(self, name)) != getattr(self, name):
                raise InvalidArgumentError(f"{name} is {getattr(self, name)!r}; expected a whole number")
        if self.seed is not None and (not _is_int(self.seed) or not 0 <= self.seed < 1 << 64):
            raise InvalidArgumentError(f"seed is {self.seed!r}; expected a whole number from 0 to 2^64 - 1")
        for token, bias in self.logit_bias.items():
            if not _is_int(token) or token < 0 or not isinstance(bias, Real) or math.isnan(bias) or bias == math.inf:
                raise InvalidArgumentError(f"logit_bias has {token!r}: {bias!r}; expected token ids with numbers")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


def _is_int(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def adjusted_logits(logits: Logits, params: SamplingParams, history: Sequence[int]) -> Logits:
    """logits [n_vocab] after biases and penalties; a copy where anything changes.

    The repeat penalty divides positive and multiplies negative logits (Keskar et al., CTRL, 2019); presence and
    frequency penalties subtract, as the OpenAI API defines them.
    """
    changes = params.repeat_penalty != 1 or params.presence_penalty or params.frequency_penalty
    if params.logit_bias or changes:
        logits = logits.copy()
    for token, bias in params.logit_bias.items():
        if token >= logits.size:
            raise InvalidArgumentError(f"logit_bias names token {token}; the vocabulary has {logits.size}")
        logits[token] += bias
    if changes and params.penalty_last_n != 0:
        recent = history if params.penalty_last_n < 0 else history[-params.penalty_last_n :]
        ids, counts = np.unique(np.asarray(recent, dtype=np.int64), return_counts=True)
        seen = logits[ids]
        seen = np.where(seen > 0, seen / params.repeat_penalty, seen * params.repeat_penalty)
        logits[ids] = seen - params.presence_penalty - params.frequency_penalty * counts
    return logits


def _largest(logits: Logits, k: int) -> npt.NDArray[np.int64]:
    """Ids of the k largest, largest first; of equal ones the lower id first."""
    ids = (
        np.sort(np.argpartition(logits, logits.size - k)[logits.size - k :])
        if k < logits.size
        else np.arange(logits.size)
    )
    order: npt.NDArray[np.int64] = ids[np.argsort(-logits[ids], kind="stable")]
    return order


def _pool(logits: Logits, params: SamplingParams) -> tuple[npt.NDArray[np.int64], float]:
    """Ids that hold all that truncation may keep, largest first (in order of ids where nothing is cut), and the sum of
    exp(logit - largest) over all tokens that top_k leaves. Sorts as few of them as it can."""
    top = logits.max()
    if 0 < params.top_k < logits.size:
        ids = _largest(logits, int(params.top_k))
        return ids, float(np.exp(logits[ids] - top).sum(dtype=np.float64))
    weights = np.exp(logits - top)
    total = float(weights.sum(dtype=np.float64))
    if params.min_p > 0:
        likely = np.flatnonzero(weights >= np.float32(params.min_p))
        return likely[np.argsort(-logits[likely], kind="stable")], total
    if params.top_p >= 1:
        return np.arange(logits.size), total
    k = min(256, logits.size)
    while True:
        ids = _largest(logits, k)
        # The rest may differ in the last bits between sums: a little more than asked costs nothing.
        if k == logits.size or weights[ids].sum(dtype=np.float64) > params.top_p * total * (1 + 1e-6):
            return ids, total
        k = min(k * 16, logits.size)


def candidates(logits: Logits, params: SamplingParams) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The tokens that may be chosen and their probabilities: top_k, then top_p, then min_p, on the distribution at
    temperature 1, then the temperature. Most likely first, except where nothing is cut: there in order of ids."""
    ids, total = _pool(logits, params)
    values = logits[ids].astype(np.float64)
    highest = values.max()
    if params.top_p < 1 or params.min_p > 0:
        likelihood = np.exp(values - highest)
        keep = len(ids)
        if params.top_p < 1:
            keep = int(np.searchsorted(np.cumsum(likelihood), params.top_p * total)) + 1
        if params.min_p > 0:
            keep = min(keep, int(np.count_nonzero(likelihood >= params.min_p)))
        keep = max(1, min(keep, len(ids)))
        ids, values = ids[:keep], values[:keep]
    weights = np.exp((values - highest) / params.temperature)
    return ids, weights / weights.sum()


class Sampler:
    """Chooses tokens; the same seed and the same logits give the same choices. One text, one thread."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.rng = np.random.default_rng(params.seed)

    def choose(self, logits: Logits, history: Sequence[int] = ()) -> int:
        """The next token for logits [n_vocab], after the tokens in history."""
        logits = self._checked(logits, history)
        if self.params.is_greedy:
            return int(np.argmax(logits))
        ids, probabilities = candidates(logits, self.params)
        return int(
            ids[np.searchsorted(np.cumsum(probabilities), self.rng.random(), side="right").clip(max=len(ids) - 1)]
        )

    def distribution(
        self, logits: Logits, history: Sequence[int] = ()
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The tokens that choose may give and their probabilities, after the tokens in history."""
        logits = self._checked(logits, history)
        if self.params.is_greedy:
            return np.array([np.argmax(logits)], np.int64), np.ones(1)
        return candidates(logits, self.params)

    def _checked(self, logits: Logits, history: Sequence[int]) -> Logits:
        logits = adjusted_logits(logits, self.params, history)
        best = int(np.argmax(logits))  # a NaN counts as the largest
        if not np.isfinite(logits[best]):
            if np.isneginf(logits[best]):
                raise InvalidArgumentError("logit_bias forbids every token")
            raise InternalError(f"the model's score of token {best} is {logits[best]}; a finite number was expected")
        return logits


def log_sum(logits: Logits) -> float:
    """log of the sum of exp(logits [n_vocab]): a logit minus this is its log probability."""
    top = logits.max()
    return float(top) + math.log(float(np.exp(logits - top).sum(dtype=np.float64)))


def top_log_probabilities(logits: Logits, n: int) -> dict[int, float]:
    """The n likeliest tokens' log probabilities, likeliest first."""
    if n == 0:
        return {}
    norm = log_sum(logits)
    return {int(i): float(logits[i]) - norm for i in _largest(logits, min(n, logits.size))}
