"""Glyph tasks: what is drawn, and patterns that turn with the seed."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

from compbench.api.factors import identifiability
from compbench.api.interfaces import Sampler, TaskContext
from compbench.board.competition import RECALL
from compbench.data.letters import EMS, LETTERS, SHIFTS, choose, drawn
from compbench.metrics.small_judge import SmallJudge
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError
from compbench.tasks.glyphs import FINE, JUDGES, SPACE, OpenGlyphs, make_task, turned

CPU, NOWHERE = torch.device("cpu"), Path("/nonexistent")


def opened(pattern: str, seed: int = 0) -> OpenGlyphs:
    task = make_task(pattern)
    found = task.open(TaskContext(CPU, "fp32", seed, NOWHERE, NOWHERE, task.source(NOWHERE, "auto"), "smoke"))
    assert isinstance(found, OpenGlyphs)
    return found


def test_no_two_styles_of_a_letter_are_drawn_alike_and_none_touches_its_margin() -> None:
    styles = torch.from_numpy(drawn())[:, :, :, :, len(EMS) // 2].flatten(1, 3)  # (26, 16, 40, 40)
    assert all(len(letter.flatten(1).unique(dim=0)) == 16 for letter in styles)
    whole = torch.from_numpy(drawn())
    assert int(whole[..., [0, -1], :].max()) == int(whole[..., :, [0, -1]].max()) == 0


def test_a_shift_moves_a_letter_by_whole_pixels_and_keeps_all_of_it() -> None:
    made = opened("light")
    letter = torch.tensor([[LETTERS.index("w"), 2, 1, 0, 2, x, y] for x, y in ((1, 1), (2, 0), (0, 2))])
    middle, moved, other = made.images(letter)[:, 0].int()
    assert torch.equal(middle.roll((-1, 1), (0, 1)), moved)
    assert torch.equal(middle.roll((1, -1), (0, 1)), other)


@pytest.mark.parametrize(("pattern", "share"), [("light", 0.25), ("heavy", 0.75)])
def test_every_seed_holds_out_as_many_other_cells_from_which_additive_models_can_be_learnt(pattern: str, share: float) -> None:
    patterns = [turned(pattern, seed) for seed in range(3)]
    assert len({one.cells for one in patterns}) == 3
    for one in patterns:
        found = identifiability(one.pattern_space.sizes, one.seen_cells)
        assert 1 - found.coverage == pytest.approx(share, abs=0.011)
        assert found.feasible


@pytest.mark.parametrize("pattern", ["light", "heavy"])
def test_training_letters_are_never_held_out(pattern: str) -> None:
    problem = opened(pattern, seed=5).problem(make_task(pattern).budgets["smoke"])
    batch = problem.federation.pooled().batch(200, torch.Generator().manual_seed(0))
    assert batch.x1.shape == (200, 1, 32, 32)
    assert not turned(pattern, 5).contains(batch.condition).any()
    assert not problem.deterministic


def test_official_letters_and_a_missing_matplotlib_are_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompbenchError, match="no official data"):
        choose(NOWHERE, "official")
    monkeypatch.setattr("compbench.data.letters.find_spec", lambda name: None)
    with pytest.raises(CompbenchError, match=r"pip install 'compbench\[glyphs\]'"):
        choose(NOWHERE, "auto")


def test_the_fingerprint_names_the_fonts_and_follows_the_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    source = choose(NOWHERE, "auto")
    assert re.fullmatch(r"dejavu[\d.+]+-stix[\d.+]+-[0-9a-f]{16}", source.fingerprint)
    assert re.fullmatch(r"letters of DejaVu [\d.+]+ and STIX [\d.+]+", source.name)
    other = drawn().copy()
    other.flat[0] ^= 1  # as another version of the rasteriser
    monkeypatch.setattr("compbench.data.letters.drawn", lambda: other)
    assert choose(NOWHERE, "auto").fingerprint.split("-")[:2] == source.fingerprint.split("-")[:2]
    assert choose(NOWHERE, "auto").fingerprint != source.fingerprint


def test_letters_averaged_over_places_are_named_right_and_have_a_low_recall() -> None:
    """The board marks a row with less than half of real letters' recall: averages are right too often to be left unmarked."""
    made = opened("heavy", seed=1)
    evaluation = made.evaluation
    if made.ctx.source.fingerprint not in JUDGES:
        pytest.skip("another version of the fonts")
    recall = Registry().load("metrics", "recall")
    evaluation.referee = evaluation.referee._replace(per_split=480)
    evaluation.ctx = dataclasses.replace(evaluation.ctx, metrics={"recall": recall})
    places = torch.cartesian_prod(*(torch.arange(count) for count in (len(EMS), SHIFTS, SHIFTS)))  # (27, 3)

    def means(condition: torch.Tensor, *, stream: str) -> torch.Tensor:
        fine = torch.cat([condition.repeat_interleave(len(places), 0), places.repeat(len(condition), 1)], dim=1)
        return made.images(fine).view(len(condition), len(places), 1, 32, 32).float().mean(1) / 127.5 - 1

    def noisy(condition: torch.Tensor, *, stream: str) -> torch.Tensor:
        real = evaluation._real(condition, "answers").float() / 127.5 - 1
        return (real + 0.2 * torch.randn(real.shape, generator=torch.Generator().manual_seed(2))).clamp(-1, 1)

    def shares(sampler: Sampler) -> dict[str, float]:
        found = {score.name: score for score in evaluation.evaluate(sampler).scores}
        recalls = {name: found[name].value / found[name].floor for name in ("heldout_recall", "seen_recall")}
        return recalls | {"right": found["heldout_accuracy"].value}

    blurred, sharp = shares(means), shares(noisy)
    assert blurred["right"] > 0.7
    assert max(blurred["heldout_recall"], blurred["seen_recall"]) < 0.5 * RECALL
    assert min(sharp["heldout_recall"], sharp["seen_recall"]) > 0.9


