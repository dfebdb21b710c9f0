"""Sliced Wasserstein distance between point sets."""

from __future__ import annotations

import numpy

CHUNK = 100
"""Number of projections sorted at a time; so many stay in a core's cache."""


def directions(dimension: int, count: int, generator: numpy.random.Generator) -> numpy.ndarray:
    """Directions uniform on the sphere, float64 (dimension, count)."""
    drawn = generator.standard_normal((dimension, count))
    return drawn / numpy.linalg.norm(drawn, axis=0)


def sliced_wasserstein(x: numpy.ndarray, y: numpy.ndarray, projections: numpy.ndarray) -> float:
    """SW2 = sqrt(mean over directions of W2^2 of the projections), W2^2 in one dimension by sorting.

    Bonneel et al. 2015.  If the sets have one size, quantiles match one to one, so sorted projections are subtracted; otherwise
    POT computes W2.

    Args:
        x, y: points, (N, D) and (M, D).
        projections: unit vectors, (D, P).

    Returns:
        the distance, in the points' unit.
    """
    if len(x) != len(y):
        import ot

        x, y = numpy.asarray(x, float), numpy.asarray(y, float)
        return float(ot.sliced_wasserstein_distance(x, y, projections=numpy.asarray(projections, float)))
    total = 0.0
    one, other = (numpy.ascontiguousarray(points.T, dtype=numpy.float32) for points in (x, y))  # (D, N)
    for first in range(0, projections.shape[1], CHUNK):
        rows = projections[:, first : first + CHUNK].T.astype(numpy.float32)  # (P, D)
        a, b = rows @ one, rows @ other  # (P, N)
        a.sort(axis=1)
        b.sort(axis=1)
        a -= b
        total += float(numpy.einsum("pn,pn->p", a, a, dtype=numpy.float64).sum())
    return (total / (projections.shape[1] * len(x))) ** 0.5
