import numpy
import pytest

from compbench.metrics.kernel import kid, polynomial_mmd2


@pytest.fixture
def rng() -> numpy.random.Generator:
    return numpy.random.default_rng(0)


def test_polynomial_mmd2_of_three_and_two_points_is_the_double_loop() -> None:
    x, y = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[0.0, 0.0], [2.0, 1.0]]

    def k(p: list[float], q: list[float]) -> float:
        return ((p[0] * q[0] + p[1] * q[1]) / 2 + 1) ** 3

    within_x = sum(k(x[i], x[j]) for i in range(3) for j in range(3) if i != j) / 6
    within_y = sum(k(y[i], y[j]) for i in range(2) for j in range(2) if i != j) / 2
    across = sum(k(p, q) for p in x for q in y) / 6
    found = polynomial_mmd2(numpy.array(x), numpy.array(y))
    assert found == pytest.approx(within_x + within_y - 2 * across)


def test_polynomial_mmd2_is_unbiased(rng) -> None:
    values = [polynomial_mmd2(rng.normal(size=(20, 4)), rng.normal(size=(20, 4))) for _ in range(2000)]
    assert abs(numpy.mean(values)) < 4 * numpy.std(values) / numpy.sqrt(len(values))
    assert min(values) < 0  # a biased estimate never is


def test_kid_of_a_shifted_distribution_is_far_above_its_standard_error(rng) -> None:
    found = kid(rng.normal(size=(300, 8)), rng.normal(size=(300, 8)) + 1, num_subsets=20, subset_size=100, generator=rng)
    assert found.mean > 10 * found.standard_error > 0


def test_kid_with_one_seed_is_one_number(rng) -> None:
    x, y = rng.normal(size=(2, 50, 4))
    first, second = (kid(x, y, num_subsets=5, subset_size=20, generator=numpy.random.default_rng(3)) for _ in range(2))
    assert first == second


def test_kid_takes_all_rows_where_there_are_fewer_than_a_subset(rng) -> None:
    x, y = rng.normal(size=(2, 30, 4))
    found = kid(x, y, num_subsets=4, subset_size=1000, generator=rng)
    assert found.mean == pytest.approx(polynomial_mmd2(x, y))
    assert found.standard_error == pytest.approx(0, abs=1e-12)


def test_kid_of_one_subset_has_no_spread(rng) -> None:
    x, y = rng.normal(size=(2, 30, 4))
    assert kid(x, y, num_subsets=1, subset_size=10, generator=rng).standard_error == 0


def test_kid_refuses_a_single_row(rng) -> None:
    with pytest.raises(ValueError, match="2 rows or more"):
        kid(numpy.zeros((1, 4)), numpy.zeros((9, 4)), num_subsets=1, subset_size=5, generator=rng)
