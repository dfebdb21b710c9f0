import math

import numpy
import pytest

from compbench.metrics.discrepancy import median_distance, mmd2
from compbench.metrics.transport import directions, sliced_wasserstein


@pytest.fixture
def clouds():
    generator = numpy.random.default_rng(0)
    return generator.standard_normal((700, 2)) * (3, 1), generator.standard_normal((700, 2)) + numpy.array([1, 0]), generator


def pots(*given, **named) -> float:
    """The Python Optimal Transport library's own."""
    import ot  # a second of imports, and every worker collects this file

    return ot.sliced_wasserstein_distance(*given, **named)


def test_sliced_wasserstein_is_pots(clouds) -> None:
    x, y, generator = clouds
    along = directions(2, 500, generator)
    expected = pots(x, y, projections=along)
    assert sliced_wasserstein(x, y, along) == pytest.approx(expected, abs=1e-6)


def test_sliced_wasserstein_takes_sets_of_different_sizes(clouds) -> None:
    x, y, generator = clouds
    along = directions(2, 100, generator)
    expected = pots(x, y[:300], projections=along)
    assert sliced_wasserstein(x, y[:300], along) == pytest.approx(expected, abs=1e-6)


def test_a_shift_by_d_in_the_plane_is_d_over_root_2(clouds) -> None:
    x, _, generator = clouds
    found = sliced_wasserstein(x, x + numpy.array([3, 4]), directions(2, 20_000, generator))
    assert found == pytest.approx(5 / math.sqrt(2), rel=0.02)


def test_directions_are_unit_vectors_and_isotropic(clouds) -> None:
    along = directions(3, 50_000, clouds[2])
    assert numpy.linalg.norm(along, axis=0) == pytest.approx(1)
    assert along @ along.T / 50_000 == pytest.approx(numpy.eye(3) / 3, abs=0.01)


def test_mmd_is_the_double_sum(clouds) -> None:
    x, y, _ = clouds
    x, y = x[:40], y[:30]

    def mean(a, b, *, diagonal: bool) -> float:
        values = [
            math.exp(-((p - q) ** 2).sum() / (2 * 1.7**2)) for i, p in enumerate(a) for j, q in enumerate(b) if diagonal or i != j
        ]
        return sum(values) / len(values)

    expected = mean(x, x, diagonal=False) + mean(y, y, diagonal=False) - 2 * mean(x, y, diagonal=True)
    assert mmd2(x, y, 1.7) == pytest.approx(expected, abs=1e-12)


def test_mmd_of_gaussians_has_its_closed_form() -> None:
    """E k(x, y) for N(0, 1) and N(m, 1): h / sqrt(h^2 + 2) exp(-m^2 / (2 (h^2 + 2)))."""
    generator = numpy.random.default_rng(0)
    x, y, h = generator.standard_normal((4000, 1)), generator.standard_normal((4000, 1)) + 1, 1.0
    scale = h / math.sqrt(h**2 + 2)
    assert mmd2(x, y, h) == pytest.approx(2 * scale * (1 - math.exp(-1 / (2 * (h**2 + 2)))), abs=0.012)


def test_mmd_is_unbiased() -> None:
    generator = numpy.random.default_rng(0)
    values = [mmd2(*generator.standard_normal((2, 50, 2)), 1.0) for _ in range(400)]
    assert abs(numpy.mean(values)) < 3 * numpy.std(values) / 20
    assert min(values) < 0


def test_the_bandwidth_is_the_median_of_all_pairs(clouds) -> None:
    x, y, _ = clouds
    distances = [math.dist(a, b) for a in x[:31] for b in y[:21]]
    assert median_distance(x[:31], y[:21]) == pytest.approx(sorted(distances)[len(distances) // 2])
