import pytest
import torch

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.data.lattices import MPI3D, SHAPES3D
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError
from compbench.tasks import image_evaluation, image_holdout
from compbench.tasks.image_evaluation import ImageEvaluation, Sizes, grid, to_uint8
from compbench.tasks.image_holdout import (
    WITHOUT_SEEN_JUDGE,
    ImageLattices,
    Settings,
    compbench_tasks,
    condition_space,
    fine_space,
    make_task,
)


@pytest.mark.parametrize(
    ("name", "held", "cells"),
    [
        ("shapes3d-light", 10, 40),
        ("shapes3d-medium", 20, 40),
        ("shapes3d-heavy", 30, 40),
        ("mpi3d-light", 9, 36),
        ("mpi3d-medium", 18, 36),
        ("mpi3d-heavy", 27, 36),
    ],
)
def test_each_pattern_holds_out_the_papers_number_of_cells(name: str, held: int, cells: int) -> None:
    task = Registry().load("tasks", name)
    found = identifiability(task.holdout.pattern_space.sizes, task.holdout.seen_cells)
    assert (len(task.holdout.cells), found.num_cells) == (held, cells)


def test_medium_splits_the_seen_graph_in_two() -> None:
    for name in ("shapes3d-medium", "mpi3d-medium"):
        task = Registry().load("tasks", name)
        assert identifiability(task.holdout.pattern_space.sizes, task.holdout.seen_cells).num_components == 2


def test_conditions_have_the_papers_57_and_40_entries() -> None:
    assert sum(condition_space(SHAPES3D, 10).sizes) == 57
    assert sum(condition_space(MPI3D, 10).sizes) == 40


def test_light_and_heavy_are_complements() -> None:
    light, heavy = make_task(SHAPES3D, "light").holdout, make_task(SHAPES3D, "heavy").holdout
    assert set(light.cells) == set(heavy.seen_cells)


