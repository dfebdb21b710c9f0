"""The gate's statistics: pure functions of the paired differences of base and head.

With d_i the worsening in pair i (head against base, positive is worse), m its mean, s its sample standard deviation over n pairs:

    low, high = m -/+ t_{n-1} s / sqrt(n)      one-sided 95 % bounds
    p         = P(T_{n-1} >= (m - margin) sqrt(n) / s)

A worsening is *suspected* when low > margin, and *excluded* when high <= margin; otherwise there are too few pairs to decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from compbench.board import statistics
from compbench.board.statistics import sample_std, t_quantile, t_tail

CONFIDENCE = 0.95
"""Confidence level of each one-sided bound."""
MOST_PAIRS = 10_000
"""Largest number of pairs that is reported as needed; more would never be run."""

Finding = Literal["worse", "not worse", "unclear"]


class Comparison(NamedTuple):
    """The result of comparing n pairs.

    Attributes:
        n: number of pairs.
        mean: mean worsening; positive is worse.
        low, high: its one-sided 95 % bounds; each holds at 95 % on its own, not both together.
        p_value: p value of "the worsening is at most the margin".
        finding: "worse" if low > margin, "not worse" if high <= margin, else "unclear".
        needed: number of pairs that decides if mean and spread stay the same; 0 if these pairs decide, None if no number does.
    """

    n: int
    mean: float
    low: float
    high: float
    p_value: float
    finding: Finding
    needed: int | None


def compare(worsenings: Sequence[float], margin: float) -> Comparison:
    """Test paired worsenings against a margin.

    Args:
        worsenings: one for each pair, finite, positive is worse; at least one.
        margin: the largest worsening that does not matter, at least 0.

    Returns:
        bounds, p value and finding.  A single pair is unclear unless its difference is 0: then base and head are the same.
    """
    n, mean = len(worsenings), statistics.mean(worsenings)
    if not any(worsenings):
        return Comparison(n, 0.0, 0.0, 0.0, 1.0, "not worse", 0)
    if n == 1:
        return Comparison(n, mean, -math.inf, math.inf, 1.0, "unclear", 2)
    spread = sample_std(worsenings, mean)
    half = t_quantile(n - 1, CONFIDENCE) * spread / math.sqrt(n)
    low, high = mean - half, mean + half
    finding: Finding = "worse" if low > margin else "not worse" if high <= margin else "unclear"
    if spread == 0:
        p_value = 0.0 if mean > margin else 1.0
    else:
        p_value = t_tail((mean - margin) * math.sqrt(n) / spread, n - 1)
    return Comparison(n, mean, low, high, p_value, finding, 0 if finding != "unclear" else pairs_needed(mean - margin, spread, n))


def compare_scores(
    base: Mapping[int, float], head: Mapping[int, float], *, direction: Literal["higher", "lower"], margin: float
) -> Comparison | None:
    """Compare a score of base and head over the seeds that both have; None if there is none.

    Args:
        base, head: seed -> value.
        direction: which way is better.
        margin: the metric's declared margin, in its unit.
    """
    sign = -1.0 if direction == "higher" else 1.0
    seeds = sorted(base.keys() & head.keys())
    return compare([sign * (head[seed] - base[seed]) for seed in seeds], margin) if seeds else None


def pairs_needed(distance: float, spread: float, already: int = 1) -> int | None:
    """The smallest number of pairs, more than `already`, whose bound excludes the margin: t_{n-1} spread / sqrt(n) < |distance|.

    Args:
        distance: distance of the mean from the margin.
        spread: standard deviation of the pairs.

    Returns:
        number of pairs; None if it is over `MOST_PAIRS`.
    """

    def enough(n: int) -> bool:
        return t_quantile(n - 1, CONFIDENCE) * spread / math.sqrt(n) < abs(distance)

    low, high = max(already, 1), max(already, 1) + 1
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST_PAIRS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MOST_PAIRS else None
