"""The set of possible bests keeps the true best, and intervals hold the mean of fits of two kinds."""

from __future__ import annotations

import pytest
from best_set import covered, kept


@pytest.mark.parametrize("law", ["one row scatters tenfold", "half scatter tenfold", "spreads from 1 to 10"])
def test_the_set_keeps_the_true_best_at_three_seeds_and_spreads_of_ten_to_one(law: str) -> None:
    assert kept(law, 11, 3, repeats=300)[0] >= 0.93 - 0.015  # a standard error of the simulation


@pytest.mark.parametrize("failing", [0.1, 0.2, 1 / 3])
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_hold_the_mean_where_a_part_of_the_fits_fails(failing: float, seeds: int) -> None:
    assert min(covered(failing, seeds, poor=poor, repeats=1000) for poor in (0.0, 0.2, 0.6)) >= 0.90
