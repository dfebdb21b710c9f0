"""Composed constraints as tasks: what is held out, what a method sees, and how answers are scored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Request, Task, TaskContext
from compbench.data.constraint_laws import laws_of, violations
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError
from compbench.tasks.constraints import KINDS, make_task, puzzle_of

CPU = torch.device("cpu")
SOLVED = (0, 4, 7, 5, 2, 6, 1, 3)


def opened(task: Task, folder: Path) -> object:
    return task.open(TaskContext(CPU, "fp32", 0, folder, folder, task.source(folder, "auto"), "smoke"))


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_has_answers_to_the_base_and_to_each_group_alone(name: str, tmp_path: Path) -> None:
    task = Registry().load("tasks", name)
    problem = opened(task, tmp_path).problem(task.budgets["smoke"])
    batch = problem.federation.pooled().batch(200, torch.Generator().manual_seed(0))
    laws = laws_of(puzzle_of(KINDS[name], task.settings))
    assert {tuple(row) for row in batch.condition.tolist()} == set(laws) == set(task.holdout.seen_cells)
    for cell, law in laws.items():
        own = batch.x1[(batch.condition == torch.tensor(cell)).all(1)]
        assert (law.violations(torch.where(own > 0, 1.0, -1.0)) == 0).all()
        assert own.abs().sub(1).std() == pytest.approx(law.spread, rel=0.2)


def test_answers_are_scored_by_the_constraints_themselves(tmp_path: Path) -> None:
    task = Registry().load("tasks", "queens-8")
    board = torch.full((8, 8), -1.0)
    board[range(8), SOLVED] = 1.0
    wrong = board.clone()
    wrong[0, 0] = -1.0

    def sampler(condition: Tensor, *, stream: str, **given: object) -> Tensor:
        made = board.flatten().expand(len(condition), -1).clone()
        made[1::4] = wrong.flatten()
        return made + 0.2

    scores = {score.name: score for score in opened(task, tmp_path).evaluate(sampler).scores}
    assert scores["heldout_validity"].value == 0.75
    assert 0 < scores["heldout_greedy_repair"].value < 0.2
    assert scores["heldout_unique"].value == 1 / 40
    assert scores["heldout_unique"].ceiling == pytest.approx(92 * (1 - (91 / 92) ** 40) / 40)  # of 92 boards
    assert scores["heldout_violations"].value == 0.5  # a row and a column are empty
    assert 0.75 < scores["seen_validity"].value < 1  # diagonals may be empty


def test_a_puzzle_with_too_many_groups_is_one_line() -> None:
    settings = KINDS["sat-20"].settings.model_copy(update={"density": 6.0})
    with pytest.raises(CompbenchError, match=r"at most 12: lower task\.density"):
        make_task("sat-20", settings)


@pytest.mark.parametrize("method", ["pem-oracle", "rne-oracle"])
def test_exact_members_satisfy_their_own_group_and_their_composition_beats_chance(method: str, tmp_path: Path) -> None:
    task, own = Registry().load("tasks", "sat-20"), Registry().load("methods", method)
    budget = task.budgets["smoke"].model_copy(update={"sample_steps": 30})
    problem = opened(task, tmp_path).problem(budget)
    settings = own.settings()
    ctx = Context(CPU, "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
    model = own.fit(settings, problem, ctx)
    asked = torch.ones(12, len(task.space), dtype=torch.long)
    made = own.sample(settings, model, Request(asked, torch.randn(12, 20, generator=torch.Generator().manual_seed(1))), ctx)
    signs = torch.where(made > 0, 1.0, -1.0)
    laws = laws_of(puzzle_of(KINDS["sat-20"], task.settings))
    assert (violations(laws.values(), signs) == 0).double().mean() > 0.4  # chance is 0.003
