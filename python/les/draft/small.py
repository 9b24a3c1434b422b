"""A small model with the same vocabulary as drafter."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from les.draft.base import Distribution, Draft
from les.errors import InvalidArgumentError
from les.sampler import Sampler, SamplingParams


class ModelDrafter:
    """Lets a small les.Model write ahead, with the text's own sampling settings. The model stays the caller's.

    At temperature above 0 it draws, so that speculative sampling accepts as often as the two distributions overlap.
    """

    block = 16

    def __init__(self, model: Any) -> None:
        self.model = model
        self.name = f"model:{model.path}"
        self._session: Any = None
        self._checked: weakref.ref[Any] | None = None  # the target whose tokens were compared
        self._sampler = Sampler(SamplingParams(0))

    def check_target(self, target: Any) -> None:
        """Raises InvalidArgumentError when the two models do not write the same tokens."""
        if self._checked is not None and self._checked() is target:
            return
        own, other = self.model.tokenizer, target.tokenizer
        if self.model.n_vocab != target.n_vocab or own.n_vocab != other.n_vocab:
            raise InvalidArgumentError(
                f"{self.model.path} has {self.model.n_vocab} tokens and {target.path} {target.n_vocab}: "
                "no drafter for it"
            )
        for token in range(own.n_vocab):
            if own.id_to_token(token) != other.id_to_token(token):
                raise InvalidArgumentError(
                    f"{self.model.path}: token {token} is {own.id_to_token(token)!r}, in {target.path} "
                    f"{other.id_to_token(token)!r}: no drafter for it"
                )
        self._checked = weakref.ref(target)

    def begin(self, session: Any, params: SamplingParams) -> None:
        """Draws with random numbers other than the target's: draft and verdict have to be independent."""
        seed = None if params.seed is None else params.seed ^ 0x5DEECE66D
        settings = {name: getattr(params, name) for name in params.__dataclass_fields__ if name != "seed"}
        self._sampler = Sampler(SamplingParams(**settings, seed=seed))
        if self._session is None:
            self._session = self.model.session()

    def propose(self, tokens: Sequence[int], k: int) -> Draft:
        text = [int(t) for t in tokens]
        drafted: list[int] = []
        distributions: list[Distribution] = []
        k = min(k, self.model.context - len(text))
        if k <= 0:
            return Draft([])
        logits = self._session.sync(text)[-1]
        while True:
            distribution = self._sampler.distribution(logits, text)
            ids, probabilities = distribution
            token = int(ids[0]) if len(ids) == 1 else int(self._sampler.rng.choice(ids, p=probabilities))
            distributions.append(distribution)
            drafted.append(token)
            text.append(token)
            if len(drafted) == k:
                break
            logits = self._session.eval([token])[-1]
        return Draft(drafted, distributions)

    def observe(self, n_verified: int, n_accepted: int) -> None:
        """The next proposal's sync takes back what was rejected."""

    def end(self) -> None:
        """The session stays for the next text of the same beginning."""

    def close(self) -> None:
        """Frees the session; the model stays open."""
        if self._session is not None:
            self._session.close()
            self._session = None
