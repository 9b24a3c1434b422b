"""Text from a session, in three levels: tokens (generate_steps), pieces of text (TextStream), one result (its .result).

Levels above know what those below do not: the first knows no text, the second no files, and everything that talks to a
person or a network is a user of the second.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from les._core import Detokenizer, Tokenizer
from les.draft import Drafter, DraftStats, WidthChooser, speculative_steps
from les.errors import CancelledError, InvalidArgumentError, LesError
from les.sampler import Sampler, SamplingParams, log_sum, top_log_probabilities


class TokenSession(Protocol):
    """What generating needs of a session."""

    @property
    def tokens(self) -> list[int]: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def is_closed(self) -> bool: ...
    def eval(self, tokens: Sequence[int], all_logits: bool = False) -> npt.NDArray[np.float32]: ...
    def sync(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]: ...


class Turns:
    """Lets one text at a time be written in a session: other threads wait, a thread is told of its own open stream.

    A turn may end in another thread than it began in, as where a server iterates in a pool of threads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: int | None = None  # the thread that began the text
        self._is_shut = False

    def begin(self) -> None:
        """Waits for the turn. Raises InvalidArgumentError after shut, and where waiting would be for oneself."""
        with self._changed:
            if self._owner == threading.get_ident():
                raise InvalidArgumentError(
                    "another stream of this session is still open: close it, or use a session of its own"
                )
            while self._owner is not None and not self._is_shut:
                self._changed.wait()
            if self._is_shut:
                raise InvalidArgumentError("the session is closed")
            self._owner = threading.get_ident()

    def end(self) -> None:
        with self._changed:
            self._owner = None
            self._changed.notify()

    def shut(self) -> None:
        """No more turns; those who wait are told."""
        with self._changed:
            self._is_shut = True
            self._changed.notify_all()


