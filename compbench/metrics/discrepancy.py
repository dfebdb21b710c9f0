"""Maximum mean discrepancy with a Gaussian kernel."""

from __future__ import annotations

import numpy

BLOCK = 1024
"""Number of rows of a distance matrix in memory at a time."""


def squared_distances(x: numpy.ndarray, y: numpy.ndarray) -> numpy.ndarray:
    """|x_i - y_j|^2, float64 (N, M)."""
    found = x @ y.T
    found *= -2
    found += (x**2).sum(1)[:, None]
    found += (y**2).sum(1)
    return numpy.maximum(found, 0, out=found)


def median_distance(x: numpy.ndarray, y: numpy.ndarray) -> float:
    """Median of |x_i - y_j| over all pairs; 0 only if more than half of the pairs coincide."""
    found = squared_distances(x, y).ravel()
    middle = len(found) // 2
    return float(numpy.partition(found, middle)[middle]) ** 0.5


def mmd2(x: numpy.ndarray, y: numpy.ndarray, bandwidth: float) -> float:
    """Unbiased MMD^2 with k(a, b) = exp(-|a - b|^2 / (2 bandwidth^2)); it can be negative.

    mean_{i != j} k(x_i, x_j) + mean_{i != j} k(y_i, y_j) - 2 mean_ij k(x_i, y_j).  Gretton et al. 2012, equation 3.

    Args:
        x, y: points, (N, D) and (M, D), at least two of each.
        bandwidth: the kernel's bandwidth, in the points' unit.
    """
    x, y = numpy.asarray(x, float), numpy.asarray(y, float)
    gamma = 1 / (2 * max(bandwidth, 1e-12) ** 2)
    within = (_kernel_sum(points, points, gamma) - len(points) for points in (x, y))
    pairs = (len(points) * (len(points) - 1) for points in (x, y))
    same = sum(total / count for total, count in zip(within, pairs, strict=True))
    return same - 2 * _kernel_sum(x, y, gamma) / (len(x) * len(y))


def _kernel_sum(x: numpy.ndarray, y: numpy.ndarray, gamma: float) -> float:
    total = 0.0
    for first in range(0, len(x), BLOCK):
        block = squared_distances(x[first : first + BLOCK], y)
        block *= -gamma
        total += float(numpy.exp(block, out=block).sum())
    return total
