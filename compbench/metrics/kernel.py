"""Kernel distance (KID): unbiased squared MMD with the cubic polynomial kernel (x.y / D + 1)^3.  Binkowski et al. 2018."""

from __future__ import annotations

from typing import NamedTuple

import numpy


class KidEstimate(NamedTuple):
    """Mean over subsets, and the standard error of that mean."""

    mean: float
    standard_error: float


def polynomial_mmd2(x: numpy.ndarray, y: numpy.ndarray) -> float:
    """Unbiased MMD^2 between x (M, D) and y (N, D): zero in expectation for equal distributions, so it can be negative."""
    scale = x.shape[1]
    k_xx = (x @ x.T / scale + 1) ** 3
    k_yy = (y @ y.T / scale + 1) ** 3
    k_xy = (x @ y.T / scale + 1) ** 3
    m, n = len(x), len(y)
    within_x = (k_xx.sum() - numpy.trace(k_xx)) / (m * (m - 1))
    within_y = (k_yy.sum() - numpy.trace(k_yy)) / (n * (n - 1))
    return float(within_x + within_y - 2 * k_xy.mean())


def kid(
    real: numpy.ndarray, generated: numpy.ndarray, *, num_subsets: int, subset_size: int, generator: numpy.random.Generator
) -> KidEstimate:
    """KID: the mean of `polynomial_mmd2` over random subsets.

    Args:
        real, generated: features, (M, D) and (N, D).
        num_subsets: number of subsets.
        subset_size: rows of each subset; at most the rows of the smaller side.
        generator: draws the subsets.

    Returns:
        mean over subsets, and its standard error.  The error is 0 for one subset, and if each subset has all rows of both sides,
        because then all subsets are equal.
    """
    size = min(subset_size, len(real), len(generated))
    if size < 2 or num_subsets < 1:
        raise ValueError(f"KID needs subsets of 2 rows or more, got {num_subsets} of {size}.")
    x, y = numpy.asarray(real, numpy.float64), numpy.asarray(generated, numpy.float64)
    values = [
        polynomial_mmd2(x[generator.choice(len(x), size, replace=False)], y[generator.choice(len(y), size, replace=False)])
        for _ in range(num_subsets)
    ]
    spread = numpy.std(values, ddof=1) if num_subsets > 1 else 0.0
    return KidEstimate(float(numpy.mean(values)), float(spread / numpy.sqrt(num_subsets)))
