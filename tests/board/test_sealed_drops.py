"""Drops from the public to the sealed holdout: which rows are twins, and Welch's interval against SciPy's."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_ind
from support.sample_records import record, score

from compbench.api.schemas import Tuning
from compbench.board.aggregate import aggregate
from compbench.board.notation import notes
from compbench.board.sealed_drops import drops, drops_csv, drops_markdown


def test_a_sealed_row_and_its_public_twin_give_a_drop_with_welch_s_interval() -> None:
    public, hidden = [0.9, 0.8, 0.85], [0.5, 0.7, 0.6]
    made = [record(score(value=value), seed=seed) for seed, value in enumerate(public)]
    for seed, value in enumerate(hidden):
        settings = {"coverage": 0.0, "design": "permuted", "split_seed": 77 + seed}
        made.append(record(score(value=value), seed=seed, task_settings=settings, more={"sealed": True}))
    (found,) = drops(aggregate(made).rows)
    expected = ttest_ind(public, hidden, equal_var=False).confidence_interval(0.95)
    assert found.runs == (3, 3)
    assert found.drop == pytest.approx(0.25)
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert drops_csv([found]).splitlines()[1].startswith("shapes3d-heavy,")
    assert "| 0.850 | 0.600 | 0.250 |" in drops_markdown([found])


def test_a_sealed_row_is_compared_with_the_public_row_of_its_own_version() -> None:
    versions = {1: 0.2, 2: 0.8}
    made = [record(score(value=versions[one]), seed=seed, method_version=one) for one in versions for seed in (0, 1)]
    for seed in (0, 1):
        own = {"coverage": 0.0, "design": "permuted", "split_seed": 77 + seed}
        made.append(record(score(value=0.7), seed=seed, method_version=2, task_settings=own, more={"sealed": True}))
    (found,) = drops(aggregate(made).rows)
    assert found.drop == pytest.approx(0.1)


def test_sealed_rows_of_different_patterns_share_a_section_and_are_no_point_of_a_ladder() -> None:
    settings = [{"coverage": 0.0, "design": "permuted", "split_seed": seed} for seed in (7, 8)]
    made = [
        record(score(value=0.5), method=name, task_settings=own, more={"sealed": True})
        for name, own in zip(("mono", "factored"), settings, strict=True)
    ]
    one, other = aggregate(made).rows
    assert one.section == other.section
    assert one.section.changed == ("sealed",)


def test_a_row_says_that_it_was_tuned_and_what_that_cost() -> None:
    study = {"task": "bump-center", "preset": "quick", "trials": 30, "objective": "energy score of nested held-out combinations"}
    tuned = Tuning(**study, num_cells=200, value=0.1, default_value=0.2, train_flops=2e12, cpu_seconds=100)
    (row,) = aggregate([record(seed=seed, more={"tuning": tuned}) for seed in (0, 1)]).rows
    assert any(note.startswith("tuned in 30 trials by the energy score") and "2.00 TFLOP" in note for note in notes(row))
