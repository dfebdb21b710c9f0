import math

import pytest
from scipy import stats

from compbench.board.statistics import t_quantile
from compbench.gate.paired_test import compare, compare_scores, pairs_needed


def test_bounds_of_three_pairs_by_hand() -> None:
    found = compare([1.0, 2.0, 3.0], 0.2)  # mean 2, s 1, t_2 = 2.920: 2 -/+ 1.686
    assert found[:2] == (3, 2.0)
    assert (found.low, found.high) == (pytest.approx(0.3141, abs=1e-4), pytest.approx(3.6859, abs=1e-4))
    assert found.finding == "worse"
    assert found.p_value == pytest.approx(stats.ttest_1samp([1, 2, 3], 0.2, alternative="greater").pvalue)


@pytest.mark.parametrize(
    ("worsenings", "finding"),
    [
        ([0.0, 0.0], "not worse"),
        ([0.0], "not worse"),
        ([0.3], "unclear"),
        ([0.1, 0.1, 0.1], "worse"),
        ([0.01, 0.01], "not worse"),
        ([-0.5, -0.4, -0.6], "not worse"),
        ([0.1, -0.1, 0.05], "unclear"),
    ],
)
def test_finding_is_that_of_the_bounds_against_the_margin(worsenings, finding) -> None:
    assert compare(worsenings, 0.02).finding == finding


def test_needed_pairs_would_have_told_and_one_fewer_would_not() -> None:
    n = pairs_needed(0.05, 0.1)
    assert t_quantile(n - 1, 0.95) * 0.1 / math.sqrt(n) < 0.05 <= t_quantile(n - 2, 0.95) * 0.1 / math.sqrt(n - 1)


def test_no_number_of_pairs_tells_a_mean_on_the_margin() -> None:
    assert pairs_needed(0.0, 0.1) is None


def test_needed_pairs_are_more_than_those_at_hand() -> None:
    assert compare([0.1, -0.1, 0.05], 0.02).needed > 3


def test_scores_are_paired_by_seed_and_signed_by_direction() -> None:
    base, head = {0: 0.9, 1: 0.5, 7: 0.1}, {1: 0.3, 0: 0.7, 8: 0.0}
    lower = compare_scores(base, head, direction="lower", margin=0.02)
    higher = compare_scores(base, head, direction="higher", margin=0.02)
    assert (lower.n, lower.finding, higher.finding) == (2, "not worse", "worse")
    assert higher.mean == pytest.approx(0.2)


def test_scores_without_a_common_seed_are_no_comparison() -> None:
    assert compare_scores({0: 1.0}, {1: 1.0}, direction="lower", margin=0.0) is None
