"""Ranks: ties, pairing, the error over a table, and what the simulation in `experiments` promises."""

from __future__ import annotations

import math

import numpy
import pytest
from interval_coverage import LAWS, coverage, false_after_two_looks, false_tables, found

from compbench.board.discriminability import discriminability
from compbench.board.ranking import ranks, ranks_and_best, significant_pairs


def table(*rows: list[float]) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in rows]


def test_equal_means_share_a_rank_float_noise_or_not() -> None:
    one, other = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    noisy = [value + 1e-13 for value in other]
    found = ranks(table(one, noisy, [0.9, 0.95, 0.91]), higher=True)
    assert [rank.rank for rank in found] == [2, 2, 1]


def test_pairs_of_one_seed_are_compared_so_a_seed_that_helps_all_hides_nothing() -> None:
    helped = [1.0, 5.0, 9.0]
    better = [value * (1.1 + 0.002 * seed) for seed, value in enumerate(helped)]
    assert significant_pairs(table(helped, better)) == {(0, 1)}
    shuffled = [dict(zip((0, 1, 2), helped, strict=True)), dict(zip((1, 2, 0), better, strict=True))]
    assert significant_pairs(shuffled) == set()


def test_a_significant_pair_is_ordered_by_what_was_tested_and_not_by_seeds_that_one_row_lacks() -> None:
    few = dict(enumerate([0.50, 0.51, 0.49, 0.505, 0.495]))
    more = dict(enumerate([0.60, 0.61, 0.59, 0.605, 0.596, 0.1, 0.1, 0.1, 0.1, 0.1]))
    third = dict(enumerate([0.30, 0.31, 0.29, 0.305, 0.295]))
    ranks_, best = ranks_and_best([few, more, third], higher=True)
    assert best == [False, True, False]
    assert ranks_[0].best == 2  # `more` is ahead at each common seed, though its mean over ten seeds is lower


def test_rows_without_two_seeds_in_common_do_not_differ_significantly() -> None:
    assert significant_pairs([{0: 1.0, 1: 1.01}, {2: 9.0, 3: 9.01}, {1: 5.0, 2: 5.1}]) == set()


def test_runs_that_agree_by_chance_are_not_certain() -> None:
    same = [15 / 100] * 3
    assert significant_pairs(table(same, [17 / 100] * 3), trials=100) == set()
    assert significant_pairs(table(same, [75 / 100] * 3), trials=100) == {(0, 1)}


def test_what_hardly_differs_near_nothing_does_not_blur_large_shares() -> None:
    large, middle, small = [0.85, 0.82, 0.85], [0.64, 0.74, 0.67], [0.06, 0.13, 0.13]
    others = [[0.80, 0.81, 0.79], [0.63, 0.61, 0.65], [0.38, 0.38, 0.38], [0.42, 0.43, 0.43], [0.06, 0.12, 0.10]]
    assert {(0, 1), (0, 2), (1, 2)} <= significant_pairs(table(large, middle, small, *others), trials=math.inf)


def test_ranges_and_groups_follow_the_comparisons() -> None:
    rows = table([0.90, 0.91, 0.92], [0.89, 0.93, 0.905], [0.50, 0.51, 0.52], [0.10, 0.11, 0.12])
    assert [tuple(rank) for rank in ranks(rows, higher=True)] == [(1, 1, 2, 1), (2, 1, 2, 1), (3, 3, 3, 2), (4, 4, 4, 3)]
    assert [rank.rank for rank in ranks(rows, higher=False)] == [4, 3, 2, 1]


def test_what_shares_too_few_seeds_with_the_first_is_no_tie_where_it_is_worse_than_another_of_the_group() -> None:
    first, second = {0: 0.90, 1: 0.91}, {0: 0.89, 1: 0.92, 2: 0.90, 3: 0.91}
    others = table([0.50, 0.51, 0.52, 0.51], [0.30, 0.31, 0.32, 0.31])
    worst = {1: 0.10, 2: 0.11, 3: 0.12}  # one seed in common with the first: no test
    found = ranks([first, second, *others, worst], higher=True)
    assert found[0].group == found[1].group == 1
    assert (found[4].rank, found[4].group > 1) == (5, True)


def test_a_single_row_is_first() -> None:
    assert ranks(table([0.3, 0.4]), higher=True) == [(1, 1, 1, 1)]


@pytest.mark.parametrize("law", ["normal", "uniform", "binomial, p = 0.03", "beta 0.9 +- 0.03, binomial"])
def test_intervals_of_three_seeds_cover(law: str) -> None:
    draw, trials = LAWS[law]
    assert coverage(draw, 3, trials=trials, repeats=3000) >= 0.93 - 0.01  # two standard errors of the simulation


@pytest.mark.parametrize(
    ("law", "rows"),
    [
        ("normal", 3),
        ("normal", 8),
        ("beta 0.5 +- 0.05, binomial", 6),
        ("share attained, about 0", 3),
        ("share attained, two tasks", 6),
    ],
)
def test_equal_methods_differ_significantly_in_at_most_one_board_of_twenty(law: str, rows: int) -> None:
    draw, trials = LAWS[law]
    assert false_tables(draw, rows, 3, trials=trials, repeats=600) <= 0.05 + 0.018  # two standard errors


def test_more_seeds_for_what_may_be_best_tell_no_more_equal_methods_of_a_large_table_apart() -> None:
    draw, trials = LAWS["share attained, two tasks"]
    assert false_after_two_looks(draw, 12, 5, 5, trials=trials, repeats=200) <= 0.05 + 0.031  # two standard errors


def test_large_differences_are_found_with_three_seeds() -> None:
    assert found(6, rows=6, seeds=3, repeats=100) > 0.9


def test_discriminability_is_the_share_of_variance_between_methods() -> None:
    rng = numpy.random.default_rng(0)
    methods, seeds = 200, 5
    values = 100 + 2 * rng.normal(size=(methods, 1)) + 5 * rng.normal(size=(1, seeds)) + rng.normal(size=(methods, seeds))
    found = discriminability(table(*values.tolist()))
    assert found.share == pytest.approx(4 / 5, abs=0.04)
    assert found.low < 0.8 < found.high
    assert found.ranks


def test_equal_methods_have_no_discriminability() -> None:
    rng = numpy.random.default_rng(1)
    found = discriminability(table(*(10 + rng.normal(size=(30, 4))).tolist()))
    assert found.share < 0.2
    assert not found.ranks


def test_discriminability_of_one_method_or_one_seed_is_not_known() -> None:
    assert discriminability(table([1.0, 2.0])) is None
    assert discriminability(table([1.0], [2.0])) is None


def test_runs_of_few_trials_that_agree_do_not_prove_that_methods_differ() -> None:
    assert not discriminability(table([0.10] * 3, [0.12] * 3, [0.11] * 3), trials=100).ranks
