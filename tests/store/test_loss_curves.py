"""Curves of loss and throughput: a loop's own numbers, thinned without loss of their sums, that resume and fit a record."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from support.sample_records import record
from torch import Generator, nn

from compbench.api.context import Batch, Context, Window
from compbench.api.interfaces import Budget
from compbench.api.schemas import LARGEST, MOST_CURVES, MOST_POINTS, LossCurve, RunRequest
from compbench.flow.train import LOSS_WINDOW, train
from compbench.runner.checkpoints import FileCheckpoints
from compbench.runner.one_run import run
from compbench.store.format import dump, parse
from compbench.store.loss_curves import LossCurves, unrecovered_spike, unrecovered_spikes
from compbench.system.errors import Cancelled

BATCH, LOWEST = 4, 60


class Clock:
    """A second more at every look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class CountingSilo:
    """Its s-th batch holds the number s."""

    name, size = "counting", 1000

    def __init__(self) -> None:
        self.step = 0

    def batch(self, size: int, generator: Generator) -> Batch:
        x1 = torch.full((size, 1), float(self.step))
        self.step += 1
        return Batch(x1, torch.zeros(size, 1, dtype=torch.long))

    def seek(self, step: int) -> None:
        self.step = step


def quadratic(net: nn.Module, batch: Batch, generator: Generator) -> torch.Tensor:
    """(s - 60)^2 at step s, whatever the network is."""
    return 0 * net(batch.x1).sum() + (batch.x1 - LOWEST).square().mean()


def fitted(curves: LossCurves, folder: Path, num_steps: int, *, until: int = 10**9, resume: bool = False) -> None:
    """A fit of so many steps, asked to stop before the step `until`."""
    silo, checkpoints = CountingSilo(), FileCheckpoints(folder / "fit.safetensors", resume=resume, curves=curves)
    context = Context(torch.device("cpu"), "fp32", Generator(), checkpoints, cancelled=lambda: silo.step >= until)
    context.watched = lambda part, window: curves.add(f"fit{part}", window)
    budget = Budget(train_steps=num_steps, batch_size=BATCH, width=8, learning_rate=1e-3, sample_steps=2)
    curves.begin()
    train(nn.Linear(1, 1), quadratic, silo, budget, context)


def mean_of_steps(begin: int, end: int) -> float:
    """The mean of (s - 60)^2 over s = begin, ..., end - 1, from the sums of s and s^2."""
    n, ones = end - begin, sum(range(begin, end))
    squares = (end - 1) * end * (2 * end - 1) // 6 - (begin - 1) * begin * (2 * begin - 1) // 6
    return squares / n - 2 * LOWEST * ones / n + LOWEST**2


def window(begin: int, done: int, loss: float = 1.0) -> Window:
    return Window(torch.full((done - begin,), loss), begin, done, BATCH)


def test_the_curve_of_a_quadratic_is_its_mean_over_each_window(tmp_path: Path) -> None:
    curves = LossCurves(Clock())
    fitted(curves, tmp_path, 130)
    (curve,) = curves.found()
    assert curve.steps == (50, 100, 130)
    assert curve.loss == pytest.approx([mean_of_steps(0, 50), mean_of_steps(50, 100), mean_of_steps(100, 130)], rel=1e-3)
    assert curve.examples_per_second == (50 * BATCH, 50 * BATCH, 30 * BATCH)  # a second a look


