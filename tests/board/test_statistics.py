"""Statistics against cases computed by hand."""

from __future__ import annotations

import pytest

from compbench.board.statistics import (
    improvement,
    improvement_interval,
    interquartile_mean,
    mean,
    profile,
    resampled_means,
    resamples,
    stratified_interval,
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0], 1.5),  # half of each is cut off
        ([5.0, 0.0, 1.0], 1.5),  # weights 1/4, 1, 1/4 of 3/2: (1 + 5/4) / (3/2)
        ([9.0, 2.0, 1.0, 0.0], 1.5),
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # weights 3/4, 1, 3/4 of 5/2 for 1, 2, 3
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 4.5),
    ],
)
def test_interquartile_mean_is_that_of_the_middle_half(values: list[float], expected: float) -> None:
    assert interquartile_mean(values) == pytest.approx(expected)


def test_stratified_interval_draws_each_stratum_by_itself() -> None:
    # Means of the first are 0, 2, 4 with probabilities 1/4, 1/2, 1/4; the second is always 1.
    assert stratified_interval([[0.0, 4.0], [1.0, 1.0]], mean) == (0.5, 2.5)


def test_stratified_interval_of_many_strata_is_near_the_normal_one() -> None:
    low, high = stratified_interval([[0.0, 1.0]] * 16, mean)  # Binomial(32, 1/2) / 32: deviation 0.0884
    assert (low, high) == (pytest.approx(0.5 - 1.96 * 0.0884, abs=0.04), pytest.approx(0.5 + 1.96 * 0.0884, abs=0.04))


def test_stratified_interval_is_the_same_for_any_order_of_the_seeds() -> None:
    strata = [[0.3, 0.1, 0.7], [0.2, 0.9, 0.5, 0.4]]
    assert stratified_interval(strata, interquartile_mean) == stratified_interval([s[::-1] for s in strata], interquartile_mean)


def test_a_stratum_with_one_value_leaves_no_interval() -> None:
    assert stratified_interval([[0.0, 4.0], [1.0]], mean) is None
    assert stratified_interval([], mean) is None
    assert improvement_interval([([1.0, 2.0], [3.0])]) is None


@pytest.mark.parametrize("n", [2, 5, 6, 7])
def test_resampled_means_are_those_of_the_counts(n: int) -> None:
    values = [0.1 * place**2 for place in range(n)]
    expected = [sum(count * value for count, value in zip(counts, values, strict=True)) / n for counts in resamples(n).counts]
    assert resampled_means(values[::-1]) == pytest.approx(expected)


def test_improvement_counts_pairs_and_half_of_the_ties() -> None:
    assert improvement([1.0, 2.0], [0.0, 2.0]) == (1 + 0 + 1 + 0.5) / 4
    assert improvement([1.0], [0.0]) == 1.0
    assert improvement([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 0.5


def test_improvement_interval_of_one_stratum_is_open_and_of_sixteen_near_the_normal_one() -> None:
    one = ([0.0, 4.0], [1.0, 3.0])  # 4 beats all, 0 none: 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4, deviation 0.354
    assert improvement_interval([one]) == (0.0, 1.0)
    low, high = improvement_interval([one] * 16)
    assert (low, high) == (pytest.approx(0.5 - 1.96 * 0.354 / 4, abs=0.05), pytest.approx(0.5 + 1.96 * 0.354 / 4, abs=0.05))


def test_improvement_interval_of_sides_that_never_mix_is_a_point() -> None:
    assert improvement_interval([([5.0, 6.0, 7.0], [1.0, 2.0])] * 3) == (pytest.approx(1.0), pytest.approx(1.0))


def test_profile_is_the_share_of_values_that_reach_a_threshold() -> None:
    assert profile([0.5, 0.2, 1.0, 0.5], [0.0, 0.5, 0.6, 1.0, 1.1]) == [1.0, 0.75, 0.25, 0.25, 0.0]
