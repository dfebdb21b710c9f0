"""error_against_evaluations: the split of an error, points that are not measured twice, and the figure of what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import error_against_evaluations as experiment
import pytest


def row(kind: str, evaluations: int, sw2: float, label: str = "fkc", task: str = "gmm-id") -> dict[str, Any]:
    known = {"task": task, "scores": kind, "label": label, "floor": [0.1, 0.2, 0.3]}
    return {**known, "evaluations": evaluations, "sw2": sw2}


def test_the_parts_of_an_error_sum_to_it_and_pair_runs_of_equal_steps() -> None:
    exact = [row("exact", 303, 0.4), row("exact", 33, 1.0), row("exact", 99, 0.7, "rne")]
    learnt = [row("learnt", 33, 1.5), row("learnt", 303, 0.3), row("learnt", 96, 0.9, "rne")]
    parts = {(part["label"], part["evaluations"]): part for part in experiment.split([*learnt, *exact])}
    assert {key: part["inference"] for key, part in parts.items()} == {("fkc", 33): 1.0, ("fkc", 303): 0.4, ("rne", 96): 0.7}
    assert parts["fkc", 33]["estimation"] == pytest.approx(0.5)
    assert parts["fkc", 303]["estimation"] == pytest.approx(-0.1)
    assert all(part["total"] == pytest.approx(part["inference"] + part["estimation"]) for part in parts.values())


def test_a_run_that_is_too_dear_on_learnt_scores_is_not_paired_with_another() -> None:
    parts = experiment.split([row("exact", 606, 0.6), row("exact", 1212, 0.4), row("learnt", 606, 0.9)])
    assert [part["evaluations"] for part in parts] == [606]


def test_points_that_are_known_are_not_measured_again_and_a_missing_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tuple(experiment.Run("naive-sde", "naive-sde", steps, {}) for steps in (2, 4))
    monkeypatch.setattr(experiment, "RUNS", runs)
    monkeypatch.setattr(experiment, "NUM_SAMPLES", 20)
    found: list[dict[str, Any]] = []
    experiment.measure("gauss2d-fact-id", "exact", [row("exact", 9, 0.5, "naive-sde", "gauss2d-fact-id")], found.append)
    assert [point["evaluations"] for point in found] == [15]
    experiment.measure("gauss2d-fact-id", "exact", [row("exact", 9, 0.5, "naive-sde", "gauss2d-fact-id"), *found], pytest.fail)


def test_the_figure_has_a_row_of_estimation_where_both_scores_were_run(tmp_path: Path) -> None:
    experiment.draw([row("exact", 33, 1.0), row("learnt", 33, 1.5)], tmp_path / "both.png")
    experiment.draw([row("exact", 33, 1.0)], tmp_path / "one.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("both.png", "one.png"))
