"""Emoji tasks: patterns that turn with the seed, and scores of samplers of known quality, on a small font."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_fonts import people, write_font
from torch import Tensor

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.board.question_table import LABELS
from compbench.data.emoji_drawings import ROLES, TONES
from compbench.metrics.small_judge import SmallJudge
from compbench.registry.registry import Registry
from compbench.registry.resolve import metrics_of
from compbench.system.errors import CompbenchError, MetricUnavailable
from compbench.tasks.emoji import JUDGES, SPACE, WIDTHS, OpenEmoji, Settings, make_task, pattern_of, turned

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def font(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_font(tmp_path_factory.mktemp("fonts") / "Small.ttf", people())


def opened(pattern: str, font: Path, seed: int = 0) -> OpenEmoji:
    """A task whose judge is untrained, and which scores by its accuracy and the wavelet distance."""
    task = make_task(pattern, Settings(font=str(font)))
    metrics = {name: metric for name, metric in metrics_of(task, Registry()).items() if name in ("accuracy", "fwd")}
    ctx = TaskContext(CPU, "fp32", seed, font.parent, font.parent, task.source(font.parent, "auto"), "smoke", metrics)
    found = task.open(ctx)
    assert isinstance(found, OpenEmoji)
    found.evaluation.__dict__["judge"] = SmallJudge(SPACE.sizes, 3).eval()
    return found


@pytest.mark.parametrize(("pattern", "share"), [("light", 0.25), ("medium", 0.5), ("heavy", 0.75), ("person", 1 / 3)])
def test_every_seed_holds_out_as_many_other_pairs_from_which_additive_models_can_be_learnt(pattern: str, share: float) -> None:
    patterns = [turned(pattern, seed) for seed in range(4)]
    assert len({one.cells for one in patterns}) == 4
    for one in patterns:
        assert len(one.cells) == len(make_task(pattern).holdout.cells)
        found = identifiability(one.pattern_space.sizes, one.seen_cells)
        assert 1 - found.coverage == pytest.approx(share, abs=0.01)
        assert found.feasible
        assert found.num_components == 1


def test_a_coverage_does_not_turn_with_the_seed() -> None:
    settings = Settings(coverage=0.5)
    assert pattern_of("light", settings, 0) == pattern_of("light", settings, 1) == make_task("light", settings).holdout


@pytest.mark.parametrize("pattern", list(WIDTHS))
def test_training_pictures_are_those_of_their_conditions_and_never_held_out(pattern: str, font: Path) -> None:
    made = opened(pattern, font, seed=3)
    problem = made.problem(make_task(pattern).budgets["smoke"])
    batch = problem.federation.pooled().batch(300, torch.Generator().manual_seed(0))
    assert torch.equal(((batch.x1 + 1) * 127.5).round().to(torch.uint8), made.images(batch.condition))
    assert not turned(pattern, 3).contains(batch.condition).any()
    assert not problem.deterministic  # as on Shapes3D: decoders and low-rank have the sizes of other picture tasks
    assert problem.holdout == turned(pattern, 3)


def test_a_pair_of_role_and_person_is_held_out_in_every_skin_tone_or_trained_in_every_one(font: Path) -> None:
    every = torch.cartesian_prod(*(torch.arange(size) for size in SPACE.sizes))
    held = turned("person", 0).contains(every).view(SPACE.sizes)
    assert torch.equal(held.any(-1), held.all(-1))
    assert held.any(-1).sum() == len(ROLES)
    trained = opened("person", font).problem(make_task("person").budgets["smoke"]).federation.pooled()
    tones = trained.batch(300, torch.Generator().manual_seed(0)).condition[:, SPACE.index("tone")]
    assert tones.unique().tolist() == list(range(len(TONES)))
    assert LABELS["role and person"].endswith("in every skin tone")


def test_an_extension_trains_without_tone_on_pictures_of_all_tones(font: Path) -> None:
    problem = opened("extend", font).problem(make_task("extend").budgets["smoke"])
    assert problem.extension is not None
    assert (problem.space.names, problem.extension.factor) == (("role", "person"), "tone")
    assert problem.federation.pooled().size == problem.extension.problem.federation.pooled().size == 1065
    assert not problem.deterministic


def test_scores_of_the_truth_and_of_copies_are_known(font: Path) -> None:
    made = opened("light", font)
    holdout = turned("light", 0)
    seen = {cell[0]: cell[1] for cell in holdout.seen_cells}

    def truth(condition: Tensor, **given: object) -> Tensor:
        return made.images(condition).float() / 127.5 - 1

    def copies(condition: Tensor, **given: object) -> Tensor:
        others = condition.clone()
        held = holdout.contains(condition)
        others[held, 2] = torch.tensor([seen[role] for role in condition[held, 0].tolist()], dtype=torch.long)
        return truth(others)

    best = {score.name: score for score in made.evaluate(truth).scores}
    made.evaluation.ctx = replace(made.ctx, metrics={})  # of copies, a distance would say no more
    copied = {score.name: score for score in made.evaluate(copies).scores}
    assert [best[f"heldout_{name}"].value for name in ("true_rank", "true_first", "r2", "copied")] == [1.0, 1.0, 1.0, 0.0]
    assert [score.name for score in best.values() if score.primary] == ["heldout_accuracy"]
    assert best["seen_fwd"].floor is not None
    assert (copied["heldout_copied"].value, copied["heldout_true_first"].value, copied["seen_copied"].value) == (1.0, 0.0, 0.0)
    assert best["heldout_accuracy"].value == best["heldout_accuracy"].ceiling


def test_the_stored_judge_is_of_the_font_that_debian_ships() -> None:
    """Right on nearly every drawing, where the font is."""
    task = make_task("medium")
    try:
        source = task.source(Path("/nonexistent"), "auto")
    except CompbenchError as error:
        pytest.skip(str(error))
    if source.fingerprint not in JUDGES:
        pytest.skip("another version of the font")
    made = task.open(TaskContext(CPU, "fp32", 0, Path("/nonexistent"), Path("/nonexistent"), source, "smoke"))
    every = torch.cartesian_prod(*(torch.arange(size) for size in SPACE.sizes))[::3]
    right = made.evaluation.judge.predict(made.images(every)) == every
    assert right.float().mean(0).min() > 0.97


def test_features_of_another_extractor_are_refused(font: Path) -> None:
    from compbench.tasks.drawn_evaluation import _Features

    with pytest.raises(MetricUnavailable, match="no features 'judge'"):
        _Features({})("judge", "real")
