"""DSpark and DFlash heads: draft models that read the target's inner state, run by the engine beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from les import _core
from les.draft.base import Draft
from les.errors import InvalidArgumentError
from les.sampler import SamplingParams


class DsparkDrafter:
    """A head opened in the target's engine. It guesses its likeliest tokens, with confidences if it can."""

    def __init__(self, core: _core.Drafter, name: str) -> None:
        self._core, self.name, self.block = core, name, core.block
        self._session: Any = None

    def begin(self, session: Any, params: SamplingParams) -> None:
        """Lets the head see what the session computes; what it has not seen is computed again."""
        session.attach_drafter(self._core)
        self._session = session

    def propose(self, tokens: Sequence[int], k: int) -> Draft:
        if self._session is None:
            raise InvalidArgumentError("the drafter was asked before it began")
        drafted = self._session.draft(int(tokens[-1]), min(k, self.block))
        return Draft(drafted["tokens"], None, drafted["confidences"])

    def observe(self, n_verified: int, n_accepted: int) -> None:
        """The head's context rows follow the session by themselves."""

    def end(self) -> None:
        self._session = None
