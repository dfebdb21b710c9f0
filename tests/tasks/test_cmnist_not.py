"""Digits in any colour but one: the exact law, what else would score, and who may be asked."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from compbench.api.factors import NULL, excluding
from compbench.api.interfaces import Score, TaskContext
from compbench.board.papers import read
from compbench.metrics.shares import compbench_metrics, total_variation
from compbench.registry.registry import Registry
from compbench.registry.resolve import why_not
from compbench.store.samples import read_pool
from compbench.system.errors import CompbenchError
from compbench.tasks import cmnist_diagonal
from compbench.tasks.cmnist_not import make_task
from compbench.tasks.cmnist_not_evaluation import NotEvaluation, outcomes
from compbench.tasks.image_evaluation import Sizes

PAPERS = Path(__file__).parents[2] / "leaderboards" / "papers.csv"
PAIRS = torch.cartesian_prod(torch.arange(10), torch.arange(10))  # digit and excluded colour
EXACT = [0.0, 0.0, *[0.1] * 10]


def variation(answers: Callable[[int, int], list[tuple[int, int]]]) -> float:
    """Of the law that answers each (digit, excluded colour) by as many (digit, colour), all alike."""
    rows = [(digit, excluded, *found) for digit, excluded in PAIRS.tolist() for found in answers(digit, excluded)]
    digit, excluded, *found = torch.tensor(rows).T
    return total_variation(outcomes(torch.stack(found, 1), digit, excluded, 10), EXACT)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (lambda d, c: [(d, k) for k in range(10) if k != c], 0.0),
        (lambda d, c: [(d, k) for k in range(10)], 0.1),
        (lambda d, c: [(d, k % 10) for k in (d, d + 1) if k % 10 != c] * (1 + (c in (d, (d + 1) % 10))), 0.8),
        (lambda d, c: [(d, c)], 1.0),
        (lambda d, c: [((d + 1) % 10, (c + 1) % 10)], 1.0),
    ],
    ids=["exact", "ignores NOT", "seen colours", "excluded", "wrong digit"],
)
def test_what_each_law_scores(answers: Callable[[int, int], list[tuple[int, int]]], expected: float) -> None:
    assert variation(answers) == pytest.approx(expected, abs=1e-6)


class Labels:
    """Pictures that say their own condition, and a judge that reads it."""

    def of(self, condition: Tensor, generator: torch.Generator) -> Tensor:
        return picture(condition)

    def predict(self, images: Tensor) -> Tensor:
        return images[:, :2, 0, 0].long() // 10


def picture(condition: Tensor) -> Tensor:
    """(N, 2) -> uint8 (N, 3, 4, 4), ten times digit and colour in the first channels."""
    return torch.nn.functional.pad(condition * 10, (0, 1)).to(torch.uint8)[:, :, None, None].expand(-1, 3, 4, 4)


def scores_of(answer: Callable[[Tensor], Tensor], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Score]:
    task, labels = make_task(), Labels()
    metrics = {metric.name: metric for metric in compbench_metrics()}
    source = task.source(folder, "embedded")
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, folder, folder, source, "smoke", metrics=metrics)
    monkeypatch.setattr(NotEvaluation, "_judge", lambda self, *, seen_only: labels)
    facts = {"real": labels, "space": task.space, "holdout": task.holdout, "judge": None, "dataset": "labels", "ctx": ctx}
    evaluation = NotEvaluation(sizes=Sizes(0, 20, 0), **facts)

    def sampler(condition: Tensor, *, stream: str) -> Tensor:
        assert bool((condition[:, 1] < NULL).all()) == (stream == "all")
        return picture(answer(condition)).float() / 127.5 - 1

    return {score.name: score for score in evaluation.evaluate(sampler).scores}


def test_samples_of_the_exact_law_score_as_real_images_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(condition: Tensor) -> Tensor:
        steps = torch.randint(1, 10, (len(condition),), generator=torch.Generator().manual_seed(1))
        colour = (excluding(condition[:, 1]) + steps) % 10
        return torch.stack([condition[:, 0], torch.where(condition[:, 1] < NULL, colour, condition[:, 1])], 1)

    found = scores_of(exact, tmp_path, monkeypatch)
    primary = found["all_total_variation"]
    assert primary.primary
    assert primary.value is not None
    assert primary.floor is not None
    assert max(primary.value, primary.floor) < 0.05
    assert found["all_accuracy"].value == found["all_accuracy"].ceiling == found["seen_accuracy"].value == 1.0
    assert len(found["all_accuracy"].by_cell) == 100


def test_who_takes_not_for_and_never_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(condition: Tensor) -> Tensor:
        return torch.where(condition < NULL, excluding(condition), condition)

    found = scores_of(asked, tmp_path, monkeypatch)
    assert found["all_total_variation"].value == pytest.approx(1.0)
    assert found["all_accuracy"].value == 0.0
    assert (found["all_accuracy_digit"].value, found["seen_accuracy"].value) == (1.0, 1.0)


def test_it_differs_from_cmnist_diagonal_by_what_is_asked_alone() -> None:
    ours, theirs = make_task(), cmnist_diagonal.make_task()
    same = ("space", "holdout", "event", "budgets", "settings", "source", "silos", "guidance_weights")
    assert all(getattr(ours, name) == getattr(theirs, name) for name in same)
    assert ours.negates
    assert not theirs.negates


def test_its_reference_rows_are_the_papers() -> None:
    figures = {figure.method: figure.mean for figure in read(PAPERS) if figure.task == "cmnist-not"}
    assert figures == {"lace": 0.0903, "composed-glide": 0.0509, "coind-not": 0.5328}


def test_only_methods_with_not_are_run() -> None:
    registry = Registry()
    task, mono = registry.load("tasks", "cmnist-not"), registry.load("methods", "mono")
    assert why_not(mono, task) == (
        "method 'mono' cannot work on task 'cmnist-not': the task asks for any value but one, and the method has no such NOT."
    )
    assert all(why_not(registry.load("methods", name), task) == "" for name in ("slice-not", "coind-not"))


def test_samples_of_others_may_carry_excluded_values_where_a_task_negates(tmp_path: Path) -> None:
    import numpy

    task, file = make_task(), tmp_path / "samples.npz"
    conditions = numpy.array([[3, excluding(0)], [4, excluding(9)]])
    numpy.savez(file, conditions=conditions, samples=numpy.full((2, 3, 28, 28), -0.5, numpy.float32))
    assert len(read_pool(file, task.space, task.event, negates=True)) == 2
    with pytest.raises(CompbenchError, match="label -2 of 'colour' in row 0 is out of range"):
        read_pool(file, task.space, task.event)
    numpy.savez(file, conditions=conditions - 1, samples=numpy.full((2, 3, 28, 28), -0.5, numpy.float32))
    with pytest.raises(CompbenchError, match="label -12 of 'colour' in row 1 is out of range"):
        read_pool(file, task.space, task.event, negates=True)
