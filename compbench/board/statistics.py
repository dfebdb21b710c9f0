"""Means, spreads, seeded bootstrap intervals, probability of improvement, profiles: small, the same for any order of seeds."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import combinations_with_replacement
from operator import mul
from typing import NamedTuple

EXACT_UP_TO = 6
"""Up to so many values every resample is enumerated (462 for six); beyond, `NUM_RESAMPLES` are drawn."""
NUM_RESAMPLES = 1000
NUM_STRATIFIED = 400
"""Resamples of a stratified interval: the tenth from either end is the 2.5 % quantile."""
TAIL = 0.025
"""Probability outside of the interval on each side."""


class Interval(NamedTuple):
    low: float
    high: float


class Resamples(NamedTuple):
    """Resamples of n values, as how often each value is drawn, with their probabilities."""

    counts: tuple[tuple[int, ...], ...]
    probability: tuple[float, ...]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float], centre: float | None = None) -> float:
    """sqrt(sum (x - mean)^2 / (n - 1)); 0 for one value.  `centre` is their mean, where it is known already."""
    if len(values) < 2:
        return 0.0
    centre = mean(values) if centre is None else centre
    return math.sqrt(math.fsum([(value - centre) ** 2 for value in values]) / (len(values) - 1))


def interval(values: Sequence[float]) -> Interval | None:
    """95 % percentile bootstrap interval of the mean; None for fewer than two values, which say nothing of the spread.

    With three seeds or fewer this is (min, max): drawing one value thrice has probability 1/27, more than 2.5 %.
    """
    if len(values) < 2:
        return None
    means = sorted(zip(resampled_means(values), resamples(len(values)).probability, strict=True))
    return Interval(_quantile(means), _quantile(means[::-1]))


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half: a quarter of the weight is cut off at each end, and a value on the edge counts in part."""
    return sum(map(mul, middle_weights(len(values)), sorted(values)))


@lru_cache
def middle_weights(n: int) -> tuple[float, ...]:
    """Weights of n sorted values in their interquartile mean: w_i = |[i, i+1] and [n/4, 3n/4]| / (n/2)."""
    return tuple(max(0.0, min(i + 1, 0.75 * n) - max(i, 0.25 * n)) / (0.5 * n) for i in range(n))


def stratified_interval(strata: Sequence[Sequence[float]], statistic: Callable[[Sequence[float]], float]) -> Interval | None:
    """95 % percentile interval of a statistic of the strata's means; each stratum's values are drawn anew by themselves.

    Args:
        strata: the values of each stratum, in a fixed order of strata; a stratum is a task, its values those of the seeds.
        statistic: of the strata's means, one each.

    Returns:
        the interval; None if a stratum has fewer than two values, since nothing is known of its spread.
    """
    if not strata or any(len(values) < 2 for values in strata):
        return None
    means = []
    for position, values in enumerate(strata):
        known = resampled_means(values)
        means.append([known[index] for index in _drawn(len(values), position)])
    return _percentiles([statistic(drawn) for drawn in zip(*means, strict=True)])


def improvement(one: Sequence[float], other: Sequence[float]) -> float:
    """Probability that a run of `one` is above a run of `other`: P(X > Y) + P(X = Y) / 2 over all pairs of their runs."""
    return mean([_above(x, y) for x in one for y in other])


def improvement_interval(strata: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Interval | None:
    """95 % percentile interval of `improvement` averaged over strata, the runs of both sides drawn anew in each.

    Returns:
        the interval; None if a side of a stratum has fewer than two runs.
    """
    if not strata or any(min(len(one), len(other)) < 2 for one, other in strata):
        return None
    totals = [0.0] * NUM_STRATIFIED
    for position, (one, other) in enumerate(strata):
        mine, yours = sorted(one), sorted(other)
        if mine[0] > yours[-1] or mine[-1] < yours[0]:  # no draw can mix them
            totals = [total + (mine[0] > yours[-1]) for total in totals]
            continue
        steps = [(bisect_left(mine, y), bisect_right(mine, y)) for y in yours]
        twice = 2 * len(mine) * len(yours)
        wins = [[tail[low] + tail[high] for low, high in steps] for tail in _tails(len(mine))]
        others = resamples(len(yours)).counts
        draws = zip(_drawn(len(mine), 2 * position), _drawn(len(yours), 2 * position + 1), strict=True)
        totals = [total + sum(map(mul, wins[i], others[j])) / twice for total, (i, j) in zip(totals, draws, strict=True)]
    return _percentiles([total / len(strata) for total in totals])


@lru_cache
def _tails(n: int) -> tuple[tuple[int, ...], ...]:
    """For each resample of n sorted values, how many of the draws are at place k or above, k = 0..n."""
    return tuple(tuple(sum(counts[k:]) for k in range(n + 1)) for counts in resamples(n).counts)


def profile(values: Sequence[float], thresholds: Sequence[float]) -> list[float]:
    """Performance profile: for each threshold the share of the values that reach it."""
    ordered = sorted(values)
    return [1 - bisect_left(ordered, threshold) / len(ordered) for threshold in thresholds]


def _above(x: float, y: float) -> float:
    return 1.0 if x > y else 0.5 if x == y else 0.0


def _percentiles(values: Sequence[float]) -> Interval:
    ordered = sorted(values)
    cut = int(TAIL * len(ordered))
    return Interval(ordered[cut], ordered[-1 - cut])


@cache
def _drawn(n: int, position: int) -> tuple[int, ...]:
    """Which resample of n values each of the `NUM_STRATIFIED` takes, for the stratum at a position."""
    plan = resamples(n)
    generator = random.Random(f"stratum {position} of {n}")
    return tuple(generator.choices(range(len(plan.counts)), weights=plan.probability, k=NUM_STRATIFIED))


def _quantile(weighted: Sequence[tuple[float, float]]) -> float:
    """The first value at which the summed probability exceeds `TAIL`."""
    total = 0.0
    for value, probability in weighted:
        total += probability
        if total > TAIL:
            return value
    return weighted[-1][0]


@lru_cache
def resamples(n: int) -> Resamples:
    """All resamples of n values with their multinomial probabilities, or a seeded draw of them for larger n."""
    if n <= EXACT_UP_TO:
        drawn = [Counter(choice) for choice in combinations_with_replacement(range(n), n)]
        ways = [math.factorial(n) / math.prod(map(math.factorial, counter.values())) for counter in drawn]
        return Resamples(tuple(_counts(counter, n) for counter in drawn), tuple(way / n**n for way in ways))
    generator = random.Random(0)
    drawn = [Counter(generator.choices(range(n), k=n)) for _ in range(NUM_RESAMPLES)]
    return Resamples(tuple(_counts(counter, n) for counter in drawn), (1 / NUM_RESAMPLES,) * NUM_RESAMPLES)


def resampled_means(values: Sequence[float]) -> list[float]:
    """Mean of each of the `resamples` of the values, in the same order; whatever the order of the values."""
    ordered, n = sorted(values), len(values)
    if n <= EXACT_UP_TO:  # the same sums without a product, three times as fast
        return [sum(choice) / n for choice in combinations_with_replacement(ordered, n)]
    return [sum(map(mul, counts, ordered)) / n for counts in resamples(n).counts]


def _counts(counter: Counter[int], n: int) -> tuple[int, ...]:
    return tuple(counter[position] for position in range(n))
