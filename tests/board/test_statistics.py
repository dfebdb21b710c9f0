"""Intervals and quantiles against tables and closed forms."""

from __future__ import annotations

import sys

import pytest

from compbench.board import statistics
from compbench.board.statistics import f_quantile, holm, interval, p_value, t_quantile, t_tail, wilson
from compbench.system.errors import CompbenchError


def test_quantiles_are_those_of_printed_tables() -> None:
    assert (t_quantile(1, 0.975), t_quantile(2, 0.975), t_quantile(10, 0.95)) == pytest.approx(
        (12.7062, 4.30265, 1.81246), rel=1e-5
    )
    assert f_quantile(3, 6, 0.975) == pytest.approx(6.5988, rel=1e-4)
    assert t_tail(1.0, 1) == pytest.approx(0.25)  # Cauchy: 1/2 - arctan(1) / pi


def test_the_p_value_of_paired_differences_is_scipys() -> None:
    scipy = pytest.importorskip("scipy.stats")
    gains = [0.3, -0.1, 0.4, 0.25]
    own = p_value(sum(gains) / 4, statistics.sample_std(gains) ** 2, 4, 3)
    assert own == pytest.approx(scipy.ttest_1samp(gains, 0.0).pvalue)
    assert p_value(-sum(gains) / 4, statistics.sample_std(gains) ** 2, 4, 3) == own
    assert (p_value(0.0, 0.0, 3, 2), p_value(0.1, 0.0, 3, 2), p_value(0.0, 1.0, 3, 2)) == (1.0, 0.0, 1.0)


def test_an_interval_of_three_runs_is_students() -> None:
    low, high = interval([1.0, 2.0, 3.0])  # s = 1, half = 4.30265 / sqrt(3)
    assert ((low + high) / 2, (high - low) / 2) == pytest.approx((2.0, 4.302653 / 3**0.5))


def test_one_run_has_no_interval() -> None:
    assert interval([0.3]) is None
    assert interval([0.3], trials=100) is None


def test_three_runs_that_agree_keep_their_binomial_error() -> None:
    share = 49 / 320
    assert interval([share] * 3, trials=320) == pytest.approx(wilson(share, 960))
    assert interval([0.0] * 3, trials=100).high > 0.01
    assert interval([share] * 3) == (share, share)  # without trials nothing else is known


def test_wilsons_interval_is_that_of_the_textbook() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_holm_stops_at_the_first_that_stands() -> None:
    # sorted 0.005, 0.011, 0.02, 0.04 against 0.0125, 0.0167, 0.025, 0.05: all fall
    assert holm([0.02, 0.005, 0.04, 0.011]) == [True] * 4
    # 0.02 > 0.05 / 3 stops it; 0.021, though below 0.05 / 2, stands with it
    assert holm([0.02, 0.001, 0.021, 0.9]) == [False, True, False, False]
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([]) == []


def test_a_board_without_scipy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    statistics._special.cache_clear()
    with pytest.raises(CompbenchError, match=r"compbench\[run\]"):
        t_tail(1.234, 5)
    monkeypatch.undo()
    statistics._special.cache_clear()
