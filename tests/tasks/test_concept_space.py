"""The concept space: its cells, its pictures, and its signals."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.data.concepts_renderer import MEAN_RADIUS, SIDE, SIZES, ConceptsRenderer, edge_distance
from compbench.system.errors import CompbenchError
from compbench.tasks.concept_space import Settings, make_task

CPU = torch.device("cpu")


def renderer(**changed: float) -> ConceptsRenderer:
    return ConceptsRenderer(**{"colour_signal": 0.7, "size_signal": 3.0, **changed})


def test_four_cells_are_seen_three_lie_at_distance_one_and_one_at_two() -> None:
    holdout = make_task().holdout
    assert set(holdout.seen_cells) == {(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)}
    distances = [
        min(sum(a != b for a, b in zip(cell, seen, strict=True)) for seen in holdout.seen_cells) for cell in holdout.cells
    ]
    assert Counter(distances) == {1: 3, 2: 1}
    assert identifiability((2, 2, 2), holdout.seen_cells).feasible


def test_its_own_pattern_is_the_lowest_rung_of_the_ladder() -> None:
    assert make_task(Settings(coverage=0.5)).holdout == make_task().holdout
    assert len(make_task(Settings(coverage=0.875)).holdout.cells) == 1


def test_a_disc_covers_the_area_of_its_radius_and_a_triangle_the_same() -> None:
    for size, radius in ((0, MEAN_RADIUS - 2.0), (7, MEAN_RADIUS + 2.0)):
        images = renderer()(torch.tensor([[shape, 0, size, 4, 4] for shape in (0, 1)])).float()
        ground, colour = images[0, 0, 0, 0], images[0, 0, SIDE // 2, SIDE // 2]
        covered = ((images[:, 0] - ground) / (colour - ground)).sum((1, 2))
        assert covered == pytest.approx(torch.tensor([torch.pi * radius**2] * 2), rel=0.06)


def test_the_triangle_is_upright_and_touches_its_three_sides() -> None:
    inradius = 0.7776 * 6
    corners = torch.tensor([[0.0, -2 * inradius], [3**0.5 * inradius, inradius], [-(3**0.5) * inradius, inradius]])
    for across, down in corners:
        place = across.view(1, 1, 1), down.view(1, 1, 1)
        assert edge_distance(torch.tensor([1]), torch.tensor([6.0]), *place).item() == pytest.approx(0, abs=1e-4)


def test_colour_and_size_change_nothing_else() -> None:
    red, blue = renderer()(torch.tensor([[1, 0, 3, 2, 6], [1, 15, 3, 2, 6]])).float()
    assert torch.equal((red - red[:, :1, :1]).abs().sum(0) > 0, (blue - blue[:, :1, :1]).abs().sum(0) > 0)
    assert red[0].max() > 200 > blue[0].max()
    assert blue[2].max() > 200 > red[2].max()


def test_a_smaller_signal_brings_the_two_classes_nearer() -> None:
    def gap(signal: float) -> float:
        made = renderer(colour_signal=signal)(torch.tensor([[0, 7, 4, 4, 4], [0, 8, 4, 4, 4]]))
        return (made[0].float() - made[1].float()).abs().max().item()

    assert gap(0.3) < gap(0.5) < gap(0.7)


def test_out_of_range_wrong_shape_and_official_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="must lie in"):
        renderer()(torch.full((1, 5), 2).index_fill(1, torch.tensor([0]), 5))
    with pytest.raises(CompbenchError, match=r"must be \(B, 5\)"):
        renderer()(torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(CompbenchError, match="no official files"):
        make_task().source(tmp_path, "official")


def test_training_pictures_are_seen_ones_with_all_positions(tmp_path: Path) -> None:
    task = make_task()
    ctx = TaskContext(CPU, "fp32", 0, tmp_path, tmp_path, task.source(tmp_path, "auto"), "smoke")
    problem = task.open(ctx).problem(task.budgets["smoke"])
    batch = problem.federation.pooled().batch(300, torch.Generator().manual_seed(0))
    assert batch.x1.shape == (300, 3, SIDE, SIDE)
    assert batch.x1.abs().max() <= 1
    assert set(map(tuple, batch.condition.tolist())) == set(task.holdout.seen_cells)
    assert not problem.deterministic
    assert len(torch.unique(batch.x1, dim=0)) > 250
    assert problem.federation.pooled().size == SIZES[0] * SIZES[1] * SIZES[2] * 81 // 2
