"""Means with 95 % confidence intervals. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % confidence interval; the ends are NaN where one group alone gives no interval."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, float | None]:
        return {
            k: (None if math.isnan(v) else v)
            for k, v in (("value", self.value), ("low", self.low), ("high", self.high))
        }

    def text(self, form: str = ".4g") -> str:
        """ "0.0123 (0.0119 to 0.0127)"."""
        if math.isnan(self.low):
            return f"{self.value:{form}}"
        return f"{self.value:{form}} ({self.low:{form}} to {self.high:{form}})"


def student_t95(n_free: int) -> float:
    """The two-sided 95 % point of Student's t, within 1 % from 3 degrees of freedom up (exact for 1 and 2)."""
    if n_free < 1:
        return math.nan
    if n_free == 1:
        return 12.706
    if n_free == 2:
        return 4.303
    z, v = Z95, float(n_free)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4)
    )


def grouped_mean(groups: Sequence[npt.NDArray[np.float64]]) -> Estimate:
    """Mean of all values. The interval comes from the differences between groups, because the tokens of one window of
    text depend on each other."""
    sums = np.array([float(g.sum()) for g in groups])
    counts = np.array([g.size for g in groups], np.float64)
    total = counts.sum()
    mean = float(sums.sum() / total)
    n = len(groups)
    if n < 2:
        return Estimate(mean, math.nan, math.nan)
    error = math.sqrt(float(((sums - mean * counts) ** 2).sum()) * n / (n - 1)) / total
    half = student_t95(n - 1) * error
    return Estimate(mean, mean - half, mean + half)


def wilson(n_right: int, n: int) -> Estimate:
    """A share of independent items, with Wilson's interval."""
    p = n_right / n
    z2 = Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return Estimate(p, max(0.0, centre - half), min(1.0, centre + half))


def paired_difference(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> Estimate:
    """Mean of second - first over the same items."""
    d = second - first
    if d.size < 2:
        return Estimate(float(d.mean()), math.nan, math.nan)
    half = student_t95(d.size - 1) * float(d.std(ddof=1)) / math.sqrt(d.size)
    return Estimate(float(d.mean()), float(d.mean()) - half, float(d.mean()) + half)
