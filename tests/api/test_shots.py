"""Shots: which examples join, how often each cell is drawn, what stays as it is, and who is refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from click.testing import CliRunner

from compbench.api.context import Batch
from compbench.api.interfaces import Metric, SamplePair, Task, TaskContext, Value
from compbench.api.schemas import Record, RunRequest
from compbench.api.shots import (
    OpenWithShots,
    OtherExamples,
    SiloWithShots,
    among_others,
    hashes_of,
    with_shots,
    without_shots,
)
from compbench.cli.main import main
from compbench.registry.registry import Registry
from compbench.registry.resolve import configured
from compbench.store.validate import check_shots
from compbench.sweep.matrix import Resolver
from compbench.system.errors import CompbenchError
from compbench.tasks.dsprites_evaluation import all_refined

REGISTRY = Registry()


def opened(task: Task, folder: Path, seed: int = 0) -> OpenWithShots:
    source = task.source(folder, "embedded")
    found = task.open(TaskContext(torch.device("cpu"), "fp32", seed, folder, folder, source, "smoke"))
    assert isinstance(found, OpenWithShots)
    return found


class Seen:
    """A silo whose every example is -1 of the condition 0."""

    name, size = "seen", 10

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        assert size > 0
        return Batch(torch.full((size, 2), -1.0), torch.zeros(size, 1, dtype=torch.long))


def test_every_cell_is_drawn_equally_often_whatever_it_has_of_examples() -> None:
    shots = Batch(torch.arange(6.0)[:, None].expand(6, 2), torch.tensor([[1], [1], [2], [2], [3], [3]]))
    silo = SiloWithShots(Seen(), shots, num_seen=1, num_held=3)
    generator = torch.Generator().manual_seed(0)
    batch = silo.batch(8000, generator)
    shares = torch.bincount(batch.condition[:, 0], minlength=4) / 8000
    assert torch.allclose(shares, torch.full((4,), 0.25), atol=0.02)
    for x1, (condition,) in zip(batch.x1[:200], batch.condition[:200].tolist(), strict=True):
        assert x1[0] == -1 if condition == 0 else x1[0] in shots.x1[shots.condition[:, 0] == condition, 0]
    assert silo.size == 16
    assert all(len(silo.batch(1, generator).x1) == 1 for _ in range(40))  # also where all rows, or none, are shots


def test_shots_are_real_examples_of_each_held_out_cell_and_those_of_fewer_come_first(tmp_path: Path) -> None:
    task = REGISTRY.load("tasks", "dsprites-light")
    one, three = (opened(with_shots(task, count), tmp_path) for count in (1, 3))
    held = torch.tensor(task.holdout.cells)
    assert torch.equal(three.examples.condition[:, list(task.holdout.factors)], held.repeat_interleave(3, 0))
    assert three.shots.num_cells == len(held)
    assert torch.equal(one.examples.condition, three.examples.condition[::3])
    assert torch.equal(one.examples.x1, three.examples.x1[::3])
    assert not torch.equal(opened(with_shots(task, 1), tmp_path, seed=1).examples.condition, one.examples.condition)
    inside: Any = one.task
    for condition, x1 in zip(one.examples.condition, one.examples.x1, strict=True):
        true = inside.images(all_refined(condition[None], inside.lattices)[0])
        assert (true.float() / 127.5 - 1 == x1).flatten(1).all(1).any()


def test_the_problem_has_the_shots_in_its_silo_and_keeps_its_holdout(tmp_path: Path) -> None:
    plain = REGISTRY.load("tasks", "bump-center")
    task = configured(plain, {"task.shots": 1, "task.size": 20, "task.last": 12})
    found = opened(task, tmp_path)
    problem = found.problem(task.budgets["smoke"])
    silo = problem.federation.pooled()
    batch = silo.batch(4000, torch.Generator().manual_seed(0))
    held = problem.holdout.contains(batch.condition)
    assert held.float().mean().item() == pytest.approx(49 / 400, abs=0.02)
    assert len(batch.condition[held].unique(dim=0)) == 49
    assert problem.holdout == task.holdout == configured(plain, {"task.size": 20, "task.last": 12}).holdout
    assert silo.size == 400
    assert len(silo.condition) == 400


def test_without_shots_a_task_is_the_task_that_it_was() -> None:
    task = REGISTRY.load("tasks", "shapes3d-heavy")
    assert configured(task, {"task.shots": 0}) is task
    settings = configured(task, {"task.shots": 4, "task.coverage": 0.5}).settings.model_dump()
    assert settings == {**configured(task, {"task.coverage": 0.5}).settings.model_dump(), "shots": 4}


def test_an_identity_is_foretold_without_opening_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenWithShots, "__init__", lambda *_: pytest.fail("the data was opened"))
    known = {"preset": "smoke", "device": "cpu", "home": str(tmp_path)}
    asked = RunRequest.of(task="two-sprites", method="mono", overrides={"task.shots": 2}, **known)
    assert Resolver(tmp_path).spec(asked).task_settings["shots"] == 2


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("gauss2d-fact-id", 1, "formulas or rules"),
        ("queens-8", 1, "formulas or rules"),
        ("cmnist-noniid", 4, "10 silos"),
        ("shapes3d-extend", 4, "holds nothing out"),
        ("rotation", 1, "no real examples"),
        ("shapes3d-heavy", -1, "0 to 1000"),
        ("shapes3d-heavy", "many", "0 to 1000"),
    ],
)
def test_a_task_without_examples_and_a_senseless_number_are_refused_in_one_line(name: str, asked: object, said: str) -> None:
    with pytest.raises(CompbenchError, match=f"task.shots={asked}.*{said}"):
        with_shots(REGISTRY.load("tasks", name), asked)


def test_more_shots_than_there_are_examples_are_refused_when_the_data_is_open(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="'bump-center' has 1 example of x 6, y 6; ask for 1 at most"):
        opened(with_shots(REGISTRY.load("tasks", "bump-center"), 2), tmp_path)


def test_distances_leave_the_shots_out_of_their_real_examples() -> None:
    generator = torch.Generator().manual_seed(0)
    real, floor = (torch.randint(256, (6, 1, 4, 4), generator=generator, dtype=torch.uint8) for _ in range(2))
    pair = SamplePair(
        real.expand(-1, 3, -1, -1), real.expand(-1, 3, -1, -1), floor.expand(-1, 3, -1, -1), lambda which, of: numpy.arange(6)
    )
    shots = frozenset(hashes_of(real[[1, 4]], (1, 4, 4)))
    found = without_shots(pair, shots, (1, 4, 4))
    assert torch.equal(found.real, pair.real[[0, 2, 3, 5]])
    assert found.features("judge", "real").tolist() == [0, 2, 3, 5]
    assert len(found.generated) == len(found.floor) == 4
    assert without_shots(pair, frozenset(), (1, 4, 4)) is pair
    everything = frozenset(hashes_of(real, (1, 4, 4)))
    assert without_shots(pair, everything, (1, 4, 4)) is pair


def test_a_score_counts_the_samples_that_are_left_without_the_shots() -> None:
    """One real example of three is a shot: precision is a share of the two pictures that are compared, and says so."""
    pictures = torch.arange(3, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 4, 4).contiguous()
    pair = SamplePair(pictures, pictures, pictures + 9, lambda which, of: numpy.arange(3))
    others = OtherExamples((3, 4, 4))
    others.shots = frozenset(hashes_of(pictures[:1], (3, 4, 4)))
    plain = Metric("share", "share of even pictures", "", "higher", compute=lambda pair, _: Value(len(pair.generated) / 10))
    metric = among_others(plain, others)
    assert metric.compute is not None
    found = metric.compute(pair, None)
    assert found.value == 0.2
    assert metric.score("heldout", found.value, n=len(pair.generated)).n == 2
    assert metric.score("seen", 0.5, n=7).n == 7  # nothing was computed since
    assert among_others(replace(plain, compute=None), others).compute is None


def test_a_run_trains_on_the_shots_and_its_record_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    file = tmp_path / "counting.py"
    file.write_text(COUNTING)
    words = [
        "run",
        "--method",
        "counting",
        "--task",
        "bump-center",
        "--preset",
        "smoke",
        "--plugin",
        str(file),
        "--device",
        "cpu",
    ]
    runs = []
    for shots in (None, 0, 1):
        more = [] if shots is None else ["--set", f"task.shots={shots}"]
        result = CliRunner().invoke(main, [*words, "--json", "--quiet", *more], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        runs.append(Record.model_validate(json.loads(result.stdout.splitlines()[-1])))
    plain, none, one = runs
    assert plain.identity == none.identity != one.identity
    assert "shots" not in none.spec.task_settings
    assert plain.notes["fit heldout"] == 0
    assert one.notes["fit heldout"] == pytest.approx(289 / 784, abs=0.03)
    assert one.notes["fit heldout cells"] == 289
    score = one.score("heldout_shape_accuracy")
    assert score is not None
    assert score.n == 289
    assert one.shots is not None
    cells = Counter(name.partition("#")[0] for name in one.shots.examples)
    assert cells == {f"{x}.{y}": 1 for x in range(6, 23) for y in range(6, 23)}
    check_shots(one)
    check_shots(plain)
    wrong = CliRunner().invoke(main, [*words, "--quiet", "--set", "task.shots=2"])
    assert wrong.exit_code == 2
    assert wrong.stderr.count("\n") == 1


COUNTING = '''
"""Count the examples of held-out cells among many; answer noise."""
from compbench import Method, MethodSettings, hookimpl


def fit(settings, problem, ctx):
    batch = problem.federation.pooled().batch(8000, ctx.generator)
    held = problem.holdout.contains(batch.condition)
    ctx.notes["heldout"] = held.float().mean().item()
    ctx.notes["heldout cells"] = len(batch.condition[held].unique(dim=0))
    return None


def sample(settings, model, request, ctx):
    return request.x0


@hookimpl
def compbench_methods():
    return (Method(name="counting", settings=MethodSettings, fit=fit, sample=sample),)
'''