def count_shared(held: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens a session that holds `held` need not compute; the last is always computed, for its logits."""
    limit = min(len(held), len(tokens) - 1)
    n = 0
    while n < limit and held[n] == tokens[n]:
        n += 1
    return n


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
class Speculation:
    """Who drafts, and how much. chooser keeps what was learned about widths from one text to the next."""

    drafter: Drafter
    draft_max: int = 8
    is_fixed: bool = False
    chooser: WidthChooser | None = None


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

    n_tokens: int = 0  # computed: prompt and reply
    total_s: float = 0.0

    @property
    def hit_rate(self) -> float:
        total = self.hits + self.misses + self.late
        return self.hits / total if total else 1.0

    @property
    def flash_bytes_per_token(self) -> float:
        return self.flash_bytes / self.n_tokens if self.n_tokens else 0.0

    @property
    def stall_fraction(self) -> float:
        """Part of the time in which nothing could be computed for want of an expert."""
        return self.stall_s / self.total_s if self.total_s > 0 else 0.0


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
    draft: DraftStats | None = None  # what speculation did, where a drafter was given

    @property
    def prompt_tokens(self) -> int:
        return self.timings.prompt_tokens

    @property
    def completion_tokens(self) -> int:
        return self.timings.completion_tokens

    def __str__(self) -> str:
        return self.text


def generate_steps(
    session: TokenSession,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    logprobs: int | None = None,
    speculation: Speculation | None = None,
    context: int = 0,
    draft_stats: DraftStats | None = None,
) -> Iterator[Step]:
    """Tokens without end. The prompt is brought into the session (what is there already is not computed again), then
    each yielded token is fed when the next one is asked for. logprobs: how many alternatives to report. With a drafter,
    tokens may be fed early, within context."""
    if speculation is None:
        steps = _plain_steps(session, prompt, params)
    else:
        s = speculation
        steps = speculative_steps(
            session,
            prompt,
            params,
            s.drafter,
            draft_max=s.draft_max,
            context=context,
            is_fixed=s.is_fixed,
            stats=draft_stats,
            chooser=s.chooser,
        )
    with contextlib.closing(steps):  # type: ignore[type-var]
        for token, logits in steps:
            yield Step(token, _logprob(logits, token, logprobs) if logprobs is not None else None)


def _plain_steps(
    session: TokenSession, prompt: Sequence[int], params: SamplingParams
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    sampler = Sampler(params)
    history = list(prompt)
    logits = session.sync(prompt)[-1]
    while True:
        token = sampler.choose(logits, history)
        yield token, logits
        history.append(token)
        logits = session.eval([token])[-1]


def _logprob(logits: npt.NDArray[np.float32], token: int, n_top: int) -> TokenLogprob:
    return TokenLogprob(token, float(logits[token]) - log_sum(logits), top_log_probabilities(logits, n_top))


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
        safe, self.held = self.held[: len(self.held) - longest], self.held[len(self.held) - longest :]
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
    used at once. Iterate once, one thread at a time. The session belongs to the stream from its first chunk on.
    """

    def __init__(
        self,
        session: TokenSession,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        params: SamplingParams,
        rules: StopRules,
        *,
        context: int,
        stats: Callable[[], dict[str, Any]],
        logprobs: int | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        if not prompt:
            raise InvalidArgumentError("the prompt is empty and the model has no BOS token to begin with")
        if len(prompt) > context:
            raise InvalidArgumentError(
                f"the prompt has {len(prompt)} tokens; the context holds {context}: "
                f"load the model with context={len(prompt)} or more"
            )
        self._tokenizer, self._rules = tokenizer, rules
        self._prompt, self._context, self._stats = list(prompt), context, stats
        self._session, self._params, self._n_logprobs = session, params, logprobs
        self._speculation, self._draft_stats = speculation, DraftStats() if speculation else None
        self._tokens: list[int] = []
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._finish_reason: str = "cancelled"
        self._stop_reason: str | int | None = None
        self._result: GenerationResult | None = None
        self._chunks: Generator[Chunk, None, None] = self._run()

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

    def _run(self) -> Generator[Chunk, None, None]:
        session = self._session
        session.turns.begin()
        started = time.perf_counter()
        first_s = [0.0, 0.0]
        before: dict[str, Any] = {}
        n_kept = 0
        try:
            before = self._stats()
            n_kept = count_shared(session.tokens, self._prompt)
            yield from self._texts(started, first_s)
        except CancelledError:
            self._finish_reason = "cancelled"
        except LesError:
            if not session.is_closed:  # closed by another thread: a text that ends early, not a fault
                raise
            self._finish_reason = "cancelled"
        finally:
            session.turns.end()
            self._result = self._make_result(before, time.perf_counter() - started, first_s, n_kept)

    def _texts(self, started: float, first_s: list[float]) -> Iterator[Chunk]:
        rules, tokenizer = self._rules, self._tokenizer
        room = self._context - len(self._prompt)
        limit = room if rules.max_tokens < 0 else min(rules.max_tokens, room)
        detokenizer, stops = Detokenizer(tokenizer), StopStrings(rules.stop)
        if limit <= 0:
            self._session.sync(self._prompt)
            first_s[0] = first_s[1] = time.perf_counter() - started
            self._finish_reason = "length"
            return
        steps = generate_steps(
            self._session,
            self._prompt,
            self._params,
            logprobs=self._n_logprobs,
            context=self._context,
            speculation=self._speculation,
            draft_stats=self._draft_stats,
        )
        with contextlib.closing(steps):  # type: ignore[type-var]
            for step in steps:
                if first_s[0] == 0:
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

    def _make_result(
        self, before: dict[str, Any], total_s: float, first_s: list[float], n_kept: int
    ) -> GenerationResult:
        try:
            after = self._stats()
        except LesError:  # the model was closed meanwhile
            after = before

        def grown(name: str) -> int:
            return int(after.get(name, 0)) - int(before.get(name, 0))

        n_prompt, n_text = len(self._prompt), len(self._tokens)
        has_prefilled = n_text > 0 or first_s[0] > 0 or self._finish_reason != "cancelled"
        n_prefilled = n_prompt - n_kept if has_prefilled else 0
        timings = Timings(n_prompt, n_prefilled, n_text, first_s[0], max(0.0, first_s[1] - first_s[0]))
        stats = StreamingStats(
            grown("hit"),
            grown("miss"),
            grown("late"),
            grown("flash_bytes"),
            grown("stall_ns") / 1e9,
            grown("useful_bytes"),
            grown("wasted_bytes"),
            int(after.get("peak_bytes", 0)),
            n_prefilled + max(0, n_text - 1),
            total_s,
        )
        return GenerationResult(
            "".join(self._text),
            list(self._tokens),
            self._finish_reason,
            self._stop_reason,
            timings,
            stats,
            self._logprobs if self._n_logprobs is not None else None,
            self._draft_stats,
        )
