import itertools

import pytest
from bisection import fit_exponent, log_grid, slope, smallest_passing


def test_a_grid_has_both_ends_and_about_the_factor_between() -> None:
    grid = log_grid(8, 100)
    assert (grid[0], grid[-1]) == (8, 100)
    assert all(1.05 <= b / a <= 1.4 for a, b in itertools.pairwise(grid))
    assert log_grid(5, 5) == (5,)


@pytest.mark.parametrize("threshold", [3, 7, 8, 40, 64])
def test_bisection_finds_the_first_that_passes_in_few_questions(threshold: int) -> None:
    grid, asked = tuple(range(3, 65)), []

    def passes(number: int) -> bool:
        asked.append(number)
        return number >= threshold

    assert smallest_passing(grid, passes) == threshold
    assert len(asked) <= 8


def test_bisection_says_if_nothing_passes_after_one_question() -> None:
    asked = []
    assert smallest_passing((1, 2, 3), lambda number: bool(asked.append(number))) is None
    assert asked == [3]


def test_the_exponent_of_a_power_law_is_exact() -> None:
    sizes = (8, 12, 16, 20)
    assert slope(sizes, [0.5 * size**3 for size in sizes]) == pytest.approx(3)
    found = fit_exponent(sizes, [[2.0 * size**2] * 5 for size in sizes])
    assert found == pytest.approx((2, 2, 2))


def test_the_interval_holds_the_value_and_grows_with_the_spread() -> None:
    sizes = (8, 12, 16, 20)
    widths = []
    for spread in (0.1, 0.4):
        found = fit_exponent(sizes, [[size**2 * (1 + spread * k) for k in (-1, -0.5, 0, 0.5, 1)] for size in sizes])
        assert found.low < found.value < found.high
        widths.append(found.high - found.low)
    assert widths[0] < widths[1]
