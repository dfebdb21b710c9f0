"""pem: trips follow the reverse diffusion, choices keep particles effective, and exact energies solve small boards."""

from dataclasses import replace

import pytest
import torch
from compbench_methods import pem
from compbench_methods.pem import Composite, OracleSettings, between, choose, minimise, noise_of, num_rounds, time_of, trip
from problems import context
from pydantic import ValidationError
from torch import Tensor

from compbench.api.interfaces import Request
from compbench.data.constraint_laws import BlockOracle, laws_of, signs_of, violations
from compbench.data.puzzles import Puzzle, colouring, queens
from compbench.flow.compose import Guidance
from compbench.flow.path import VariancePreservingPath
from compbench.flow.resampling import ess
from compbench.flow.score_models import OracleModel
from compbench.system.condition_counts import counting
from compbench.testing.tiny_problems import PROBLEMS

CPU = torch.device("cpu")


def gaussian(mean: float, variance: float) -> Composite:
    """N(mean, variance) of each number, noised along the path."""

    def score(x: Tensor, t: float) -> Tensor:
        c = VariancePreservingPath().at(torch.tensor(t))
        return (c.alpha * mean - x) / (c.alpha**2 * variance + c.sigma**2)

    return Composite(lambda x, t: x.new_zeros(len(x)), score)


def answers(puzzle: Puzzle, count: int, settings: OracleSettings) -> Tensor:
    """Signs of pem-oracle's answers to all constraints of a puzzle."""
    size = len(puzzle.groups)
    model = OracleModel(BlockOracle(laws_of(puzzle), CPU), (0,) * size, 100, Guidance(1.0, (True,) * size))
    x0 = torch.randn(count, puzzle.dimension, generator=torch.Generator().manual_seed(1))
    request = Request(torch.ones(count, size, dtype=torch.long), x0)
    return signs_of(pem.sample(settings, model, request, context()))


def test_a_fit_counts_the_conditions_that_its_energies_regress_on() -> None:
    (tiny,) = (tiny for tiny in PROBLEMS if tiny.name == "perturbation")
    problem = tiny.make(CPU)
    problem = replace(problem, budget=problem.budget.model_copy(update={"train_steps": 3}))
    with counting() as counts:
        pem.fit(pem.Settings(), problem, context())
    *rest, whole = counts.of(len(problem.space))
    assert rest == [0] * len(problem.space)
    assert whole == 3 * problem.budget.batch_size


@pytest.mark.parametrize("noise", [0.05, 0.7, 1.5, 20.0])
def test_a_noise_level_has_its_time_on_the_path(noise: float) -> None:
    assert noise_of(time_of(noise)) == pytest.approx(noise, rel=1e-6)


def test_a_trip_of_many_steps_draws_from_the_law_whose_score_it_follows() -> None:
    generator = torch.Generator().manual_seed(0)
    start = 50 * torch.randn(4000, 2, generator=generator)
    made = trip(gaussian(0.7, 0.25), start, between(50.0, 0.01, 200), generator)
    assert made.mean() == pytest.approx(0.7, abs=0.03)
    assert made.var() == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_choice_keeps_half_of_the_particles_effective_whatever_the_scale_of_energies(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    log_density = scale * torch.randn(50, 64, dtype=torch.float64, generator=generator)
    kept = torch.tensor([len(own.unique()) for own in choose(log_density, 0.5, generator)])
    assert (kept >= 16).all()
    assert ess(log_density).mean() < (64 if scale == 1 else 1.2)
    if scale > 1:
        assert all(len(own.unique()) <= 2 for own in choose(log_density, 0.0, generator))


@pytest.mark.parametrize(("size", "solutions"), [(4, 2), (5, 10)])
def test_exact_energies_solve_small_boards_and_find_every_solution(size: int, solutions: int) -> None:
    puzzle = queens(size)
    made = answers(puzzle, 50, OracleSettings(num_particles=12, num_steps=60))
    valid = made[violations(laws_of(puzzle).values(), made) == 0]
    assert len(valid) >= 47
    assert len(valid.unique(dim=0)) == solutions


def test_trips_back_to_noise_solve_boards_that_as_many_steps_without_them_do_not() -> None:
    laws = laws_of(queens(5)).values()
    few = {"num_particles": 4, "num_steps": 60}
    made = [answers(queens(5), 40, OracleSettings(**few, trip_steps=steps)) for steps in (3, 59)]
    with_trips, without = [(violations(laws, own) == 0).double().mean() for own in made]
    assert with_trips > 0.7 > 0.35 > without


def test_a_graph_is_coloured_without_a_change_of_settings() -> None:
    puzzle = colouring(12, 4.0, 3)
    made = answers(puzzle, 20, OracleSettings(num_particles=8, num_steps=60))
    assert (violations(laws_of(puzzle).values(), made) == 0).double().mean() > 0.9


@pytest.mark.parametrize("num_steps", [1, 20, 100])
def test_a_particle_takes_as_many_evaluations_as_the_budget_has_steps(num_steps: int) -> None:
    calls, own = [], gaussian(0.0, 1.0)

    def counted(function: object) -> object:
        return lambda x, t: (calls.append(len(x)), function(x, t))[1]

    settings = OracleSettings(num_particles=4)
    composite = Composite(counted(own.log_density), counted(own.score))
    minimise(composite, torch.zeros(3, 2), settings, num_steps, torch.Generator().manual_seed(0))
    assert sum(calls) == 3 * 4 * max(4, num_steps)
    assert num_rounds(settings, num_steps) == max(1, num_steps // 4)


def test_noise_that_rises_is_refused_in_one_line() -> None:
    with pytest.raises(ValidationError, match="got most_noise=1.5, least_noise=2 and end_noise=0.05"):
        OracleSettings(least_noise=2.0)
