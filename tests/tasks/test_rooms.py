"""Rooms: exact shares, what silos give, how shares are scored, and that the judge knows every class."""

import pytest
import torch
from torch import Generator

from compbench.api.interfaces import Source, TaskContext
from compbench.data.class_folders import ROOMS
from compbench.data.room_shares import SOURCES, exact_shares
from compbench.metrics import image, shares
from compbench.system.errors import CompbenchError
from compbench.tasks.rooms import Settings, choose, compbench_tasks, make_task

SMALL = Settings(side=32, pictures=50)


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> TaskContext:
    """Every task of a module draws by one renderer, which is kept in the cache."""
    folder = tmp_path_factory.mktemp("rooms")
    metrics = {metric.name: metric for module in (image, shares) for metric in module.compbench_metrics()}
    source = Source("embedded", "rooms renderer", "renderer-1")
    return TaskContext(torch.device("cpu"), "fp32", 0, folder, folder, source, "smoke", metrics=metrics)


def test_among_the_sources_the_target_is_both_objects() -> None:
    assert exact_shares("id") == pytest.approx((0.0004, 0.0196, 0.0196, 0.9604))


def test_far_from_the_sources_the_target_is_one_object_alone() -> None:
    """The paper says both; class by class the product is 0.496, 0.496 and 0.009."""
    nothing, couch, second, both = exact_shares("ood")
    assert couch == second == pytest.approx(0.4956, abs=1e-4)
    assert (nothing, both) == pytest.approx((0.00015, 0.0087), abs=1e-4)
    assert any("one object alone" in note for note in make_task("fc", "ood").paper_notes)
    assert not any("one object alone" in note for note in make_task("fc", "id").paper_notes)


def test_shares_of_every_source_and_target_sum_to_one() -> None:
    for where, laws in SOURCES.items():
        for law in [*laws.values(), exact_shares(where)]:
            assert sum(law) == pytest.approx(1)


def test_total_variation_of_known_shares() -> None:
    assert shares.total_variation((1, 0, 0, 0), (1, 0, 0, 0)) == 0
    assert shares.total_variation((1, 0, 0, 0), (0, 0.5, 0.5, 0)) == 1
    assert shares.total_variation((0.5, 0.5), (0.25, 0.75)) == pytest.approx(0.25)


class Coded:
    """Pictures whose first pixel is their class."""

    def training(self, classes, generator):
        return classes.to(torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2).clone()

    reference = training


@pytest.mark.parametrize("where", ["id", "ood"])
def test_batches_have_the_classes_shares_of_their_conditions(where: str, ctx) -> None:
    task = make_task("fc", where, SMALL)
    opened = task.open(ctx)
    opened.pictures = Coded()
    batch = opened.problem(task.budgets["smoke"]).federation.pooled().batch(60_000, Generator().manual_seed(0))
    assert batch.x1.dtype == torch.float32
    classes = (batch.x1[:, 0, 0, 0] + 1).mul(127.5).round().long()
    for cell, law in SOURCES[where].items():
        rows = (batch.condition == torch.tensor(cell)).all(1)
        assert rows.float().mean().item() == pytest.approx(1 / 3, abs=0.01)
        found = torch.bincount(classes[rows], minlength=4) / rows.sum()
        assert found.tolist() == pytest.approx(law, abs=0.015)
    assert not bool((batch.condition == 1).all(1).any())


class Named:
    """A judge that reads the class of `Coded` pictures."""

    def predict(self, images):
        classes = images[:, 0, 0, 0].long()
        return torch.stack([classes % 2, classes // 2], 1)

    def embed_all(self, images):
        return torch.randn(len(images), 8, generator=Generator().manual_seed(0))


@pytest.mark.parametrize(("where", "best"), [("id", 3), ("ood", 1)])
def test_samples_are_scored_by_the_exact_shares(where: str, best: int, ctx, monkeypatch) -> None:
    """Samples that are all both: a distance of 0.04 where the target is both, and of 0.99 where it is one object alone."""
    opened = make_task("nfc", where, SMALL).open(ctx)
    evaluation = opened.evaluation
    evaluation.real._pictures = Coded()
    monkeypatch.setattr(evaluation, "_judge", lambda *, seen_only: Named())

    def sampler(condition, *, stream):
        return (torch.full((len(condition), 3, 2, 2), 3.0) + 0.4) / 127.5 - 1

    scores = {score.name: score for score in evaluation.evaluate(sampler).scores}
    expected = 1 - exact_shares(where)[3]
    assert scores["heldout_total_variation"].value == pytest.approx(expected, abs=1e-6)
    assert scores["heldout_total_variation"].primary
    assert scores["heldout_total_variation"].floor < 0.25  # 36 exact draws
    assert scores["heldout_share_both"].value == 1
    assert scores["heldout_share_both"].direction == ("higher" if where == "id" else "lower")
    assert all(score.direction == ctx.metrics[score.metric].direction for score in scores.values())  # or no board takes them
    assert max(range(4), key=exact_shares(where).__getitem__) == best


def test_the_four_tasks_have_names_budgets_and_the_target_held_out() -> None:
    tasks = {task.name: task for task in compbench_tasks()}
    assert sorted(tasks) == ["rooms-fc-id", "rooms-fc-ood", "rooms-nfc-id", "rooms-nfc-ood"]
    for task in tasks.values():
        assert set(task.budgets) == {"smoke", "quick", "standard", "paper"}
        assert task.holdout.cells == ((1, 1),)
        assert task.base == (0, 0)


def test_a_users_pictures_are_taken_where_each_class_has_a_folder(tmp_path) -> None:
    from PIL import Image

    assert choose("painting", tmp_path, "auto").kind == "embedded"
    with pytest.raises(CompbenchError, match="no folder"):
        choose("painting", tmp_path, "official")
    for name in ROOMS["painting"]:
        (tmp_path / "rooms" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (8, 8)).save(tmp_path / "rooms" / name / f"{number}.png")
    assert choose("painting", tmp_path, "auto").kind == "official"
    assert choose("painting", tmp_path, "embedded").kind == "embedded"
    assert choose("table", tmp_path, "auto").kind == "embedded"
    for path in list((tmp_path / "rooms" / "couch").iterdir())[:1]:
        path.unlink()
    with pytest.raises(CompbenchError, match="holds 9 pictures"):
        choose("painting", tmp_path, "auto")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fc", "nfc"])
def test_the_quick_judge_knows_both_objects(kind: str, ctx) -> None:
    from dataclasses import replace

    evaluation = make_task(kind, "id").open(replace(ctx, preset="quick")).evaluation
    generator = Generator().manual_seed(5)
    classes = torch.randint(4, (1000,), generator=generator)
    found = evaluation._judge(seen_only=False).predict(evaluation.real._pictures.reference(classes, generator))
    right = (found == torch.stack([classes % 2, classes // 2], 1)).float().mean(0)
    assert right.min() >= 0.95