def test_a_fit_stopped_between_looks_goes_on_with_its_curve(tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        fitted(LossCurves(), tmp_path, 200, until=100)
    whole, resumed, cut = LossCurves(), LossCurves(), LossCurves()
    fitted(resumed, tmp_path, 200, resume=True)
    fitted(whole, tmp_path / "whole", 200)
    assert [(curve.steps, curve.loss) for curve in resumed.found()] == [(curve.steps, curve.loss) for curve in whole.found()]
    with pytest.raises(Cancelled):
        fitted(LossCurves(), tmp_path, 200, until=130)
    fitted(cut, tmp_path, 200, resume=True)
    (curve,) = cut.found()
    assert curve.steps == (50, 100, 150, 200)
    assert curve.loss[2] == pytest.approx(mean_of_steps(130, 150), rel=1e-3)  # what it saw of that window


def test_a_checkpoint_of_a_fit_without_curves_resumes_with_the_rest(tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        fitted(LossCurves(), tmp_path, 200, until=100)
    kept = FileCheckpoints(tmp_path / "fit.safetensors", resume=True)
    tensors, facts = kept.load()
    assert facts == {"step": 100}  # the harness's own is no business of the method's
    kept.save(tensors, facts)
    curves = LossCurves()
    fitted(curves, tmp_path, 200, resume=True)
    assert curves.found()[0].steps == (150, 200)


@pytest.mark.parametrize("num_windows", [1, 7, MOST_POINTS, MOST_POINTS + 1, 5 * MOST_POINTS + 3])
def test_thinning_keeps_steps_losses_and_seconds(num_windows: int) -> None:
    curves = LossCurves(Clock())
    for k in range(num_windows):
        curves.add("fit", window(LOSS_WINDOW * k, LOSS_WINDOW * (k + 1), loss=float(k)))
    (curve,) = curves.found()
    assert min(num_windows, MOST_POINTS // 2) <= len(curve.steps) <= MOST_POINTS
    assert curve.steps[-1] == LOSS_WINDOW * num_windows
    lengths = [step - before for before, step in zip((0, *curve.steps[:-1]), curve.steps, strict=True)]
    assert len(set(lengths[:-1])) <= 1  # all but the last are of one stride
    total = sum(loss * length for loss, length in zip(curve.loss, lengths, strict=True))
    assert total == pytest.approx(LOSS_WINDOW * sum(range(num_windows)), rel=1e-3)
    assert sum(BATCH * n / rate for n, rate in zip(lengths, curve.examples_per_second, strict=True)) == pytest.approx(
        num_windows, rel=1e-3
    )


def test_all_rounds_of_a_silo_are_one_curve_and_silos_are_told_apart() -> None:
    curves = LossCurves()
    for number in range(5):
        for silo in ("left", "right side"):
            curves.add(f"fit.round-{number}-{silo}", window(0, 20 + number))
    assert {curve.name: curve.steps for curve in curves.found()} == {
        "fit.left": (20, 41, 63, 86, 110),
        "fit.right_side": (20, 41, 63, 86, 110),
    }


def test_however_many_loops_a_record_holds_a_hundred_points() -> None:
    curves = LossCurves()
    for loop in range(2 * MOST_CURVES):
        for k in range(40):
            curves.add(f"fit.{loop}", window(50 * k, 50 * (k + 1)))
    found = curves.found()
    assert len(found) == MOST_CURVES
    assert sum(len(curve.steps) for curve in found) <= MOST_POINTS
    made = record(more={"losses": found})
    assert parse(dump(made)) == made
    assert len(dump(made)) - len(dump(record())) < 8000


def test_one_long_curve_takes_less_than_four_kilobytes() -> None:
    curves = LossCurves()
    for k in range(20 * MOST_POINTS):
        curves.add("fit", window(50 * k, 50 * (k + 1), loss=math.exp(-k / 100)))
    assert len(dump(record(more={"losses": curves.found()}))) - len(dump(record())) < 4000


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e30])
def test_a_loss_that_no_record_takes_is_passed_over(loss: float) -> None:
    curves = LossCurves()
    curves.add("fit", window(0, 50, loss))
    assert curves.found() == ()
    curves.add("fit", window(50, 100))
    assert curves.found()[0].steps == (100,)


@pytest.mark.parametrize(
    "state", [None, [], {"fit": 3}, {"fit": {"points": [[1, 2]]}}, {"fit": {"stride": 0}}, {"fit": {"more": 1}}]
)
def test_a_state_that_is_none_is_passed_over(state) -> None:
    curves = LossCurves()
    curves.add("fit", window(0, 50))
    curves.restore(state)
    assert curves.found()[0].steps == (50,)


GOOD = {"name": "fit", "steps": (1, 2), "loss": (1.0, 0.5), "examples_per_second": (3.0, 4.0)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"steps": (2, 2)}, "increase"),
        ({"steps": (2, 1)}, "increase"),
        ({"steps": (0, 1)}, "greater than or equal to 1"),
        ({"steps": (1,)}, "as many losses"),
        ({"loss": (1.0,)}, "as many losses"),
        ({"loss": (1.0, math.nan)}, "finite"),
        ({"loss": (1.0, 10.0 * LARGEST)}, "less than or equal"),
        ({"examples_per_second": (1.0, -1.0)}, "greater than or equal"),
        ({"name": "../fit"}, "pattern"),
        ({"name": ""}, "pattern"),
        ({"steps": (), "loss": (), "examples_per_second": ()}, "at least 1"),
        ({"more": 1}, "not permitted"),
    ],
)
def test_what_is_no_curve_is_in_no_record(change, why: str) -> None:
    LossCurve.model_validate(GOOD)
    with pytest.raises(ValidationError, match=why):
        LossCurve.model_validate({**GOOD, **change})


