"""Means, spreads and intervals of a few seeds, and Student's t and Fisher's F from SciPy.

Boards are built in a process that should start fast, so SciPy is imported only when it is first needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import NamedTuple

from compbench.system.errors import CompbenchError

CONFIDENCE = 0.95
"""Confidence level of each interval on a board, and family-wise level of a table of comparisons (Holm)."""

MOST_FAILED = 0.4
"""Intervals assume that at most this share of a method's fits fail."""
UNNOTICED = 0.1
"""Intervals allow for a share of failed fits so large that it would go unseen with this probability."""


class Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value, summed without rounding errors."""
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float], centre: float | None = None) -> float:
    """sqrt(sum (x - mean)^2 / (n - 1)); 0 for one value.  `centre` is their mean, where it is known already."""
    if len(values) < 2:
        return 0.0
    centre = mean(values) if centre is None else centre
    return math.sqrt(math.fsum([(value - centre) ** 2 for value in values]) / (len(values) - 1))


def interval(values: Sequence[float], trials: float = 0) -> Interval | None:
    """95 % interval of the mean of n runs: mean -/+ t_{n-1} s / sqrt(n), and never narrower than the binomial error.

    Args:
        values: one per seed.
        trials: number of trials of each run, if a value is the share of successful trials.  The interval then also contains
            Wilson's interval of all trials, because three runs that happen to agree do not make a share exact, and it is
            clipped to [0, 1].  math.inf for other shares; 0 if the score is not a share.

    Returns:
        the interval; None for one run, whose spread is not known.
    """
    n, centre = len(values), mean(values)
    if n < 2:
        return None
    half = t_quantile(n - 1, (1 + CONFIDENCE) / 2) * sample_std(values, centre) / math.sqrt(n)
    found = Interval(centre - half, centre + half)
    if not trials:
        return found
    least = wilson(centre, n * trials)
    return Interval(max(0.0, min(found.low, least.low)), min(1.0, max(found.high, least.high)))


def unseen(num_fits: int) -> float:
    """Upper bound on the share of failing fits although none of `num_fits` failed: min(0.4, 1 - 0.1^(1 / n)).

    If a larger share than 1 - 0.1^(1 / n) failed, at least nine of ten samples of n fits would show a failed one.  Shares above
    0.4 are not allowed for.
    """
    return min(MOST_FAILED, 1 - math.exp(math.log(UNNOTICED) / num_fits))


def reaching(found: Interval, centre: float, num_fits: int, failed: float) -> Interval:
    """Widen the interval of a mean by how far failed fits that were not observed could pull the mean.

    Student's interval assumes that fits vary evenly.  If a tenth to a third of them fail, three fits often show no failed one,
    and then the interval covers the mean in only half to three quarters of cases.  The wider interval also contains
    (1 - q) mean + q failed, q = `unseen`(n).  It assumes that at most a third of the fits fail, with a margin, and that a failed
    fit is no worse than `failed`; for such mixtures it covers the mean in at least 90 % of cases with three seeds or more
    (`experiments/best_set.py`).  Where the mean is itself worse than `failed` it says nothing.

    Args:
        found: interval by Student's t.
        centre: mean of the fits.
        failed: score of a failed fit, which is that of the best constant answer.
    """
    drawn = centre + unseen(num_fits) * (failed - centre)
    return Interval(min(found.low, drawn), max(found.high, drawn))


def wilson(share: float, trials: float) -> Interval:
    """Wilson's 95 % interval of a probability: (p + z^2/2n -/+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)."""
    z = 1.959963984540054
    shrink = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / shrink
    half = z * math.sqrt(max(0.0, share * (1 - share)) / trials + z * z / (4 * trials * trials)) / shrink
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def holm(p_values: Sequence[float], alpha: float = 1 - CONFIDENCE) -> list[bool]:
    """Which hypotheses are rejected if the probability of rejecting any true one is at most `alpha`.  Holm 1979.

    The hypothesis of the k-th smallest of m p values is rejected if it and all smaller ones satisfy p_(k) <= alpha / (m - k + 1).
    The hypotheses may depend on each other.
    """
    fallen = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        fallen[index] = True
    return fallen


def t_tail(t: float, degrees: float) -> float:
    """P(T >= t) of Student's t."""
    return float(_special().stdtr(degrees, -t))


def p_value(difference: float, variance: float, n: int, degrees: float) -> float:
    """Two-sided p value of "the mean difference is zero" by Student's t: T = |d| / sqrt(s^2 / n).

    Args:
        difference: d, the mean of n paired differences.
        variance: s^2 of one difference; 0 means that d is certain.
        n: number of differences.
        degrees: degrees of freedom of the variance.
    """
    if variance == 0:
        return 1.0 if difference == 0 else 0.0
    return 2 * t_tail(abs(difference) / math.sqrt(variance / n), degrees)


def welch(ones: Sequence[float], others: Sequence[float]) -> Interval | None:
    """95 % interval of mean(ones) - mean(others) of independent runs, by Welch's t; None if a side has one run.

    With v = s^2 / n of each side, the half-width is t_f sqrt(v1 + v2), f = (v1 + v2)^2 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1)).
    """
    if min(len(ones), len(others)) < 2:
        return None
    parts = [sample_std(values) ** 2 / len(values) for values in (ones, others)]
    error, difference = math.sqrt(sum(parts)), mean(ones) - mean(others)
    if error == 0:
        return Interval(difference, difference)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (ones, others), strict=True))
    half = t_quantile(freedom, (1 + CONFIDENCE) / 2) * error
    return Interval(difference - half, difference + half)


@cache
def t_quantile(degrees: float, probability: float) -> float:
    """t with P(T <= t) = probability of Student's t."""
    return float(_special().stdtrit(degrees, probability))


@cache
def f_quantile(above: int, below: int, probability: float) -> float:
    """f with P(F <= f) = probability of Fisher's F with `above` and `below` degrees of freedom."""
    return float(_special().fdtri(above, below, probability))


@lru_cache(maxsize=4096)
def digamma(x: float) -> float:
    """Derivative of log Gamma."""
    return float(_special().digamma(x))


@lru_cache(maxsize=4096)
def trigamma(x: float) -> float:
    """Second derivative of log Gamma: Hurwitz's zeta(2, x)."""
    return float(_special().zeta(2.0, x))


@cache
def _special() -> ModuleType:
    try:
        import scipy.special
    except ImportError as error:
        raise CompbenchError("boards need SciPy for their intervals: pip install 'compbench[run]'.") from error
    special: ModuleType = scipy.special
    return special
