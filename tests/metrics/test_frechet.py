import numpy
import pytest

from compbench.metrics.frechet import GaussianStatistics, frechet_distance, gaussian_statistics


@pytest.fixture
def rng() -> numpy.random.Generator:
    return numpy.random.default_rng(0)


def clean_fid_distance(a: GaussianStatistics, b: GaussianStatistics) -> float:
    """clean-fid's formula; SciPy 1.18 dropped `disp=`, so its own function cannot be called everywhere."""
    linalg = pytest.importorskip("scipy.linalg")
    shift = a.mean - b.mean
    root = linalg.sqrtm(a.covariance @ b.covariance)
    return float(shift @ shift + numpy.trace(a.covariance) + numpy.trace(b.covariance) - 2 * numpy.trace(root.real))


def test_gaussian_statistics_of_three_points_by_hand() -> None:
    found = gaussian_statistics(numpy.array([[0, 0], [2, 0], [4, 6]], dtype=numpy.float32))
    assert found.mean.tolist() == [2, 2]
    assert found.covariance.tolist() == [[4, 6], [6, 12]]
    assert found.covariance.dtype == numpy.float64


def test_gaussian_statistics_refuse_a_single_sample() -> None:
    with pytest.raises(ValueError, match="N >= 2"):
        gaussian_statistics(numpy.zeros((1, 3)))


def test_frechet_distance_of_diagonal_gaussians_is_the_closed_form() -> None:
    a = GaussianStatistics(numpy.array([1.0, 2.0]), numpy.diag([4.0, 9.0]))
    b = GaussianStatistics(numpy.array([1.0, 5.0]), numpy.diag([1.0, 25.0]))
    assert frechet_distance(a, b) == pytest.approx(3**2 + (2 - 1) ** 2 + (3 - 5) ** 2)


def test_frechet_distance_of_a_rotated_pair_is_that_of_the_diagonal_pair(rng) -> None:
    turn, _ = numpy.linalg.qr(rng.normal(size=(3, 3)))
    a = GaussianStatistics(numpy.zeros(3), turn @ numpy.diag([1.0, 4.0, 9.0]) @ turn.T)
    b = GaussianStatistics(numpy.zeros(3), turn @ numpy.diag([16.0, 4.0, 1.0]) @ turn.T)
    assert frechet_distance(a, b) == pytest.approx(3**2 + 0 + 2**2)


def test_frechet_distance_to_itself_is_zero(rng) -> None:
    a = gaussian_statistics(rng.normal(size=(200, 16)))
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-9)


def test_frechet_distance_is_symmetric(rng) -> None:
    a, b = (gaussian_statistics(rng.normal(scale=s, size=(100, 8))) for s in (1, 2))
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-10)


def test_frechet_distance_without_variance_is_the_squared_shift() -> None:
    a = GaussianStatistics(numpy.zeros(3), numpy.zeros((3, 3)))
    b = GaussianStatistics(numpy.array([0.0, 3.0, 4.0]), numpy.zeros((3, 3)))
    assert frechet_distance(a, b) == pytest.approx(25)


@pytest.mark.parametrize(("num_samples", "note"), [(400, "full rank"), (40, "rank-deficient")])
def test_frechet_distance_is_clean_fids(rng, num_samples: int, note: str) -> None:
    mixing = rng.normal(size=(64, 64))
    a = gaussian_statistics(rng.normal(size=(num_samples, 64)) @ mixing)
    b = gaussian_statistics(1.2 * rng.normal(size=(num_samples, 64)) @ mixing + 0.3)
    assert frechet_distance(a, b) == pytest.approx(clean_fid_distance(a, b), rel=1e-6), note
