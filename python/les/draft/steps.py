"""The loop of speculative decoding: draft, verify in one pass, accept, take back the rest."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from les.draft.base import Draft, Drafter
from les.draft.verify import accept
from les.draft.width import DraftStats, WidthChooser
from les.errors import InvalidArgumentError, LesError
from les.sampler import Sampler, SamplingParams

Clock = Callable[[], float]


def _check(draft: Draft, k: int, n_vocab: int, name: str) -> None:
    n = len(draft.tokens)
    if n > k or any(not 0 <= t < n_vocab for t in draft.tokens):
        raise InvalidArgumentError(
            f"drafter {name}: {n} tokens {draft.tokens}; expected at most {k}, from 0 to {n_vocab - 1}"
        )
    for part in (draft.distributions, draft.confidences):
        if part is not None and len(part) != n:
            raise InvalidArgumentError(f"drafter {name}: {len(part)} distributions or confidences for {n} tokens")


def speculative_steps(
    session: Any,
    prompt: Sequence[int],
    params: SamplingParams,
    drafter: Drafter,
    *,
    draft_max: int,
    context: int,
    is_fixed: bool = False,
    stats: DraftStats | None = None,
    chooser: WidthChooser | None = None,
    clock: Clock = time.perf_counter,
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """Tokens without end, each with the logits [n_vocab] it was chosen from, like plain decoding.

    The text and the session's tokens after each yield are those of plain decoding, but that tokens may be in the
    session early; closing the iterator takes those back. chooser: kept from an earlier text, with what it learned.
    """
    stats = stats if stats is not None else DraftStats()
    stats.drafter = drafter.name
    chooser = chooser or WidthChooser(min(draft_max, drafter.block), is_fixed)
    sampler = Sampler(params)
    text = list(prompt)
    n_yielded = len(prompt)
    drafter.begin(session, params)
    try:
        logits = session.sync(prompt)[-1]
        text.append(sampler.choose(logits, text))
        n_yielded += 1
        yield text[-1], logits
        while True:
            k = min(chooser.wanted(), context - len(text))
            draft, draft_s = Draft([]), 0.0
            if k > 0:
                began = clock()
                draft = drafter.propose(text, k)
                draft_s = clock() - began
                chooser.learn_draft(draft_s)
                _check(draft, k, logits.size, drafter.name)
                draft = draft.shortened(chooser.width(len(draft.tokens), draft.confidences))
            began = clock()
            rows = session.eval([text[-1], *draft.tokens], all_logits=True)
            verify_s = clock() - began
            added = accept(sampler, rows, text, draft)
            n_drafted, n_accepted = len(draft.tokens), len(added) - 1
            text += added
            if n_accepted < n_drafted:
                session.rewind(len(text) - 1)
            chooser.learn(n_drafted, n_accepted, verify_s)
            stats.add(n_drafted, n_accepted, draft_s, verify_s)
            stats.step_ms = chooser.step_ms()
            if n_drafted > 0:
                drafter.observe(n_drafted, n_accepted)
            for i, token in enumerate(added):
                n_yielded += 1
                yield token, rows[i]
    finally:
        # As plain decoding leaves it: all of the text but its last token.
        with contextlib.suppress(LesError):
            if session.position >= n_yielded:
                session.rewind(n_yielded - 1)
        drafter.end()
