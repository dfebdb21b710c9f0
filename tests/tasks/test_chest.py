"""Chest tasks: who has what, and what a classifier that learns from samples attains."""

from dataclasses import replace

import pytest
import torch
from torch import Generator

from compbench.api.interfaces import Source, TaskContext
from compbench.data.chest_findings import FINDINGS
from compbench.metrics import image, utility
from compbench.metrics.utility import compositional_recall
from compbench.system.errors import CompbenchError
from compbench.tasks.chest import SPACE, Settings, choose, compbench_tasks, make_task
from compbench.tasks.chest_evaluation import CLASSIFIERS

SMALL = Settings(side=32, images=3000)


@pytest.fixture
def ctx(tmp_path) -> TaskContext:
    metrics = {metric.name: metric for module in (image, utility) for metric in module.compbench_metrics()}
    source = Source("embedded", "chest phantom", "phantom-1")
    return TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, source, "smoke", metrics=metrics)


def test_recall_counts_whole_label_sets_and_averages_over_them() -> None:
    """Three of four of one set and none of a rarer one: (3/4 + 0/1) / 2, not 3/5."""
    truth = torch.tensor([[1, 0]] * 4 + [[1, 1]])
    predicted = torch.tensor([[1, 0]] * 3 + [[0, 0]] + [[1, 0]])
    assert compositional_recall(predicted, truth) == pytest.approx(3 / 8)
    assert compositional_recall(truth, truth) == 1
    assert compositional_recall(torch.zeros_like(truth), truth) == 0


@pytest.mark.parametrize("split", ["iid", "noniid"])
def test_four_silos_share_all_images_once(split: str, ctx) -> None:
    task = make_task(split, SMALL)
    problem = task.open(ctx).problem(task.budgets["smoke"])
    sizes = torch.tensor(problem.federation.sizes).float()
    assert len(sizes) == 4
    assert int(sizes.sum()) == 3000
    sets = [silo.condition.unique(dim=0) for silo in problem.federation._silos]
    if split == "iid":
        assert sizes.max() / sizes.min() < 1.2
    else:
        assert sizes.max() / sizes.min() > 1.5
        assert min(map(len, sets)) < 150
    batch = problem.federation._silos[0].batch(8, Generator().manual_seed(0))
    assert batch.x1.shape == (8, 1, 32, 32)
    assert batch.condition.shape == (8, 14)


def test_the_lattice_is_fourteen_binary_findings_with_nothing_held_out() -> None:
    assert SPACE.sizes == (2,) * 14
    assert SPACE.names[12] == "pleural thickening"
    for task in compbench_tasks():
        assert not task.holdout.cells
        assert task.silos == 4
        assert set(task.budgets) == {"smoke", "quick", "standard", "paper"}
        assert task.primary == "all_utility"


@pytest.mark.slow
def test_real_images_are_worth_more_than_noise(ctx, monkeypatch) -> None:
    """The same classifier on the same label sets: half of what it can attain from images, chance from noise."""
    monkeypatch.setitem(CLASSIFIERS, ctx.preset, replace(CLASSIFIERS["quick"], num_steps=80))
    opened = make_task("iid", SMALL).open(ctx)
    evaluation = opened.evaluation
    plain = [k for k, labels in enumerate(evaluation.real.radiographs.feasible.tolist()) if sum(labels) <= 1][:5]
    asked = evaluation.real.radiographs.feasible[plain].repeat(30, 1)
    real, test = (evaluation._real(asked, purpose) for purpose in ("a", "b"))
    noise = torch.randint(256, real.shape, dtype=torch.uint8, generator=Generator().manual_seed(0))
    assert evaluation._utility(real, asked, test) > 0.6
    assert evaluation._utility(noise, asked, test) < 0.45


def test_a_run_is_scored_by_utility_accuracies_and_distances(ctx) -> None:
    evaluation = make_task("iid", SMALL).open(ctx).evaluation

    def sampler(condition, *, stream):
        return evaluation.real.radiographs.of(condition, Generator().manual_seed(9)).float() / 127.5 - 1

    found = evaluation.evaluate(sampler)
    scores = {score.name: score for score in found.scores}
    assert [score.name for score in found.scores if score.primary] == ["all_utility"]
    assert scores["all_utility"].n == 54
    assert scores["all_utility"].ceiling is not None
    assert {f"all_accuracy_{name.lower()}" for name in FINDINGS} <= set(scores)
    assert scores["all_fd_judge"].floor is not None
    assert found.pictures["samples"].shape[2] == 3


def test_nihs_table_is_taken_where_it_is(tmp_path) -> None:
    assert choose(tmp_path, "auto").kind == "embedded"
    with pytest.raises(CompbenchError, match=r"Data_Entry_2017\.csv is not in"):
        choose(tmp_path, "official")
    (tmp_path / "chest").mkdir()
    table = tmp_path / "chest" / "Data_Entry_2017.csv"
    table.write_text("Image Index,Finding Labels,Patient ID\n1.png,Hernia,7\n")
    with pytest.raises(CompbenchError, match=r"1 of 1 images .*the first: 1\.png"):
        choose(tmp_path, "auto")
    (tmp_path / "chest" / "1.png").write_bytes(b"")
    assert choose(tmp_path, "auto").kind == "official"
    assert choose(tmp_path, "embedded").kind == "embedded"
    table.write_text("Image Index\n")
    with pytest.raises(CompbenchError, match="has no column 'Finding Labels'"):
        choose(tmp_path, "auto")
