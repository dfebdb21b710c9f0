from types import SimpleNamespace

import pytest
import torch

from compbench.api.factors import NULL
from compbench.api.interfaces import TaskContext
from compbench.data.bumps import as_samples, blank_level, bumps
from compbench.system.errors import CompbenchError
from compbench.tasks.bump import SQUARES, Settings, make_task


def context(preset: str = "quick") -> TaskContext:
    return TaskContext(torch.device("cpu"), "fp32", 0, None, None, None, preset)


def test_a_bump_is_at_column_x_and_row_y_and_an_open_coordinate_is_a_stripe() -> None:
    image, along_y, everywhere = bumps(torch.tensor([[2, 5], [2, NULL], [NULL, NULL]]), size=8, sigma=1.0)
    assert image[5, 2] == 1
    assert image[5, 3].item() == pytest.approx(0.60653, abs=1e-5)
    assert torch.equal(along_y, image[5].expand(8, 8))
    assert everywhere.eq(1).all()


def test_blank_levels_are_the_protocols() -> None:
    inside = torch.tensor([[14, 14]])
    assert blank_level(inside, size=28, sigma=1.0) == pytest.approx(4.007e-3, rel=1e-3)
    assert blank_level(inside, size=32, sigma=1.5) == pytest.approx(6.903e-3, rel=1e-3)


@pytest.mark.parametrize("name", ["bump-center", "bump-corner"])
def test_the_squares_hold_out_289_cells_and_no_whole_row(name: str) -> None:
    task = make_task(name, SQUARES[name])
    assert len(task.holdout.cells) == 289
    problem = task.open(context()).problem(task.budgets["quick"])
    assert problem.federation.sizes == (495,)
    assert problem.singles.size == 56
    assert task.open(context("paper")).problem(task.budgets["paper"]).federation.sizes == (2000,)
    batch = problem.federation.pooled().batch(4000, torch.Generator().manual_seed(0))
    assert not task.holdout.contains(batch.condition).any()
    assert [len(batch.condition[:, k].unique()) for k in range(2)] == [28, 28]


@pytest.mark.parametrize(("preset", "examples"), [("quick", 495), ("paper", 2000)])
def test_a_changed_gradient_clip_changes_no_training_set(preset: str, examples: int) -> None:
    task = make_task("bump-center", SQUARES["bump-center"])
    for clip in (1.0, 1e9):
        budget = task.budgets[preset].model_copy(update={"gradient_clip": clip})
        assert task.open(context(preset)).problem(budget).federation.sizes == (examples,)


def test_true_bumps_score_full_marks_and_blank_images_the_blank_level() -> None:
    task = make_task("bump-corner", SQUARES["bump-corner"])
    for image, accuracy, level in ((lambda c: as_samples(bumps(c, size=28, sigma=1.0)), 1.0, 0.0), (None, 0.0, 1.0)):

        def sampler(c, stream, image=image):
            return image(c) if image else -torch.ones(len(c), 1, 28, 28)

        found = task.open(context()).evaluate(sampler)
        scores = {score.name: score for score in found.scores}
        for split in ("heldout", "seen"):
            assert scores[f"{split}_strict_accuracy"].value == accuracy
            assert scores[f"{split}_shape_accuracy"].value == accuracy
            assert scores[f"{split}_mse_blank"].value == pytest.approx(level, abs=1e-6)
        if image:
            superposition = scores["heldout_superposition"]
            assert superposition.value == pytest.approx(superposition.floor, abs=1e-6)
            assert superposition.ceiling == pytest.approx(1)
        assert found.pictures["landscape"].shape == (28 * 8, 28 * 8, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first": 0, "last": 27}, "hides every row and leaves no training data"),
        ({"first": 9, "last": 8}, "must be first <= last <= 27"),
        ({"first": 9, "last": 28}, "must be first <= last <= 27"),
        ({"sigma": 12.0}, "28.3 pixels wide at half its height, and the image 28; use less than 11.9"),
    ],
)
def test_a_square_or_bump_that_cannot_be_is_refused_in_one_line(changes, words: str) -> None:
    with pytest.raises(CompbenchError, match=words) as found:
        make_task("bump-center", Settings(**changes))
    assert "\n" not in str(found.value)


def test_there_is_no_official_file() -> None:
    with pytest.raises(CompbenchError, match="formula"):
        make_task("bump-center", Settings()).source(SimpleNamespace(), "official")