def test_the_stored_judge_knows_the_letters() -> None:
    if choose(NOWHERE, "auto").fingerprint not in JUDGES:
        pytest.skip("another version of the fonts")
    made, fine = opened("light"), FINE.uniform(400, torch.Generator().manual_seed(0))
    right = made.evaluation.judge.predict(made.images(fine)) == fine[:, : len(SPACE)]
    assert right.float().mean(0).min() > 0.95


def test_references_are_spread_over_pairs_as_requests_and_have_every_size_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation, drawn = opened("light").evaluation, list[torch.Tensor]()
    evaluation.referee = evaluation.referee._replace(per_split=20_000)

    def rendered(fine: torch.Tensor) -> torch.Tensor:
        drawn.append(fine)
        return torch.zeros(len(fine), 1, 1, 1)

    monkeypatch.setattr(evaluation, "_pictures", rendered)
    evaluation._distances("seen", torch.zeros(20_000, 1, 1, 1))
    assert len(drawn) == 2
    assert not torch.equal(*drawn)
    for fine in drawn:  # 78 pairs, 256 pictures of each
        assert fine[:, :2].unique(dim=0, return_counts=True)[1].tolist() == [256] * 78
        for column, values in ((4, len(EMS)), (5, SHIFTS), (6, SHIFTS)):
            assert len(fine[:, [0, 1, column]].unique(dim=0)) == 78 * values


def test_letters_in_the_wrong_typeface_are_far_jointly_and_near_marginally(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features are the pictures themselves; the answers are real pictures of the requested conditions, or of each other's."""

    class Pixels:
        def __init__(self, device: torch.device) -> None: ...

        def __call__(self, images: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.avg_pool2d(images[:, :1].float() / 255, 8).flatten(1)

    monkeypatch.setattr("compbench.metrics.efficientnet.ImageNetFeatures", Pixels)
    registry = Registry()
    names = ("accuracy", "fd_imagenet", "fjd_imagenet")
    evaluation = opened("light").evaluation
    evaluation.referee = evaluation.referee._replace(per_split=1000)
    evaluation.ctx = dataclasses.replace(evaluation.ctx, metrics={name: registry.load("metrics", name) for name in names})
    evaluation.judge = SmallJudge(tuple(SPACE.sizes), 1).eval()

    def scores(*, wrong: bool) -> dict[str, float]:
        def sampler(condition: torch.Tensor, *, stream: str) -> torch.Tensor:
            shown = condition[torch.randperm(len(condition), generator=torch.Generator().manual_seed(1))] if wrong else condition
            return evaluation._real(shown, "answers").float() / 127.5 - 1

        found = evaluation.evaluate(sampler).scores
        return {score.name: score.value for score in found if score.metric in names[1:]}

    right, permuted = scores(wrong=False), scores(wrong=True)
    for split in ("heldout", "seen"):
        assert permuted[f"{split}_fd_imagenet"] < 2 * right[f"{split}_fd_imagenet"]
        assert permuted[f"{split}_fjd_imagenet"] > 1.8 * right[f"{split}_fjd_imagenet"]
