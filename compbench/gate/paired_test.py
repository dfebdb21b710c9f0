"""The gate's statistics: what paired differences of base and head allow to say.  Pure functions of numbers.

With d_i the worsening in pair i (head against base, positive is worse), m its mean, s its sample standard deviation over n pairs:

    low, high = m -/+ t_{n-1} s / sqrt(n)      one-sided 95 % bounds
    p         = P(T_{n-1} >= (m - margin) sqrt(n) / s)

A worsening is *suspected* when low > margin, *excluded* when high <= margin, and otherwise there are too few pairs to tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

CONFIDENCE = 0.95
"""Of each one-sided bound."""
ALPHA = 1 - CONFIDENCE
"""Chance, at most, that a table without any worsening beyond its margins has a red row (Holm)."""
MOST_PAIRS = 10_000
"""More pairs than this are as good as never."""

Finding = Literal["worse", "not worse", "unclear"]


class Comparison(NamedTuple):
    """What n pairs say of a worsening.

    Attributes:
        n: number of pairs.
        mean: mean worsening; positive is worse.
        low, high: its one-sided 95 % bounds, each to be read alone.
        p_value: of "the worsening is at most the margin".
        finding: "worse" if low > margin, "not worse" if high <= margin, else "unclear".
        needed: pairs that would do to tell, if mean and spread stay as they are; 0 if these did, None if no number would.
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
        bounds, p-value and finding.  A single pair says nothing unless nothing at all differs: base and head then did the same.
    """
    n, mean = len(worsenings), math.fsum(worsenings) / len(worsenings)
    if not any(worsenings):
        return Comparison(n, 0.0, 0.0, 0.0, 1.0, "not worse", 0)
    if n == 1:
        return Comparison(n, mean, -math.inf, math.inf, 1.0, "unclear", 2)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in worsenings) / (n - 1))
    half = quantile(n - 1) * spread / math.sqrt(n)
    low, high = mean - half, mean + half
    finding: Finding = "worse" if low > margin else "not worse" if high <= margin else "unclear"
    if spread == 0:
        p_value = 0.0 if mean > margin else 1.0
    else:
        p_value = tail((mean - margin) * math.sqrt(n) / spread, n - 1)
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


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Which hypotheses of a family fall, with a chance of at most `alpha` that a true one does, however they depend.  Holm 1979.

    The k-th smallest of m p-values falls if it and all smaller ones satisfy p_(k) <= alpha / (m - k + 1).
    """
    fallen = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        fallen[index] = True
    return fallen


def pairs_needed(distance: float, spread: float, already: int = 1) -> int | None:
    """The smallest number of pairs, more than `already`, whose bound excludes the margin: t_{n-1} spread / sqrt(n) < |distance|.

    Args:
        distance: of the mean from the margin.
        spread: standard deviation of the pairs.

    Returns:
        number of pairs; None if it is over `MOST_PAIRS`.
    """

    def enough(n: int) -> bool:
        return quantile(n - 1) * spread / math.sqrt(n) < abs(distance)

    low, high = max(already, 1), max(already, 1) + 1
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST_PAIRS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MOST_PAIRS else None


def tail(t: float, degrees: int) -> float:
    """P(T >= t) of Student's t: I_x(n/2, 1/2) / 2 with x = n / (n + t^2) for t >= 0."""
    half = _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2
    return half if t >= 0 else 1 - half


@lru_cache(maxsize=1024)
def quantile(degrees: int, probability: float = CONFIDENCE) -> float:
    """t with P(T <= t) = probability >= 1/2 of Student's t, by bisection to 1e-12 of itself."""
    high = 1.0
    while tail(high, degrees) > 1 - probability:
        high *= 2
    low = 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, degrees) > 1 - probability else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b) by Lentz's continued fraction.  Numerical Recipes, section 6.4."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below the mean only
        return 1 - _incomplete_beta(1 - x, b, a)
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            fraction *= c * d
        if abs(fraction - before) <= 1e-15 * abs(fraction):
            break
    return math.exp(log_front) * fraction / a
