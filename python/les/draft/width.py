"""How many tokens to draft: the width with the most accepted tokens per measured second; none is a width as well."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

N_TIMES = 9  # a width's time is the median of so many: one slow step is no reason to change
RATE_MEMORY = 24.0  # drafts that a position's acceptance rate remembers
FIRST_RATE = 0.6  # what is thought of drafts before the first
PRIOR_WEIGHT = 4.0  # tries that this opinion, or the position before, counts as
STEP_GROWTH = 0.25  # of a width's time, per token, while only one width was measured
PLAIN_EVERY = 32  # rounds with drafts after which one without measures plain decoding anew
FIRST_PAUSE, LAST_PAUSE = 8, 128  # rounds without a draft before drafting is tried again; doubles while it does not pay


@dataclass
class DraftStats:
    """What speculation did for one text."""

    drafter: str = ""
    n_rounds: int = 0  # passes of the model after the prompt's
    n_drafted: int = 0  # tokens that were verified
    n_accepted: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    widths: dict[int, int] = field(default_factory=dict)  # drafted tokens -> rounds
    tried: list[int] = field(default_factory=list)  # by position in the draft: verified when all before were accepted
    accepted: list[int] = field(default_factory=list)  # of those, accepted
    step_ms: dict[int, float] = field(default_factory=dict)  # drafted tokens -> median time of a verify pass

    @property
    def acceptance(self) -> float:
        """Accepted part of the drafted tokens."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def tokens_per_round(self) -> float:
        return (self.n_accepted + self.n_rounds) / self.n_rounds if self.n_rounds else 0.0

    def add(self, n_drafted: int, n_accepted: int, draft_s: float, verify_s: float) -> None:
        self.n_rounds += 1
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted
        self.draft_s += draft_s
        self.verify_s += verify_s
        self.widths[n_drafted] = self.widths.get(n_drafted, 0) + 1
        while len(self.tried) < n_drafted:
            self.tried.append(0)
            self.accepted.append(0)
        for i in range(min(n_accepted + 1, n_drafted)):
            self.tried[i] += 1
            self.accepted[i] += i < n_accepted

    def as_dict(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "rounds": self.n_rounds,
            "drafted": self.n_drafted,
            "accepted": self.n_accepted,
            "tokens_per_round": self.tokens_per_round,
            "acceptance": self.acceptance,
            "draft_s": self.draft_s,
            "verify_s": self.verify_s,
            "widths": dict(sorted(self.widths.items())),
            "tried_by_position": self.tried,
            "accepted_by_position": self.accepted,
            "step_ms": self.step_ms,
        }


class WidthChooser:
    """Learns what drafts and verify passes cost and how often drafts are right, and chooses by that.

    is_fixed: always draft_max, for tests and comparisons.
    """

    def __init__(self, draft_max: int, is_fixed: bool = False) -> None:
        self.draft_max, self.is_fixed = draft_max, is_fixed
        self._times: dict[int, deque[float]] = {}
        self._draft_times: deque[float] = deque(maxlen=N_TIMES)
        self._rates = [0.0] * draft_max
        self._weights = [0.0] * draft_max
        self._pause, self._paused = FIRST_PAUSE, 0
        self._since_plain, self._is_trial = 0, False

    def step_s(self, k: int) -> float:
        """Time of a verify pass of k drafted tokens: measured, or on the line through the nearest measured widths."""
        known = {w: median(times) for w, times in self._times.items()}
        if k in known:
            return known[k]
        if not known:
            return 1.0 + STEP_GROWTH * k
        widths = sorted(known)
        if len(widths) == 1:
            a = widths[0]
            return known[a] * (1 + STEP_GROWTH * k) / (1 + STEP_GROWTH * a)
        # The two measured widths around k, or the two nearest on one side of it.
        at = min(max(1, sum(w < k for w in widths)), len(widths) - 1)
        a, b = widths[at - 1], widths[at]
        return max(known[a] + (known[b] - known[a]) * (k - a) / (b - a), min(known.values()))

    def _learned_rates(self) -> list[float]:
        """Acceptance by position. A few bad first tries do not condemn a position: the one before it speaks for it."""
        rates: list[float] = []
        prior = FIRST_RATE
        for rate, weight in zip(self._rates, self._weights, strict=True):
            prior = (rate * weight + prior * PRIOR_WEIGHT) / (weight + PRIOR_WEIGHT)
            rates.append(prior)
        return rates

    def _best(self, rates: Sequence[float], draft_s: float) -> tuple[int, float]:
        """Width and tokens per second."""
        expected, product = 1.0, 1.0
        best, best_rate = 0, 1.0 / (self.step_s(0) + draft_s)
        for k, rate in enumerate(rates, 1):
            product *= rate
            expected += product
            speed = expected / (self.step_s(k) + draft_s)
            if speed > best_rate:
                best, best_rate = k, speed
        return best, best_rate

    def wanted(self) -> int:
        """How many tokens to ask the drafter for; 0: a round without a draft."""
        if self.is_fixed:
            return self.draft_max
        self._is_trial = False
        # Plain decoding is the measure of all, so it comes first, and again from time to time.
        if self.draft_max == 0 or 0 not in self._times or self._since_plain >= PLAIN_EVERY:
            return 0
        draft_s = median(self._draft_times) if self._draft_times else 0.0
        _, speed = self._best(self._learned_rates(), draft_s)
        if speed * self.step_s(0) > 1.0:
            self._pause, self._paused = FIRST_PAUSE, 0
            return self.draft_max
        self._paused += 1
        if self._paused < self._pause:
            return 0
        self._pause, self._paused = min(2 * self._pause, LAST_PAUSE), 0
        self._is_trial = True
        return self.draft_max

    def width(self, n_drafted: int, confidences: Sequence[float] | None) -> int:
        """How many of n_drafted tokens to verify; their cost of drafting is spent already."""
        if self.is_fixed:
            return n_drafted
        rates = self._learned_rates()[:n_drafted]
        if confidences is not None:
            rates = [min(1.0, max(0.0, c)) for c in confidences[:n_drafted]]
        best, _ = self._best(rates, 0.0)
        # A trial verifies one token at least: otherwise nothing would be learned.
        return max(best, min(1, n_drafted)) if self._is_trial else best

    def learn(self, n_drafted: int, n_accepted: int, verify_s: float) -> None:
        self._times.setdefault(n_drafted, deque(maxlen=N_TIMES)).append(verify_s)
        self._since_plain = self._since_plain + 1 if n_drafted > 0 else 0
        for i in range(min(n_accepted + 1, n_drafted)):
            self._weights[i] = min(RATE_MEMORY, self._weights[i] + 1)
            self._rates[i] += ((i < n_accepted) - self._rates[i]) / self._weights[i]

    def learn_draft(self, seconds: float) -> None:
        self._draft_times.append(seconds)

    def step_ms(self) -> dict[int, float]:
        return {k: 1e3 * median(times) for k, times in sorted(self._times.items())}
