"""Text from a session, in three levels: tokens (generate_steps), pieces of text (stream), one result (collect).

Levels above know what those below do not: the first knows no text, the second no files, and everything that talks to a
person or a network is a user of the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from les._core import Detokenizer, Tokenizer
from les.errors import CancelledError, InvalidArgumentError
from les.sampler import Sampler, SamplingParams, log_probabilities


class TokenSession(Protocol):
    """What generating needs of a session."""

    is_streaming: bool  # a stream over it is open

    @property
    def position(self) -> int: ...
    def eval(self, tokens: Sequence[int], all_logits: bool = False) -> npt.NDArray[np.float32]: ...
    def sync(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class TokenLogprob:
    """A chosen token's log probability, and those of the likeliest others, at temperature 1 before truncation."""

    token: int
    logprob: float
    top: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One generated token."""

    token: int
    logprob: TokenLogprob | None = None


@dataclass(frozen=True)
class StopRules:
    """When a text ends."""

    max_tokens: int = 512  # -1: until the context is full
    stop: tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.max_tokens < -1:
            raise InvalidArgumentError(f"max_tokens is {self.max_tokens}; expected 0 or more, or -1 for no limit")
        if any(not isinstance(s, str) or not s for s in self.stop):
            raise InvalidArgumentError("stop has an empty string or something that is no string")


@dataclass(frozen=True)
class Timings:
    """Seconds and speeds of one generation."""

    prompt_tokens: int  # in the prompt
    prefilled_tokens: int  # of those, computed now: the rest was still in the session
    completion_tokens: int
    ttft_s: float  # until the first token
    decode_s: float

    @property
    def prefill_tok_s(self) -> float:
        return self.prefilled_tokens / self.ttft_s if self.ttft_s > 0 else 0.0

    @property
    def decode_tok_s(self) -> float:
        return (self.completion_tokens - 1) / self.decode_s if self.decode_s > 0 and self.completion_tokens > 1 else 0.0


@dataclass(frozen=True)
class StreamingStats:
    """What streaming the experts cost during one generation."""

    hits: int
    misses: int
    late: int  # read ahead, but not in time
    flash_bytes: int
    stall_s: float
    useful_bytes: int
    wasted_bytes: int
    peak_bytes: int  # of the process so far

    @property
    def hit_rate(self) -> float:
        total = self.hits + self.misses + self.late
        return self.hits / total if total else 1.0


@dataclass(frozen=True)
class GenerationResult:
    """A finished text. finish_reason: "stop" (an end token or a stop rule), "length" (max_tokens or the context), or
    "cancelled"."""

    text: str
    tokens: list[int]
    finish_reason: str
    stop_reason: str | int | None  # the stop string or token that ended it
    timings: Timings
    stats: StreamingStats
    logprobs: list[TokenLogprob] | None = None

    def __str__(self) -> str:
        return self.text


def generate_steps(session: TokenSession, prompt: Sequence[int], params: SamplingParams, *, logprobs: int | None = None,
                   on_prefill: Callable[[], None] | None = None) -> Iterator[Step]:
    """Tokens without end. The prompt is brought into the session (what is there already is not computed again), then
    each yielded token is fed when the next one is asked for. logprobs: how many alternatives to report."""
    sampler = Sampler(params)
    history = list(prompt)
    logits = session.sync(prompt)[-1]
    if on_prefill:
        on_prefill()
    while True:
        token = sampler.choose(logits, history)
        yield Step(token, _logprob(logits, token, logprobs) if logprobs is not None else None)
        history.append(token)
        logits = session.eval([token])[-1]


def _logprob(logits: npt.NDArray[np.float32], token: int, n_top: int) -> TokenLogprob:
    values = log_probabilities(logits)
    top = np.argsort(-values, kind="stable")[:n_top]
    return TokenLogprob(token, float(values[token]), {int(i): float(values[i]) for i in top})


class StopStrings:
    """Lets text through as soon as no stop string can begin in it any more."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stops)
        self.held = ""
        self.found: str | None = None

    def add(self, text: str) -> str:
        """Text that is now safe to show. After a stop string was found, nothing more."""
        self.held += text
        hits = [(at, s) for s in self.stops if (at := self.held.find(s)) >= 0]
        if hits:
            at, self.found = min(hits)
            safe, self.held = self.held[:at], ""
            return safe
        longest = 0
        for s in self.stops:
            for n in range(min(len(s) - 1, len(self.held)), longest, -1):
                if self.held.endswith(s[:n]):
                    longest = n
                    break
        safe, self.held = self.held[:len(self.held) - longest], self.held[len(self.held) - longest:]
        return safe

    def finish(self) -> str:
        """What was held back for nothing."""
        safe, self.held = self.held, ""
        return safe


