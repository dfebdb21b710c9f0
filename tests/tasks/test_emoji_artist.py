"""Drawings by two artists: what is held out, which font each picture comes from, and refusals, on small fonts."""

from pathlib import Path

import pytest
import torch
from support.small_fonts import people, write_font

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.data.emoji_drawings import drawings
from compbench.metrics.small_judge import SmallJudge
from compbench.system.errors import CompbenchError
from compbench.tasks.emoji_artist import SECOND, SPACE, OpenArtists, Settings, make_task, turned

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def artists(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("fonts")
    return write_font(folder / "Own.ttf", people()), write_font(folder / "Other.ttf", people(200))


@pytest.fixture(scope="module")
def opened(artists: tuple[Path, Path]) -> OpenArtists:
    own, other = artists
    task = make_task(Settings(font=str(own), second_font=str(other)))
    ctx = TaskContext(CPU, "fp32", 3, own.parent, own.parent, task.source(own.parent, "auto"), "smoke")
    made = task.open(ctx)
    assert isinstance(made, OpenArtists)
    made.evaluation.__dict__["judge"] = SmallJudge(SPACE.sizes, 3).eval()
    return made


def test_half_of_the_roles_lack_one_artist_others_with_each_seed() -> None:
    patterns = [turned(seed) for seed in range(4)]
    assert len({one.cells for one in patterns}) == 4
    for one in patterns:
        lacking = [role for role, _ in one.cells]
        assert len(lacking) == len(set(lacking)) == 36
        assert [artist for _, artist in one.cells].count(0) == 18
        found = identifiability(one.pattern_space.sizes, one.seen_cells)
        assert (found.feasible, found.num_components) == (True, 1)


def test_a_picture_is_the_one_that_its_artist_drew(opened: OpenArtists, artists: tuple[Path, Path]) -> None:
    condition = SPACE.uniform(200, torch.Generator().manual_seed(0))
    pictures = [torch.from_numpy(drawings(path).pictures) for path in artists]
    own = [pictures[artist][(role * 3 + person) * 5 + tone] for role, person, tone, artist in condition.tolist()]
    assert torch.equal(opened.images(condition), torch.stack(own))


def test_training_pictures_are_never_of_a_held_out_pair(opened: OpenArtists) -> None:
    batch = opened.problem(make_task().budgets["smoke"]).federation.pooled().batch(400, torch.Generator().manual_seed(0))
    assert not turned(3).contains(batch.condition).any()
    assert torch.equal(((batch.x1 + 1) * 127.5).round().to(torch.uint8), opened.images(batch.condition))


def test_scores_of_the_truth_and_of_the_other_artists_pictures_are_known(opened: OpenArtists) -> None:
    def by(other: bool):
        def sampler(condition, **given):
            asked = torch.cat([condition[:, :3], 1 - condition[:, 3:]], 1) if other else condition
            return opened.images(asked).float() / 127.5 - 1

        return {score.name: score.value for score in opened.evaluate(sampler).scores}

    best, swapped = by(other=False), by(other=True)
    assert [best[f"heldout_{name}"] for name in ("true_rank", "true_first", "r2", "copied")] == [1.0, 1.0, 1.0, 0.0]
    assert (swapped["heldout_true_first"], swapped["heldout_copied"]) == (0.0, 1.0)


def test_a_second_font_that_is_missing_or_the_first_one_is_refused(artists: tuple[Path, Path]) -> None:
    own, folder = str(artists[0]), artists[0].parent
    nearly = write_font(folder / "Nearly.ttf", {**people(), **dict(list(people(200).items())[:50])})
    for second, message in (
        (SECOND, r"needs a second artist, .*: --set task.second_font=PATH, or put it into .* as SecondEmoji.ttf"),
        ("None.ttf", r"task.second_font=None.ttf: there is no such font file"),
        (own, r"100% of its drawings are those of Own.ttf; bring another artist's font"),
        (str(nearly), r"% of its drawings are those of Own.ttf"),
    ):
        with pytest.raises(CompbenchError, match=message):
            make_task(Settings(font=own, second_font=second)).source(folder, "auto")
    with pytest.raises(CompbenchError, match="no embedded data"):
        make_task(Settings(font=own, second_font=own)).source(folder, "embedded")
