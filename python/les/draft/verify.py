"""Lossless acceptance: which of a draft's tokens the text takes, and which token comes after them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from les.draft.base import Distribution, Draft
from les.sampler import Logits, Sampler


def _probability(distribution: Distribution, token: int) -> float:
    ids, probabilities = distribution
    return float(probabilities[ids == token].sum())


def _draw(rng: np.random.Generator, distribution: Distribution) -> int:
    ids, weights = distribution
    sums = np.cumsum(weights)
    at = np.searchsorted(sums, rng.random() * sums[-1], side="right")
    return int(ids[min(int(at), len(ids) - 1)])


def _residual(target: Distribution, draft: Distribution) -> Distribution:
    """max(0, target - draft), not normalised; ids of target."""
    ids, probabilities = target
    left = probabilities.copy()
    order = np.argsort(ids)
    at = np.searchsorted(ids[order], draft[0]).clip(max=len(ids) - 1)
    is_shared = ids[order][at] == draft[0]
    np.subtract.at(left, order[at[is_shared]], draft[1][is_shared])
    return ids, np.maximum(left, 0)


def _accept_drawn(
    sampler: Sampler, logits: Logits, history: Sequence[int], token: int, drawn_from: Distribution
) -> int:
    """Speculative sampling (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023)."""
    target = sampler.distribution(logits, history)
    p, q = _probability(target, token), _probability(drawn_from, token)
    if q > 0 and sampler.rng.random() * q < p:
        return token
    residual = _residual(target, drawn_from)
    # Rounding may leave nothing where both distributions are equal; the target's own is then right.
    return _draw(sampler.rng, residual if residual[1].sum() > 0 else target)


def accept(sampler: Sampler, logits: npt.NDArray[np.float32], history: Sequence[int], draft: Draft) -> list[int]:
    """The tokens that a verify pass adds to the text: the accepted ones and one more, at least one in all.

    logits [len(draft.tokens) + 1, n_vocab]: after the last token of history, and after each drafted one.

    Where the draft is no draw, a token is accepted when the sampler chooses it: its probability is the model's own,
    which is what speculative sampling comes to for such drafts, and the same seed gives the same text as without a
    draft. Where it is a draw, acceptance and residual make up for the drafter's distribution.
    """
    text = list(history)
    n = len(history)
    for i, token in enumerate(draft.tokens):
        if draft.distributions is None or sampler.params.is_greedy:
            chosen = sampler.choose(logits[i], text)
        else:
            chosen = _accept_drawn(sampler, logits[i], text, token, draft.distributions[i])
        text.append(chosen)
        if chosen != token:
            return text[n:]
    text.append(sampler.choose(logits[len(draft.tokens)], text))
    return text[n:]
