"""Find by bisection how much data is needed for a target, and fit the exponent of that amount against size, with its interval.

needed(N) ~ c N^a,   a by least squares of log needed on log N
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

NUM_RESAMPLES = 2000


class Exponent(NamedTuple):
    """a, and its 95 % bootstrap interval over seeds."""

    value: float
    low: float
    high: float


def log_grid(low: int, high: int, factor: float = 1.25) -> tuple[int, ...]:
    """Whole numbers from `low` to `high`, both included, each about `factor` times the previous one."""
    count = max(1, math.ceil(math.log(high / low) / math.log(factor)))
    return tuple(sorted({round(low * (high / low) ** (step / count)) for step in range(count + 1)}))


def smallest_passing(grid: Sequence[int], passes: Callable[[int], bool]) -> int | None:
    """The smallest number of a sorted grid that passes, if passing is monotone; None if the largest does not pass.

    `passes` is called at most ceil(log2(len(grid))) + 1 times.
    """
    if not passes(grid[-1]):
        return None
    low, high = -1, len(grid) - 1  # grid[low] fails (or is before the first), grid[high] passes
    while high - low > 1:
        middle = (low + high) // 2
        if passes(grid[middle]):
            high = middle
        else:
            low = middle
    return grid[high]


def slope(sizes: Sequence[float], needed: Sequence[float]) -> float:
    """Least-squares slope of log needed on log size."""
    x, y = [math.log(size) for size in sizes], [math.log(number) for number in needed]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - x_mean) ** 2 for a in x)
    return sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread


def fit_exponent(sizes: Sequence[float], needed: Sequence[Sequence[float]]) -> Exponent:
    """The exponent of the median over seeds, and its interval: seeds are resampled at each size.

    Args:
        sizes: N, at least two different ones.
        needed: for each size, the numbers that its seeds needed; at least one seed per size.

    Returns:
        exponent with a 95 % percentile interval; it is deterministic.
    """
    generator = random.Random(0)
    value = slope(sizes, [median(seeds) for seeds in needed])
    drawn = sorted(
        slope(sizes, [median(generator.choices(list(seeds), k=len(seeds))) for seeds in needed]) for _ in range(NUM_RESAMPLES)
    )
    return Exponent(value, drawn[round(0.025 * NUM_RESAMPLES)], drawn[round(0.975 * NUM_RESAMPLES) - 1])
