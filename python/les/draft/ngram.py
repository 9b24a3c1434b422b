"""Drafts by look-up: what followed the last time when the text's last tokens stood in prompt or reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from les.draft.base import Draft
from les.errors import InvalidArgumentError
from les.sampler import SamplingParams


class NgramDrafter:
    """Looks for the longest of the last max_n .. min_n tokens earlier in the text and proposes what followed there."""

    name = "ngram"

    def __init__(self, max_n: int = 4, min_n: int = 2, block: int = 16) -> None:
        if not 1 <= min_n <= max_n:
            raise InvalidArgumentError(f"min_n is {min_n} and max_n {max_n}; expected 1 <= min_n <= max_n")
        self.max_n, self.min_n, self.block = max_n, min_n, block
        self._tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}  # n-gram -> where its latest occurrence that something follows ends

    def begin(self, session: Any, params: SamplingParams) -> None:
        """Nothing to prepare."""

    def observe(self, n_verified: int, n_accepted: int) -> None:
        """Nothing to learn."""

    def end(self) -> None:
        self._tokens, self._ends = [], {}

    def _index(self, tokens: Sequence[int]) -> None:
        n_known = len(self._tokens)
        if list(tokens[:n_known]) != self._tokens:
            self.end()
            n_known = 0
        # The last token ends no n-gram yet: nothing follows it.
        for end in range(max(1, n_known), len(tokens)):
            for n in range(self.min_n, min(self.max_n, end) + 1):
                self._ends[tuple(tokens[end - n : end])] = end
        self._tokens = list(tokens)

    def propose(self, tokens: Sequence[int], k: int) -> Draft:
        self._index(tokens)
        for n in range(min(self.max_n, len(tokens) - 1), self.min_n - 1, -1):
            at = self._ends.get(tuple(tokens[-n:]))
            if at is not None:
                # A match that overlaps the end goes on periodically, as the text did.
                period = len(tokens) - at
                return Draft([int(tokens[at + i % period]) for i in range(k)])
        return Draft([])
