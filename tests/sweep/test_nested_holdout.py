"""Holdouts nested in the seen combinations: which cells they hide, what reaches a method, and how samples are scored."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.api.shots import with_shots
from compbench.registry.registry import Registry
from compbench.sweep.nested_holdout import energy_score, nested, nested_cells
from compbench.system.errors import CompbenchError

TASKS = ["bump-center", "shapes3d-medium", "shapes3d-light", "cmnist-noniid"]


def test_the_energy_score_of_the_true_distribution_is_below_that_of_its_mean() -> None:
    draws = torch.randn(3, 20_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert energy_score(draws[:2], draws[2]) == pytest.approx(1 / math.sqrt(math.pi), abs=0.01)  # E|X - Y| / 2 of normals
    assert energy_score(torch.zeros(2, 20_000, 1), draws[2]) == pytest.approx(math.sqrt(2 / math.pi), abs=0.01)  # E|Y|


def test_the_energy_score_is_zero_where_a_condition_has_one_sample_and_it_is_drawn() -> None:
    real = torch.randn(5, 3, 2)
    assert energy_score(torch.stack([real, real]), real) == 0


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_nested_cells_are_seen_ones_and_what_is_left_fixes_as_many_main_effects(name: str, seed: int) -> None:
    holdout = Registry().load("tasks", name).holdout
    cells = set(nested_cells(holdout, seed))
    assert cells
    assert cells <= set(holdout.seen_cells)
    sizes, seen = holdout.pattern_space.sizes, set(holdout.seen_cells)
    assert identifiability(sizes, sorted(seen - cells)).rank == identifiability(sizes, sorted(seen)).rank


def test_another_seed_gives_another_pattern_and_a_lattice_without_a_spare_cell_none() -> None:
    registry = Registry()
    holdout = registry.load("tasks", "bump-center").holdout
    assert nested_cells(holdout, 0) == nested_cells(holdout, 0) != nested_cells(holdout, 1)
    assert nested_cells(registry.load("tasks", "gauss2d-fact-id").holdout, 0) == ()
    assert nested_cells(registry.load("tasks", "shapes3d-heavy").holdout, 0) == ()  # each hue is seen once


@pytest.mark.parametrize("name", ["bump-center", "blobs-noniid", "gauss2d-fact-id"])
def test_a_method_sees_no_nested_cell_and_only_these_are_asked_for(name: str, tmp_path: Path) -> None:
    task = Registry().load("tasks", name)
    inner = nested(task, seed=3)
    hidden = set(inner.holdout.cells) - set(task.holdout.cells)
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, task.source(tmp_path, "auto"), "smoke")
    opened = inner.open(ctx)
    problem = opened.problem(task.budgets["smoke"])
    batch = problem.federation.pooled().batch(500, torch.Generator().manual_seed(0))
    assert len(batch.x1) == len(batch.condition) == 500
    assert not inner.holdout.contains(batch.condition).any()
    assert problem.holdout == inner.holdout
    asked: list[Tensor] = []

    def sampler(condition: Tensor, *, stream: str, **given: object) -> Tensor:
        asked.append(condition)
        return torch.zeros(len(condition), *task.event.shape)

    (score,) = opened.evaluate(sampler).scores
    places = {tuple(row) for row in asked[0][:, list(task.holdout.factors)].tolist()}
    assert places <= (hidden or set(task.holdout.seen_cells))
    assert score.name == inner.primary == ("heldout_energy_score" if hidden else "seen_energy_score")
    assert score.value is not None
    assert score.value > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_nested_cells_are_seen_ones_of_the_pattern_of_the_run_s_seed(seed: int, tmp_path: Path) -> None:
    task = Registry().load("tasks", "glyph-light")  # each seed holds out other combinations
    ctx = TaskContext(torch.device("cpu"), "fp32", seed, tmp_path, tmp_path, task.source(tmp_path, "auto"), "smoke")
    own = task.open(ctx).problem(task.budgets["smoke"]).holdout
    assert (own == task.holdout) == (seed == 0)
    opened = nested(task, 0).open(ctx)
    problem = opened.problem(task.budgets["smoke"])
    hidden = set(nested_cells(own, 0))
    assert set(problem.holdout.cells) == {*own.cells, *hidden}
    batch = problem.federation.pooled().batch(500, torch.Generator().manual_seed(0))
    assert not problem.holdout.contains(batch.condition).any()
    asked: list[Tensor] = []

    def sampler(condition: Tensor, *, stream: str, **given: object) -> Tensor:
        asked.append(condition)
        return torch.zeros(len(condition), *task.event.shape)

    opened.evaluate(sampler)
    assert {tuple(row) for row in asked[0][:, list(own.factors)].tolist()} <= hidden


def test_a_study_takes_no_shots_of_a_task_whose_examples_are_its_truth() -> None:
    task = Registry().load("tasks", "bump-center")
    assert task.truth is not None
    assert with_shots(task, 1).settings.shots == 1
    with pytest.raises(CompbenchError, match="no real examples"):
        with_shots(nested(task, 0), 1)


def test_a_study_s_referee_asks_the_nested_task_for_no_real_pictures_and_it_takes_no_shots() -> None:
    task = nested(Registry().load("tasks", "shapes3d-medium"), 0)
    assert task.real_pictures is None
    with pytest.raises(CompbenchError, match="no real examples"):
        with_shots(task, 4)


def test_a_task_that_holds_nothing_out_has_no_nested_holdout() -> None:
    registry = Registry()
    with pytest.raises(CompbenchError, match="second stage"):
        nested(registry.load("tasks", "shapes3d-extend"), 0)
