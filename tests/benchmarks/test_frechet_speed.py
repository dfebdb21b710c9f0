"""Frechet distance at 2048 dimensions against clean-fid's formula: the same value, at least three times faster."""

import time

import numpy
import pytest

from compbench.metrics.frechet import GaussianStatistics, frechet_distance, gaussian_statistics

DIMENSIONS = 2048


def statistics(num_samples: int) -> tuple[GaussianStatistics, GaussianStatistics]:
    """Like Inception's: correlated features whose variances span orders of magnitude."""
    rng = numpy.random.default_rng(0)
    mixing = rng.normal(size=(DIMENSIONS, DIMENSIONS)) * numpy.logspace(0, -2, DIMENSIONS) / DIMENSIONS**0.5
    a = gaussian_statistics(rng.normal(size=(num_samples, DIMENSIONS)) @ mixing)
    b = gaussian_statistics(1.1 * rng.normal(size=(num_samples, DIMENSIONS)) @ mixing + 0.01)
    return a, b


def clean_fid_distance(a: GaussianStatistics, b: GaussianStatistics) -> float:
    linalg = pytest.importorskip("scipy.linalg")
    shift = a.mean - b.mean
    root = linalg.sqrtm(a.covariance @ b.covariance)
    return float(shift @ shift + numpy.trace(a.covariance) + numpy.trace(b.covariance) - 2 * numpy.trace(root.real))


@pytest.mark.slow
@pytest.mark.parametrize("num_samples", [10_000, 1_000], ids=["full-rank", "rank-deficient"])
def test_frechet_distance_is_three_times_faster_than_clean_fids(benchmark, num_samples: int) -> None:
    a, b = statistics(num_samples)
    ours = benchmark.pedantic(frechet_distance, args=(a, b), rounds=2, warmup_rounds=1)
    start = time.process_time()
    theirs = clean_fid_distance(a, b)
    seconds = time.process_time() - start
    benchmark.extra_info["ratio"] = seconds / benchmark.stats.stats.min
    print(f"\nours {benchmark.stats.stats.min:.2f} s, clean-fid's {seconds:.2f} s, relative {abs(ours / theirs - 1):.1e}")
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert seconds >= 3 * benchmark.stats.stats.min
