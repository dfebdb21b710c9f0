import dataclasses

import pytest
import torch

from compbench.api.interfaces import Source, TaskContext
from compbench.data.gaussians import base_composition
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError
from compbench.tasks.gaussian import BASE_VARIANCES, GaussianSettings, MixtureSettings, PooledSource, distributions, make_task
from compbench.tasks.gaussian_evaluation import densities

NAMES = (*BASE_VARIANCES, "gmm-id", "gmm-ood")


@pytest.fixture
def context(tmp_path) -> TaskContext:
    registry = Registry()
    metrics = {name: registry.load("metrics", name) for name in ("sw2", "mmd2", "mmd2_fixed", "mean_error", "covariance_error")}
    source = Source("embedded", "exact sampler", "gaussians-1")
    return TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, source, "smoke", metrics=metrics)


@pytest.mark.parametrize("name", NAMES)
def test_the_double_perturbation_is_held_out(name: str) -> None:
    task = Registry().load("tasks", name)
    assert task.holdout.cells == ((1, 1),)
    assert task.base == (0, 0)
    assert len(task.holdout.seen_cells) == 3


def test_a_batch_has_equally_many_points_of_each_source(context: TaskContext) -> None:
    silo = PooledSource(distributions("gmm-id", MixtureSettings()), 50, context)
    batch = silo.batch(30, torch.Generator().manual_seed(0))
    assert batch.condition.tolist() == [[0, 0]] * 10 + [[1, 0]] * 10 + [[0, 1]] * 10
    assert silo.size == 150
    assert len(silo.batch(31, torch.Generator()).x1) == 31


def test_training_points_are_drawn_once(context: TaskContext) -> None:
    sources = distributions("gauss2d-fact-id", GaussianSettings(base_variance=10))
    silo = PooledSource(sources, 5, context)
    batch = silo.batch(3000, torch.Generator().manual_seed(0))
    assert len(batch.x1[:1000].unique(dim=0)) == 5
    again = PooledSource(sources, 5, context)
    other = PooledSource(sources, 5, dataclasses.replace(context, seed=1))
    assert torch.equal(silo.points, again.points)
    assert not torch.equal(silo.points, other.points)


def test_the_oracle_is_the_problems(context: TaskContext) -> None:
    task = make_task("gauss2d-nonfact-id")
    problem = task.open(context).problem(task.budgets["smoke"])
    assert problem.oracle.law((1, 1)).variances.flatten().tolist() == pytest.approx([20 / 21] * 2)


@pytest.mark.parametrize("name", ["gauss2d-nonfact-ood", "gmm-ood"])
def test_exact_samples_score_at_the_noise_floor(name: str, context: TaskContext) -> None:
    task = make_task(name)
    laws = distributions(name, task.settings)
    oracle = task.open(context).problem(task.budgets["smoke"]).oracle

    def exact(condition, *, stream: str):
        generator = torch.Generator().manual_seed(hash(stream) % 1000)
        cell = tuple(condition[0].tolist())
        if cell in laws:
            return laws[cell].sample(len(condition), generator).float()
        if name == "gmm-ood":
            return base_composition(laws[1, 0], laws[0, 1], laws[0, 0], len(condition), generator).float()
        return oracle.law(cell).sample(len(condition), generator).float()

    found = task.open(context).evaluate(exact)
    scores = {score.name: score for score in found.scores}
    assert scores["heldout_sw2"].primary
    assert scores["heldout_sw2"].value < 3 * scores["heldout_sw2"].floor
    assert scores["heldout_mean_error"].value < 0.5
    assert scores["heldout_covariance_error"].value < 0.4
    assert abs(scores["heldout_mmd2_fixed"].value) < 0.02
    assert scores["seen_sw2"].n == 150


def test_wrong_samples_score_far_from_it(context: TaskContext) -> None:
    task = make_task("gauss2d-nonfact-id")
    found = task.open(context).evaluate(lambda condition, *, stream: torch.randn(len(condition), 2) * 3 + 5)
    scores = {score.name: score.value for score in found.scores}
    assert scores["heldout_sw2"] > 4
    assert scores["heldout_mean_error"] == pytest.approx(7.07, abs=0.6)
    assert scores["heldout_mmd2_fixed"] > 0.5


def test_a_base_that_leaves_no_distribution_is_refused() -> None:
    with pytest.raises(CompbenchError, match=r"by theorem 1 its precision is .* = -0\.9 on each axis"):
        make_task("gauss2d-fact-ood", GaussianSettings(base_variance=0.5))


def test_there_are_no_official_files(tmp_path) -> None:
    with pytest.raises(CompbenchError, match="no official files"):
        make_task("gmm-id").source(tmp_path, "official")


def test_densities_show_points_where_they_are() -> None:
    points = torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).repeat(200, 1) + 0.05 * torch.randn(400, 2)
    picture = densities({"target": (points, points)})
    top, bottom = picture[16:176], picture[-160:]
    assert (top == bottom).all()
    dark = (top[..., 0] < 128).nonzero()
    quadrants = {(row < 80, column < 80) for row, column in zip(*dark, strict=True)}
    assert quadrants == {(True, False), (False, True)}  # first axis to the right, second upwards
