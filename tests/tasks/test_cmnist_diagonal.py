"""CoInD's coloured digits: each in two colours, one silo, and the figures that its paper and its README state."""

import shutil
from dataclasses import replace
from pathlib import Path

import torch

from compbench.api.factors import identifiability
from compbench.api.interfaces import TaskContext
from compbench.board.papers import read, rows_of
from compbench.tasks import cmnist, image_evaluation
from compbench.tasks.cmnist_diagonal import make_task

PAPERS = Path(__file__).parents[2] / "leaderboards" / "papers.csv"


def test_digit_d_is_seen_in_colours_d_and_d_plus_one() -> None:
    seen = make_task().holdout.seen_cells
    assert set(seen) == {(digit, (digit + step) % 10) for digit in range(10) for step in (0, 1)}
    found = identifiability((10, 10), seen)
    assert (found.num_seen, found.full_rank) == (20, 19)
    assert found.feasible


def test_all_training_digits_lie_in_one_silo(tmp_path: Path) -> None:
    task = make_task()
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, task.source(tmp_path, "embedded"), "smoke")
    federation = task.open(ctx).problem(task.budgets["smoke"]).federation
    assert task.silos == 1
    batch = federation.pooled().batch(200, torch.Generator().manual_seed(0))
    assert not task.holdout.contains(batch.condition).any()


def test_it_differs_from_cmnist_iid_by_its_settings_and_budgets_alone() -> None:
    ours, theirs = make_task(), cmnist.make_task("iid")
    assert make_task(theirs.settings).holdout == theirs.holdout
    assert (ours.space, ours.event, ours.primary, ours.guidance_weights) == (
        theirs.space,
        theirs.event,
        theirs.primary,
        theirs.guidance_weights,
    )


def test_papers_figures_say_whether_they_are_the_papers_or_the_readmes() -> None:
    figures = [figure for figure in read(PAPERS) if figure.task == "cmnist-diagonal"]
    assert {figure.table for figure in figures} == {"paper", "README"}
    assert all(figure.note.startswith("paper" if figure.table == "paper" else "repository README") for figure in figures)
    shown = rows_of(tuple(figures), "cmnist-diagonal")
    assert len(shown) == len(figures)
    assert [shown[paper, "coind"]["heldout_accuracy"].mean for paper in ("coind", "coind-readme")] == [0.5238, 0.5444]


def test_references_may_be_deleted_at_any_time_and_are_made_again_with_the_same_bits(tmp_path: Path, monkeypatch) -> None:
    """The folder is deleted after `prepare` has found the judge in it, and before `evaluate` asks for both judges."""
    key, task, references = ("cmnist", "smoke"), make_task(), tmp_path / "references"
    monkeypatch.setitem(image_evaluation.JUDGES, key, replace(image_evaluation.JUDGES[key], num_steps=6))
    source = task.source(tmp_path, "embedded")

    def noise(condition: torch.Tensor, *, stream: str, **given: object) -> torch.Tensor:
        return torch.randn(len(condition), *task.event.shape, generator=torch.Generator().manual_seed(1))

    def judged(*, deleted: bool) -> tuple[object, dict[str, bytes]]:
        opened = task.open(TaskContext(torch.device("cpu"), "fp32", 0, references, tmp_path, source, "smoke"))
        opened.prepare()
        if deleted:
            shutil.rmtree(references)
        scores = opened.evaluate(noise).scores
        return scores, {path.name: path.read_bytes() for path in references.rglob("*.safetensors")}

    scores, judges = judged(deleted=False)
    assert len(judges) == 2
    assert judged(deleted=True) == (scores, judges)
