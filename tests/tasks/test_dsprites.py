"""dSprites tasks: their lattices and holdouts, overlap with the truth, and a run of the whole of one."""

import dataclasses
from pathlib import Path

import pytest
import torch

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.data.dsprites_renderer import DSpritesRenderer
from compbench.metrics.judge import JudgeSettings
from compbench.system.errors import CompbenchError
from compbench.tasks.dsprites import FINE, Settings, make_task
from compbench.tasks.dsprites_evaluation import all_refined, overlap, overlap_scores
from compbench.tasks.image_evaluation import Sizes
from compbench.tasks.lattice_images import JudgedLattice, Lattices

CPU = torch.device("cpu")


def opened(pattern: str, folder: Path, settings: Settings | None = None) -> JudgedLattice:
    task = make_task(pattern, settings)
    ctx = TaskContext(CPU, "fp32", 0, folder, folder, task.source(folder, "embedded"), "smoke")
    found = task.open(ctx)
    assert isinstance(found, JudgedLattice)
    return found


@pytest.mark.parametrize(
    ("pattern", "held", "cells", "identified"), [("light", 4, 15, True), ("heavy", 16, 24, False), ("position", 16, 64, True)]
)
def test_each_pattern_holds_out_its_cells_and_shows_every_value(pattern: str, held: int, cells: int, identified: bool) -> None:
    holdout = make_task(pattern).holdout
    found = identifiability(holdout.pattern_space.sizes, holdout.seen_cells)
    assert (len(holdout.cells), found.num_cells) == (held, cells)
    assert found.marginal_coverage == (1.0, 1.0)
    assert found.feasible is identified


def test_the_square_of_positions_is_the_middle_half_of_each_axis() -> None:
    assert set(make_task("position").holdout.cells) == {(x, y) for x in (2, 3, 4, 5) for y in (2, 3, 4, 5)}


@pytest.mark.parametrize("pattern", ["light", "heavy", "position"])
def test_training_images_are_those_of_their_conditions_and_never_held_out(pattern: str, tmp_path: Path) -> None:
    task, made = make_task(pattern), opened(pattern, tmp_path)
    batch = made.problem(task.budgets["smoke"]).federation.pooled().batch(200, torch.Generator().manual_seed(0))
    assert batch.x1.shape == (200, 1, 64, 64)
    assert set(batch.x1.unique().tolist()) == {-1.0, 1.0}
    assert not task.holdout.contains(batch.condition).any()
    scores = overlap_scores(
        batch.condition, ((batch.x1 + 1) * 127.5).to(torch.uint8), "seen", images=made.images, lattices=made.lattices
    )
    assert scores[0].value == 1.0


def test_refined_combinations_fall_in_their_conditions_and_are_all_of_them() -> None:
    space = make_task("heavy").space
    lattices = Lattices(FINE, space, make_task("heavy").holdout)
    generator = torch.Generator().manual_seed(0)
    asked = space.uniform(300, generator)
    fine = lattices.refined(asked, generator)
    assert torch.equal(lattices.condition(fine), asked)
    every = all_refined(asked[:3], lattices)
    assert every.shape == (3, 2 * 4 * 4, 5)
    assert torch.equal(lattices.condition(every.flatten(0, 1)), asked[:3].repeat_interleave(32, 0))
    assert len(torch.unique(every[0], dim=0)) == 32


def test_one_image_a_condition_makes_a_task_for_regression(tmp_path: Path) -> None:
    fine = Settings(position_bins=32, orientation_bins=10)
    task = make_task("position", fine)
    assert opened("position", tmp_path, fine).problem(task.budgets["smoke"]).deterministic
    assert not opened("position", tmp_path).problem(task.budgets["smoke"]).deterministic


def test_bins_must_divide_the_values() -> None:
    with pytest.raises(CompbenchError, match="5 bins of 'x': must divide 32"):
        make_task("heavy", Settings(position_bins=5))


def test_overlap_is_intersection_over_union_with_the_best_truth() -> None:
    sample = torch.zeros(1, 4, 4, dtype=torch.bool)
    sample[0, 0, :2] = True
    truth = torch.zeros(1, 2, 4, 4, dtype=torch.bool)
    truth[0, 0, 3, 3] = True
    truth[0, 1, 0, 1:4] = True
    assert overlap(sample, truth).item() == pytest.approx(1 / 4)
    assert overlap(torch.zeros_like(sample), torch.zeros_like(truth)).item() == 1.0


def test_the_referee_scores_true_images_at_its_ceiling_and_others_below(tmp_path: Path) -> None:
    """A sampler that draws true images has the ceiling's accuracy and covers them; one that draws another shape does not."""
    made = opened("heavy", tmp_path)
    tiny = made.referee._replace(judge=JudgeSettings("pooled", 8, 60, 32, 4e-3), sizes=Sizes(96, 0, 0))
    made = JudgedLattice(made.images, made.lattices, made.event, tiny, 2.0, dataclasses.replace(made.ctx, metrics={}))
    renderer = DSpritesRenderer()

    def true_images(condition: torch.Tensor, stream: str) -> torch.Tensor:
        fine = made.lattices.refined(condition, torch.Generator().manual_seed(1))
        return renderer(fine).float() / 127.5 - 1

    def another_shape(condition: torch.Tensor, stream: str) -> torch.Tensor:
        turned = condition.clone()
        turned[:, 0] = (turned[:, 0] + 1) % 3
        return true_images(turned, stream)

    right = made.evaluate(true_images)
    found = {score.name: score for score in right.scores}
    assert found["heldout_iou"].value == found["seen_iou"].value == 1.0
    assert abs(found["heldout_accuracy"].value - found["heldout_accuracy"].ceiling) < 0.1
    assert found["heldout_accuracy"].primary
    wrong = {score.name: score for score in made.evaluate(another_shape).scores}
    assert wrong["heldout_iou"].value < 0.9
    assert wrong["heldout_accuracy_shape"].value < found["heldout_accuracy_shape"].value
    assert right.pictures["samples"].shape[-1] == 3
