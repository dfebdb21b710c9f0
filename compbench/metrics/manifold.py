"""Improved precision and recall: shares of samples inside the other set's k-nearest-neighbour balls.

Kynkaanniemi et al. 2019.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

BLOCK = 2048
"""Number of rows in one block of distances; it bounds the memory at 2048 x N numbers."""


class PrecisionRecall(NamedTuple):
    """Precision: share of generated samples near real ones.  Recall: share of real samples near generated ones."""

    precision: float
    recall: float


def precision_recall(real: numpy.ndarray, generated: numpy.ndarray, *, k: int = 3) -> PrecisionRecall:
    """Precision and recall of features (M, D) and (N, D), with balls that reach the k-th nearest neighbour."""
    if min(len(real), len(generated)) <= k:
        raise ValueError(f"k = {k} nearest neighbours need more than {k} samples on each side.")
    real, generated = numpy.asarray(real, numpy.float64), numpy.asarray(generated, numpy.float64)
    return PrecisionRecall(
        precision=_share_covered(generated, real, _radii(real, k)),
        recall=_share_covered(real, generated, _radii(generated, k)),
    )


def _squared_distances(x: numpy.ndarray, y: numpy.ndarray) -> numpy.ndarray:
    return ((x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T).clip(min=0)


def _radii(points: numpy.ndarray, k: int) -> numpy.ndarray:
    """Squared distance of each point to its k-th nearest other point, (N,)."""
    blocks = (points[first : first + BLOCK] for first in range(0, len(points), BLOCK))
    return numpy.concatenate([numpy.partition(_squared_distances(block, points), k, axis=1)[:, k] for block in blocks])


def _share_covered(points: numpy.ndarray, centres: numpy.ndarray, radii: numpy.ndarray) -> float:
    blocks = (points[first : first + BLOCK] for first in range(0, len(points), BLOCK))
    covered = [(_squared_distances(block, centres) <= radii).any(axis=1) for block in blocks]
    return float(numpy.concatenate(covered).mean())
