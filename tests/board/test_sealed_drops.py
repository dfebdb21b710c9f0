"""Drops from the public to the sealed holdout: which rows are twins, and Welch's interval against SciPy's."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_ind
from support.sample_records import record, score

from compbench.board.aggregate import aggregate
from compbench.board.sealed_drops import drops


def test_a_sealed_row_and_its_public_twin_give_a_drop_with_welch_s_interval() -> None:
    public, hidden = [0.9, 0.8, 0.85], [0.5, 0.7, 0.6]
    made = [record(score(value=value), seed=seed) for seed, value in enumerate(public)]
    for seed, value in enumerate(hidden):
        settings = {"coverage": 0.5, "design": "random", "split_seed": 77}
        made.append(record(score(value=value), seed=seed, task_settings=settings, more={"sealed": True}))
    (found,) = drops(aggregate(made).rows)
    expected = ttest_ind(public, hidden, equal_var=False).confidence_interval(0.95)
    assert found.runs == (3, 3)
    assert found.drop == pytest.approx(0.25)
    assert found.interval == pytest.approx((expected.low, expected.high))
