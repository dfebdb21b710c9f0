"""CoInD's Shapes3D setting: every value is seen, and no two of three factors in their upper halves."""

from pathlib import Path

import pytest
import torch

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.board.papers import read
from compbench.tasks.image_holdout import Settings
from compbench.tasks.shapes3d_composition import make_task

PAPERS = Path(__file__).parents[2] / "leaderboards" / "papers.csv"


def test_half_of_the_cells_are_seen_and_each_value_is() -> None:
    holdout = make_task().holdout
    assert holdout.pattern_space.names == ("wall hue", "object hue", "shape")
    found = identifiability(holdout.pattern_space.sizes, holdout.seen_cells)
    assert (found.num_seen, found.num_cells, found.marginal_coverage) == (200, 400, (1.0, 1.0, 1.0))
    assert found.feasible


def test_held_out_is_what_changes_two_halves_or_more() -> None:
    seen = set(make_task().holdout.seen_cells)
    assert {(4, 4, 1), (9, 0, 0), (0, 9, 0), (0, 0, 3)} <= seen
    assert not {(5, 5, 0), (5, 0, 2), (0, 5, 2), (9, 9, 3)} & seen


@pytest.mark.usefixtures("shapes3d")  # traced once, in `shared`
def test_training_images_are_never_of_a_held_out_object(shared: Path, tmp_path: Path) -> None:
    task = make_task()
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, shared, tmp_path, task.source(tmp_path, "embedded"), "smoke")
    problem = task.open(ctx).problem(task.budgets["smoke"])
    batch = problem.federation.pooled().batch(300, torch.Generator().manual_seed(0))
    assert not task.holdout.contains(batch.condition).any()
    assert problem.composed == task.holdout.factors
    assert all(len(batch.condition[:, k].unique()) > size // 2 for k, size in enumerate(task.space.sizes))


def test_a_coverage_takes_the_place_of_its_halves() -> None:
    assert len(make_task(Settings(coverage=0.25)).holdout.seen_cells) < 100


def test_its_reference_rows_are_the_papers() -> None:
    figures = {figure.method: figure for figure in read(PAPERS) if figure.task == "shapes3d-composition"}
    assert {name: figure.mean for name, figure in figures.items()} == {"composed-glide": 0.5156, "coind": 0.9110}
    assert all(figure.note.startswith("paper") and figure.table == "paper" for figure in figures.values())
