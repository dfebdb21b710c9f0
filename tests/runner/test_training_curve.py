"""Scores along training: stops by halves, the same fit at the end, and methods that cannot be stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from compbench.api.schemas import RunRequest
from compbench.runner.one_run import run
from compbench.runner.training_curve import stops
from compbench.store.counts import beyond_budget, counted


def test_stops_are_halves_without_the_end() -> None:
    assert stops(60, 3) == (8, 15, 30)
    assert stops(4, 10) == (1, 2)
    assert stops(1, 5) == ()
    assert stops(100, 0) == ()


def asked(home: Path, method: str = "naive-ode", task: str = "gmm-id", curve: int = 0, **budget: int) -> RunRequest:
    overrides = {f"budget.{name}": value for name, value in {"train_steps": 8, "sample_steps": 2, **budget}.items()}
    return RunRequest(method=method, task=task, preset="smoke", overrides=overrides, home=str(home), curve=curve)


def test_a_fit_that_is_stopped_for_its_curve_ends_as_one_that_is_not(tmp_path: Path) -> None:
    plain = run(asked(tmp_path), in_process=True).record
    curved = run(asked(tmp_path, curve=2), in_process=True).record  # a finished record without a curve is not enough
    assert (curved.identity, curved.attempt) == (plain.identity, 2)
    assert curved.scores == plain.scores
    assert not curved.resumed
    assert [point.step for point in curved.curve] == [2, 4]
    assert set(curved.curve[0].scores) == {"heldout_sw2", "seen_sw2"}
    assert counted(curved)["optimiser_steps"] == counted(plain)["optimiser_steps"] == 8
    assert not beyond_budget(curved)
    assert run(asked(tmp_path, curve=2), in_process=True).reused


def test_a_point_of_the_curve_is_what_those_weights_score(tmp_path: Path) -> None:
    """With a constant rate the fit of four steps is the first half of that of eight."""
    rates = {"final_learning_rate": 1, "learning_rate": 1}
    whole = run(asked(tmp_path, curve=1, **rates), in_process=True).record
    half = run(asked(tmp_path, train_steps=4, **rates), in_process=True).record
    expected = {score.name: score.value for score in half.scores}
    assert whole.curve[0].scores == {name: expected[name] for name in whole.curve[0].scores}


@pytest.mark.parametrize(
    ("method", "task", "why"),
    [
        ("fkc-oracle", "gmm-id", "has no `build`"),
        ("ddm", "blobs-noniid", "is not one loop of compbench.flow.train"),
    ],
)
def test_what_cannot_be_stopped_says_so(method: str, task: str, why: str, tmp_path: Path) -> None:
    record = run(asked(tmp_path, method, task, curve=1), in_process=True).record
    assert record.status == "failed"
    assert why in record.reason
