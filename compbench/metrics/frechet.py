"""Frechet distance between Gaussians fitted to two sets of features: FID with Inception's features, FD with a judge's."""

from __future__ import annotations

from typing import NamedTuple

import numpy
from numpy.typing import NDArray


class GaussianStatistics(NamedTuple):
    """Mean (D,) and unbiased covariance (D, D), float64."""

    mean: NDArray[numpy.float64]
    covariance: NDArray[numpy.float64]


def gaussian_statistics(features: numpy.ndarray) -> GaussianStatistics:
    """Mean and covariance of features (N, D), N >= 2."""
    features = numpy.asarray(features, dtype=numpy.float64)
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(f"features must be (N, D) with N >= 2, got {features.shape}.")
    mean = features.mean(axis=0)
    centred = features - mean
    return GaussianStatistics(mean, centred.T @ centred / (len(features) - 1))


def frechet_distance(a: GaussianStatistics, b: GaussianStatistics) -> float:
    """|m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^1/2).

    (S1 S2)^1/2 has the trace of (S1^1/2 S2 S1^1/2)^1/2, which is symmetric.  So one eigendecomposition and one set of eigenvalues
    replace a general matrix square root, which is 4-5 times as slow and rounds complex numbers.  Directions in which S1 has no
    variance drop out, so few samples take even less time.

    Args:
        a, b: statistics of the two sets, of equal D.

    Returns:
        the squared Wasserstein-2 distance between the Gaussians; at least 0.  Heusel et al. 2017, equation 6.
    """
    values, vectors = numpy.linalg.eigh(a.covariance)
    kept = values > values[-1] * len(values) * numpy.finfo(numpy.float64).eps
    root = vectors[:, kept] * numpy.sqrt(values[kept])  # (D, R) with root root' = S1
    inner = root.T @ b.covariance @ root  # (R, R), the eigenvalues of S1^1/2 S2 S1^1/2 that are not zero
    cross = numpy.sqrt(numpy.linalg.eigvalsh(inner).clip(min=0)).sum()
    shift = a.mean - b.mean
    return max(0.0, float(shift @ shift + numpy.trace(a.covariance) + numpy.trace(b.covariance) - 2 * cross))
