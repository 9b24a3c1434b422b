"""What a drafter is: the seam between those who guess tokens and those who verify them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from les.sampler import SamplingParams

Distribution = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]  # token ids and their probabilities


@dataclass(frozen=True)
class Draft:
    """Guessed tokens, first to last.

    distributions: for each token the distribution it was drawn from; None where the guess was no draw (the likeliest
    token, a look-up). confidences: for each token the probability, between 0 and 1, that it is accepted if those before
    it were; None where the drafter does not know.
    """

    tokens: list[int]
    distributions: list[Distribution] | None = None
    confidences: list[float] | None = None

    def shortened(self, n: int) -> Draft:
        """The first n tokens."""
        return Draft(
            self.tokens[:n], self.distributions and self.distributions[:n], self.confidences and self.confidences[:n]
        )


@runtime_checkable
class Drafter(Protocol):
    """Guesses what the model will write. One text at a time.

    begin is called before the prompt is computed in the session, end when the text is over, however it ends.
    propose gets all tokens of the text so far, of which the session holds all but the last, and gives at most k more;
    fewer or none are fine. observe tells how many of the last draft's tokens were accepted, out of n_verified.
    """

    @property
    def name(self) -> str: ...
    @property
    def block(self) -> int:
        """Most tokens that one proposal can have."""
        ...

    def begin(self, session: Any, params: SamplingParams) -> None: ...
    def propose(self, tokens: Sequence[int], k: int) -> Draft: ...
    def observe(self, n_verified: int, n_accepted: int) -> None: ...
    def end(self) -> None: ...