def test_positions_fall_in_their_bins_cover_them_and_are_drawn_in_the_order_of_published_records() -> None:
    space, fine = condition_space(MPI3D, 10), fine_space(MPI3D)
    lattices = ImageLattices(fine, space, make_task(MPI3D, "heavy").holdout)
    asked = space.uniform(2000, torch.Generator().manual_seed(0))
    found = lattices.refined(asked, torch.Generator().manual_seed(1))
    assert torch.equal(lattices.condition(found), asked)
    assert fine.check(found, allow_null=False) is found
    assert set((found[:, 5] % 4).tolist()) == {0, 1, 2, 3}
    generator = torch.Generator().manual_seed(1)
    offsets = [
        torch.randint(own // size, (2000,), generator=generator) for own, size in zip(fine.sizes, space.sizes, strict=True)
    ]
    assert torch.equal(found[:, 6], asked[:, 6] * 4 + offsets[6])
    seen = lattices.draw(500, torch.Generator().manual_seed(2), seen_only=True)
    assert torch.equal(
        seen[:, 2:], fine.uniform(500, torch.Generator().manual_seed(2))[:, 2:]
    )  # the pattern is of columns 0 and 1


@pytest.mark.parametrize("pattern", ["medium", "extend"])
def test_training_pictures_are_those_of_their_conditions_and_never_held_out(pattern: str, monkeypatch) -> None:
    def images(fine: torch.Tensor) -> torch.Tensor:
        return fine.to(torch.uint8)[:, :, None, None].expand(-1, -1, 1, 1)

    monkeypatch.setattr(image_holdout, "open_images", lambda *given, **named: images)
    task, ctx = make_task(SHAPES3D, pattern), TaskContext(torch.device("cpu"), "fp32", 0, None, None, None, "smoke")
    problem = task.open(ctx).problem(task.budgets["smoke"])
    batch = problem.federation.pooled().batch(200, torch.Generator().manual_seed(0))
    kept = [SHAPES3D.factors.index(name) for name in problem.space.names]
    assert torch.equal(((batch.x1[:, kept, 0, 0] + 1) * 127.5).round().long(), batch.condition)
    assert not problem.holdout.contains(batch.condition).any()
    assert problem.federation.pooled().size == (480_000 if pattern == "extend" else 240_000)
    assert (problem.extension is not None) == (pattern == "extend")


def test_axis_bins_must_divide_the_positions() -> None:
    with pytest.raises(CompbenchError, match="must divide 40"):
        make_task(MPI3D, "heavy", Settings(axis_bins=7))


def test_the_extension_tasks_base_lacks_the_added_factor() -> None:
    task = make_task(SHAPES3D, "extend")
    assert task.extends == "floor hue"
    assert task.holdout.cells == ()


def test_the_paper_preset_is_the_papers_table_4() -> None:
    paper = make_task(SHAPES3D, "heavy").budgets["paper"]
    assert (paper.train_steps, paper.batch_size, paper.width, paper.patch, paper.prediction) == (
        100_000,
        256,
        64,
        1,
        "velocity",
    )
    assert (paper.learning_rate, paper.final_learning_rate, paper.warmup_steps) == (2e-4, 1e-5, 5_000)
    assert make_task(SHAPES3D, "heavy").guidance_weights["paper"] == 3
    assert (paper.ema_decay, paper.gradient_clip, paper.sample_steps) == (0.999, 1.0, 100)
    assert make_task(SHAPES3D, "extend").budgets["paper"].extend_steps == 30 * 480_000 // 256


def test_only_quick_of_shapes3d_trains_near_the_noise() -> None:
    budgets = {(task.name, preset): own for task in compbench_tasks() for preset, own in task.budgets.items()}
    moved = {name for name, own in budgets.items() if own.time_location}
    assert moved == {(f"shapes3d-{pattern}", "quick") for pattern in ("light", "medium", "heavy")}


class Labelled:
    """Images that are their own labels: the first pixels hold the condition."""

    shape = (1, 1, 6)

    def of(self, condition, generator):
        return condition[:, None, None].to(torch.uint8)


class Reader:
    def predict(self, images):
        return images[:, 0, 0].long()

    def embed_all(self, images):
        return images[:, 0, 0].float()


def test_an_extension_is_ranked_by_the_factor_that_it_adds(monkeypatch) -> None:
    """Right in all but floor hue: the old factors' accuracies are 1, the joint and the new one are 0."""
    task = make_task(SHAPES3D, "extend")
    context = TaskContext(torch.device("cpu"), "fp32", 0, None, None, None)
    referee = ImageEvaluation(
        real=Labelled(),
        space=task.space,
        holdout=task.holdout,
        judge=None,
        sizes=Sizes(50, 0, 0),
        dataset="",
        ctx=context,
        added=task.extends,
    )
    monkeypatch.setattr(referee, "_judge", lambda seen_only: Reader())
    monkeypatch.setattr(image_evaluation, "grid", lambda real, made: None)

    def sampler(condition, stream):
        wrong = condition.clone()
        wrong[:, task.space.index("floor hue")] += 1
        return wrong[:, None, None].float() / 127.5 - 1

    scores = {score.name: score for score in referee.evaluate(sampler).scores}
    assert [name for name, score in scores.items() if score.primary] == [task.primary] == ["all_accuracy_floor_hue"]
    assert scores[task.primary].value == scores["all_accuracy"].value == 0
    assert scores["all_accuracy_wall_hue"].value == 1


def test_the_seen_split_judge_is_trained_only_where_its_accuracies_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """`quick` of Shapes3D does without it; its other budgets and MPI3D's have it."""
    lean = [(name, preset) for name, preset in image_evaluation.JUDGES if (name, preset) in WITHOUT_SEEN_JUDGE]
    assert lean == [("shapes3d", "quick")]
    task, asked = make_task(SHAPES3D, "heavy"), []

    def judge(seen_only: bool) -> Reader:
        asked.append(seen_only)
        return Reader()

    monkeypatch.setattr(image_evaluation, "grid", lambda real, made: None)
    for kept in (True, False):
        referee = ImageEvaluation(
            real=Labelled(),
            space=task.space,
            holdout=task.holdout,
            judge=None,
            sizes=Sizes(50, 0, 0, seen_judge=kept),
            dataset="",
            ctx=TaskContext(torch.device("cpu"), "fp32", 0, None, None, None),
        )
        monkeypatch.setattr(referee, "_judge", judge)
        found = referee.evaluate(lambda condition, stream: condition[:, None, None].float() / 127.5 - 1)
        assert any("seen_judge" in score.name for score in found.scores) is kept
    assert asked == [False, True, False]


def test_to_uint8_clips_and_rounds() -> None:
    assert to_uint8(torch.tensor([-2.0, -1.0, 0.0, 1.0, 9.0])).tolist() == [0, 0, 128, 255, 255]


def test_grid_puts_each_generated_image_under_its_real_one() -> None:
    real = torch.zeros(20, 3, 8, 8, dtype=torch.uint8) + torch.arange(20, dtype=torch.uint8).view(-1, 1, 1, 1)
    picture = grid(real, real + 100)
    assert picture.shape == (4 * 8 + 4, 80, 3)
    assert picture[0, 8, 0] + 100 == picture[8, 8, 0]


def test_only_the_judge_that_ranks_is_trained_before_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(ImageEvaluation, "_judge", lambda self, *, seen_only: asked.append(seen_only))
    evaluation = object.__new__(ImageEvaluation)
    evaluation.prepare()
    assert asked == [False]