@dataclass(frozen=True)
class Chunk:
    """A piece of a text as it grows. text may be empty while a character or a stop string is incomplete."""

    text: str
    token: int | None
    logprob: TokenLogprob | None = None


class TextStream:
    """An iterator of Chunk with the finished result behind it.

    Closing it, an exception in the loop or Ctrl-C ends the text early; the session keeps what was computed and can be
    used at once. Iterate once; one thread.
    """

    def __init__(self, session: TokenSession, tokenizer: Tokenizer, prompt: Sequence[int], params: SamplingParams,
                 rules: StopRules, *, context: int, stats: Callable[[], dict[str, Any]], logprobs: int | None = None,
                 lock: Any = None) -> None:
        if not prompt:
            raise InvalidArgumentError("the prompt is empty and the model has no BOS token to begin with")
        if len(prompt) > context:
            raise InvalidArgumentError(
                f"the prompt has {len(prompt)} tokens; the context holds {context}: load the model with context={len(prompt)} or more")
        self._tokenizer, self._rules = tokenizer, rules
        self._prompt, self._context, self._stats = list(prompt), context, stats
        self._session, self._params, self._n_logprobs, self._lock = session, params, logprobs, lock
        self._tokens: list[int] = []
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._finish_reason: str = "cancelled"
        self._stop_reason: str | int | None = None
        self._result: GenerationResult | None = None
        self._chunks = self._run()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the text where it is."""
        self._chunks.close()

    @property
    def result(self) -> GenerationResult:
        """The finished text; what has not been generated yet is generated now."""
        for _ in self._chunks:
            pass
        if self._result is None:
            raise InvalidArgumentError("the stream was closed before it began")
        return self._result

    def _run(self) -> Iterator[Chunk]:
        if self._lock is not None:
            self._lock.acquire()
        if getattr(self._session, "is_streaming", False):
            if self._lock is not None:
                self._lock.release()
            raise InvalidArgumentError("another stream of this session is still open: close it, or use a session of its own")
        self._session.is_streaming = True
        started = time.perf_counter()
        before = self._stats()
        kept = self._session.position
        first_s = [0.0, 0.0]
        try:
            yield from self._texts(started, first_s)
        except CancelledError:
            self._finish_reason = "cancelled"
        finally:
            self._session.is_streaming = False
            self._result = self._make_result(before, started, first_s, kept)
            if self._lock is not None:
                self._lock.release()

    def _texts(self, started: float, first_s: list[float]) -> Iterator[Chunk]:
        rules, tokenizer = self._rules, self._tokenizer
        room = self._context - len(self._prompt)
        limit = room if rules.max_tokens < 0 else min(rules.max_tokens, room)
        detokenizer, stops = Detokenizer(tokenizer), StopStrings(rules.stop)
        if limit <= 0:
            self._session.sync(self._prompt)
            self._finish_reason = "length"
            return
        for step in generate_steps(self._session, self._prompt, self._params, logprobs=self._n_logprobs):
            if not self._tokens:
                first_s[0] = time.perf_counter() - started
            first_s[1] = time.perf_counter() - started
            token = step.token
            if tokenizer.is_eog(token) or token in rules.stop_tokens:
                self._finish_reason, self._stop_reason = "stop", token
                break
            self._tokens.append(token)
            if step.logprob:
                self._logprobs.append(step.logprob)
            text = stops.add(detokenizer.add(token))
            self._text.append(text)
            yield Chunk(text, token, step.logprob)
            if stops.found is not None:
                self._finish_reason, self._stop_reason = "stop", stops.found
                return
            if len(self._tokens) >= limit:
                self._finish_reason = "length"
                break
        rest = stops.add(detokenizer.finish()) + ("" if stops.found else stops.finish())
        if stops.found is not None:
            self._finish_reason, self._stop_reason = "stop", stops.found
        if rest:
            self._text.append(rest)
            yield Chunk(rest, None)

    def _make_result(self, before: dict[str, Any], started: float, first_s: list[float], kept: int) -> GenerationResult:
        after = self._stats()

        def grown(name: str) -> int:
            return int(after.get(name, 0)) - int(before.get(name, 0))

        prefilled = max(0, self._session.position - kept - max(0, len(self._tokens) - 1))
        timings = Timings(len(self._prompt), min(prefilled, len(self._prompt)), len(self._tokens), first_s[0], max(0.0, first_s[1] - first_s[0]))
        stats = StreamingStats(grown("hit"), grown("miss"), grown("late"), grown("flash_bytes"), grown("stall_ns") / 1e9,
                               grown("useful_bytes"), grown("wasted_bytes"), int(after.get("peak_bytes", 0)))
        return GenerationResult("".join(self._text), list(self._tokens), self._finish_reason, self._stop_reason, timings,
                                stats, self._logprobs if self._n_logprobs is not None else None)
