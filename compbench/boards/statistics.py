"""Mean, sample standard deviation and a bootstrap interval of the mean: small, seeded, the same for any order."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from operator import mul
from typing import NamedTuple

EXACT_UP_TO = 6
"""Up to so many values every resample is enumerated (462 for six); beyond, `NUM_RESAMPLES` are drawn."""
NUM_RESAMPLES = 1000
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


def sample_std(values: Sequence[float]) -> float:
    """sqrt(sum (x - mean)^2 / (n - 1)); 0 for one value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def interval(values: Sequence[float]) -> Interval | None:
    """95 % percentile bootstrap interval of the mean; None for fewer than two values, which say nothing of the spread.

    With three seeds or fewer this is (min, max): drawing one value thrice has probability 1/27, more than 2.5 %.
    """
    if len(values) < 2:
        return None
    ordered = sorted(values)
    plan = resamples(len(ordered))
    means = sorted(
        (sum(map(mul, counts, ordered)) / len(ordered), probability)
        for counts, probability in zip(plan.counts, plan.probability, strict=True)
    )
    return Interval(_quantile(means), _quantile(means[::-1]))


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


def _counts(counter: Counter[int], n: int) -> tuple[int, ...]:
    return tuple(counter[position] for position in range(n))
