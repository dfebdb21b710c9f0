"""Two sprites: the support, the pictures, R2, and that a decoder of one sprite at a time is another than one of the whole."""

from pathlib import Path

import pytest
import torch

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.data.sprites_renderer import COLOURS, GROUND, SIZES, SpritesRenderer
from compbench.system.errors import CompbenchError
from compbench.tasks.two_sprites import BASES, SPACE, Settings, make_task
from compbench.tasks.two_sprites_evaluation import r_squared

CPU = torch.device("cpu")


def context(folder: Path) -> TaskContext:
    return TaskContext(CPU, "fp32", 0, folder, folder, make_task().source(folder, "auto"), "smoke")


def some(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in SIZES], dim=1)


def test_on_orthogonal_support_one_sprite_is_at_its_base() -> None:
    holdout = make_task().holdout
    assert len(holdout.seen_cells) == 48 + 48 - 1
    assert all(cell[:3] == BASES[0] or cell[3:] == BASES[1] for cell in holdout.seen_cells)
    found = identifiability(holdout.pattern_space.sizes, holdout.seen_cells)
    assert found.marginal_coverage == (1.0,) * 6
    assert found.feasible


def test_on_diagonal_support_the_sprites_stand_near_each_other() -> None:
    seen = make_task(Settings(support="diagonal")).holdout.seen_cells
    assert len(seen) == (4 + 3 + 3) ** 2 * 9
    assert all(abs(cell[0] - cell[3]) <= 1 and abs(cell[1] - cell[4]) <= 1 for cell in seen)


def test_swapping_the_sprites_swaps_who_lies_in_front() -> None:
    images = SpritesRenderer(side=32)
    apart = torch.tensor([[0, 0, 0, 0, 1, 3, 3, 2, 1, 2]])
    assert torch.equal(images(apart), images(apart.roll(5, dims=1)))
    over = torch.tensor([[1, 1, 0, 1, 0, 1, 1, 0, 1, 3]])
    middle = round((0.2 + 0.2) * 32)
    assert images(over)[0, :, middle, middle].tolist() == list(COLOURS[0])
    assert images(over.roll(5, dims=1))[0, :, middle, middle].tolist() == list(COLOURS[3])
    assert images(over)[0, :, 0, 0].tolist() == [GROUND] * 3


def test_the_renderer_is_the_sum_of_layers_pixel_by_pixel() -> None:
    images, conditions = SpritesRenderer(side=32), some(20)
    front, back = (images.coverage(part) for part in conditions.split(5, dim=1))
    for row, column in ((5, 9), (13, 13), (20, 25)):
        for index, condition in enumerate(conditions.tolist()):
            a, b = front[index, row, column].item(), back[index, row, column].item()
            for channel in range(3):
                behind = b * COLOURS[condition[9]][channel] + (1 - b) * GROUND
                plain = a * COLOURS[condition[4]][channel] + (1 - a) * behind
                assert images(conditions)[index, channel, row, column].item() == pytest.approx(plain, abs=0.51)


def test_every_value_of_every_factor_shows() -> None:
    images = SpritesRenderer(side=32)
    for factor, size in enumerate(SIZES):
        conditions = torch.tensor([[0, 0, 1, 0, 1, 3, 3, 2, 0, 2]] * size)
        conditions[:, factor] = torch.arange(size)
        assert len(torch.unique(images(conditions).flatten(1), dim=0)) == size


def test_values_out_of_range_a_wrong_shape_and_official_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="must lie in"):
        SpritesRenderer(side=32)(torch.full((1, 10), 3))
    with pytest.raises(CompbenchError, match=r"must be \(B, 10\)"):
        SpritesRenderer(side=32)(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(CompbenchError, match="no official files"):
        make_task().source(tmp_path, "official")


def test_r2_is_one_for_the_truth_zero_for_its_mean_and_less_for_worse() -> None:
    true = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert r_squared(true, true) == 1
    assert r_squared(true.mean(0).expand_as(true), true) == pytest.approx(0, abs=1e-6)
    assert r_squared(true + 2 * true.std(), true) < -1


def test_the_referee_gives_true_images_one_and_the_front_sprite_alone_less(tmp_path: Path) -> None:
    images, opened = SpritesRenderer(side=32), make_task().open(context(tmp_path))

    def truth(condition: torch.Tensor, stream: str) -> torch.Tensor:
        return images(condition).float() / 127.5 - 1

    def back_at_base(condition: torch.Tensor, stream: str) -> torch.Tensor:
        changed = condition.clone()
        changed[:, 5:8] = torch.tensor(BASES[1])
        return truth(changed, stream)

    found = {score.name: score for score in opened.evaluate(truth).scores}
    assert found["heldout_r2"].value == found["seen_r2"].value == 1
    assert found["heldout_r2"].primary
    wrong = {score.name: score.value for score in opened.evaluate(back_at_base).scores}
    assert wrong["heldout_r2"] < 0.3
    assert wrong["heldout_r2"] + 0.2 < wrong["seen_r2"] < 1


def test_training_pictures_are_seen_ones_and_deterministic(tmp_path: Path) -> None:
    task = make_task()
    problem = task.open(context(tmp_path)).problem(task.budgets["smoke"])
    batch = problem.federation.pooled().batch(200, torch.Generator().manual_seed(0))
    assert problem.deterministic
    assert problem.federation.pooled().size == 95 * 8 * 8
    assert not task.holdout.contains(batch.condition).any()
    assert torch.equal(batch.x1, SpritesRenderer(side=32)(batch.condition).float() / 127.5 - 1)
    assert SPACE.check(batch.condition) is batch.condition