@pytest.mark.parametrize(
    "curves",
    [
        [GOOD, GOOD],
        [{**GOOD, "name": f"{k}"} for k in range(MOST_CURVES + 1)],
        [
            {name: tuple(range(1, 1 + MOST_POINTS)) for name in ("steps", "loss", "examples_per_second")} | {"name": "a"},
            {**GOOD, "name": "b"},
        ],
    ],
)
def test_a_record_takes_few_curves_of_few_points(curves) -> None:
    raw = record().model_dump(mode="json")
    with pytest.raises(ValidationError, match="losses"):
        type(record()).model_validate({**raw, "losses": curves})


def asked(home: Path, method: str, task: str = "gmm-id", **budget: int) -> RunRequest:
    overrides = {f"budget.{name}": value for name, value in {"train_steps": 120, "sample_steps": 2, **budget}.items()}
    return RunRequest(method=method, task=task, preset="smoke", overrides=overrides, home=str(home))


def test_a_run_keeps_its_curve_and_runs_that_share_its_fit_show_the_same(tmp_path: Path) -> None:
    first, second = (run(asked(tmp_path, method), in_process=True).record for method in ("naive-ode", "naive-sde"))
    (curve,) = first.losses
    assert (curve.name, curve.steps) == ("fit", (50, 100, 120))
    assert curve.loss[2] < curve.loss[0]
    assert "fit shared" in second.notes
    assert second.losses == first.losses


@pytest.mark.slow
def test_a_run_in_silos_has_a_curve_a_silo(tmp_path: Path) -> None:
    made = run(asked(tmp_path, "fedavgm", "blobs-noniid", train_steps=30), in_process=True).record
    assert [curve.name for curve in made.losses] == ["fit.silo_1", "fit.silo_2"]
    assert {curve.steps[-1] for curve in made.losses} == {30}


def test_curves_that_are_none_end_a_run_in_a_failed_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = LossCurve.model_construct(**{**GOOD, "loss": (1.0,)})
    monkeypatch.setattr(LossCurves, "found", lambda self: (forged,))
    made = run(asked(tmp_path, "naive-ode", train_steps=2), in_process=True).record
    assert made.status == "failed"
    assert "as many losses" in made.reason
    assert made.losses == ()


def curve(*losses: float) -> LossCurve:
    steps = tuple(range(100, 100 * len(losses) + 1, 100))
    return LossCurve(name="fit", steps=steps, loss=losses, examples_per_second=(1.0,) * len(losses))


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((8.0, 1.0, 0.5), ""),
        ((8.0, 1.0, 5.0, 2.0), "fit rose 5-fold by step 300"),
        ((8.0, 1.0, 5.0, 1.2), ""),  # came back
        ((8.0, 1.0, 3.9, 3.9), ""),  # noise, or a penalty that grows
        ((8.0, 1.0, 5.0, 0.1, 2.0, 1.0), "fit rose 20-fold by step 500"),
        ((3.0,), ""),
        ((1.0, -1.0, 9.0), ""),
        ((0.0, 9.0), ""),
    ],
)
def test_a_loss_that_rose_and_stayed_up_is_said(losses: tuple[float, ...], words: str) -> None:
    assert unrecovered_spike(curve(*losses)) == words


def test_spikes_that_did_not_recover_name_the_seed() -> None:
    runs = [record(seed=seed, more={"losses": (curve(1.0, 9.0, 8.0 - 7.0 * seed),)}) for seed in (0, 1)]
    assert unrecovered_spikes(runs) == ("seed 0: fit rose 9-fold by step 200",)
