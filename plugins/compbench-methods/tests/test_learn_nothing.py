"""Rows that learn nothing, on lattices where the answer is known: sums of effects, copies, and what ignores the request."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from compbench_methods import additive, constant, nearest
from problems import context
from torch import Generator, Tensor

from compbench import Batch, Problem, Request
from compbench.api.factors import NULL, Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event
from compbench.runner.cost_probe import probed

SPACE = FactorSpace([Factor("a", 3), Factor("b", 4), Factor("c", 2)])
EFFECTS = [torch.randn(factor.size, 5, generator=Generator().manual_seed(k)) for k, factor in enumerate(SPACE.factors)]
HOLDOUT = Holdout(SPACE, (0, 1), ((0, 0), (0, 1), (1, 2), (2, 0), (2, 3)))
BUDGET = Budget(train_steps=40, batch_size=64, width=8, learning_rate=1e-3, sample_steps=4)
METHODS = {module.compbench_methods()[0].name: module.compbench_methods()[0] for module in (additive, nearest, constant)}


def sums(condition: Tensor) -> Tensor:
    """x = 1 + e_a + e_b + e_c, and so for a whole condition."""
    return 1 + sum(effect[condition[:, k]] for k, effect in enumerate(EFFECTS))


class Sums:
    """The lattice that adds up, with noise of its own in each example."""

    name = "sums"

    def __init__(self, holdout: Holdout = HOLDOUT, *, noise: float = 0.0, size: int = 600) -> None:
        self.holdout, self.noise, self.size = holdout, noise, size

    def batch(self, size: int, generator: Generator) -> Batch:
        condition = self.holdout.draw(size, generator, heldout=False)
        return Batch(sums(condition) + self.noise * torch.randn(size, 5, generator=generator), condition)


def problem(holdout: Holdout = HOLDOUT, *, noise: float = 0.0) -> Problem:
    return Problem(SPACE, Event("vector", (5,)), Federation([Sums(holdout, noise=noise)]), BUDGET, holdout, composed=(0, 1))


def drawn(name: str, asked: Problem, condition: Tensor, *, seed: int = 0) -> Tensor:
    method = METHODS[name]
    model = method.fit(method.settings(), asked, context(seed))
    x0 = torch.randn(len(condition), *asked.event.shape, generator=Generator().manual_seed(9))
    return method.sample(method.settings(), model, Request(condition, x0), context())


WHOLE = torch.tensor(list(product(*(range(size) for size in SPACE.sizes))))


def test_additive_is_exact_on_a_lattice_that_adds_up() -> None:
    """All 24 combinations, of which 10 were never seen."""
    assert HOLDOUT.contains(WHOLE).sum() == 10
    assert (drawn("additive", problem(), WHOLE) - sums(WHOLE)).abs().max() < 1e-5


def test_additive_needs_no_balance_between_the_seen_cells() -> None:
    """Cells on a path, so that plain means of a value are means over other values of the other factor."""
    seen = {(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)}
    path = Holdout(SPACE, (0, 1), tuple(sorted(set(product(range(3), range(4))) - seen)))
    assert (drawn("additive", problem(path), WHOLE) - sums(WHOLE)).abs().max() < 1e-5


def test_additive_of_two_perturbations_adds_their_single_effects() -> None:
    """x(1, 1) = x(1, 0) + mean(0, 1) - mean(0, 0), or the other way round: means and the example's own noise."""
    space = FactorSpace([Factor("a", 2), Factor("b", 2)])
    means = {(0, 0): 5.0, (1, 0): 7.0, (0, 1): -1.0}

    class Cells:
        name, size = "cells", 3000

        def batch(self, size: int, generator: Generator) -> Batch:
            condition = torch.tensor(list(means))[torch.randint(3, (size,), generator=generator)]
            centre = torch.tensor([means[tuple(cell)] for cell in condition.tolist()])
            return Batch(centre[:, None] + 0.1 * torch.randn(size, 1, generator=generator), condition)

    holdout = Holdout(space, (0, 1), ((1, 1),))
    asked = Problem(space, Event("vector", (1,)), Federation([Cells()]), BUDGET, holdout, base=(0, 0), composed=(0, 1))
    x = drawn("additive", asked, torch.ones(1000, 2, dtype=torch.long))
    assert x.mean().item() == pytest.approx(7 - 1 - 5, abs=0.02)
    assert x.std().item() == pytest.approx(0.1, rel=0.1)


def test_open_factors_move_nothing() -> None:
    """Told b alone, samples are examples of b as they are, with several values of the others."""
    condition = torch.tensor([[NULL, 2, NULL]]).expand(200, 3)
    x = drawn("additive", problem(), condition)
    cells = WHOLE[(WHOLE[:, 1] == 2) & ~HOLDOUT.contains(WHOLE)]
    apart = torch.cdist(x, sums(cells))
    assert apart.min(1).values.max() < 0.01
    assert len(apart.argmin(1).unique()) == len(cells)


@pytest.mark.parametrize("name", ["nearest", "additive"])
def test_seen_combinations_are_answered_by_their_own_examples(name: str) -> None:
    condition = WHOLE[~HOLDOUT.contains(WHOLE)].repeat(50, 1)
    off = drawn(name, problem(noise=0.1), condition) - sums(condition)
    assert off.std().item() == pytest.approx(0.1, rel=0.1)
    assert off.abs().max() < 0.6


def test_nearest_shares_as_many_factors_as_any_seen_cell() -> None:
    x = drawn("nearest", problem(), WHOLE.repeat(20, 1))
    cells = WHOLE[~HOLDOUT.contains(WHOLE)]
    for asked, sample in zip(WHOLE.repeat(20, 1), x, strict=True):
        own = cells[torch.cdist(sample[None], sums(cells)).argmin()]
        assert (own == asked).sum() == (cells == asked).sum(1).max()


def test_constant_ignores_the_request_and_draws_all_of_the_seen_data() -> None:
    conditions = (torch.zeros(3000, 3, dtype=torch.long), torch.full((3000, 3), NULL))
    one, other = (drawn("constant", problem(), condition) for condition in conditions)
    assert torch.equal(one, other)
    cells = WHOLE[~HOLDOUT.contains(WHOLE)]
    shares = torch.cdist(one, sums(cells)).argmin(1).bincount(minlength=len(cells)) / 3000
    assert shares.tolist() == pytest.approx([1 / len(cells)] * len(cells), abs=0.03)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_trained(name: str) -> None:
    method, reported = METHODS[name], []
    model = method.fit(method.settings(), problem(), context(progress=lambda done, total: reported.append(done)))
    request = Request(WHOLE[:8], torch.randn(8, 5))
    costs = probed(method, method.settings(), model, problem(), request, context, trained=0)
    assert (reported, costs.per_train_step, method.evaluations(method.settings(), problem())) == ([], 0.0, 0)


@pytest.mark.parametrize("name", METHODS)
def test_another_seed_keeps_other_examples(name: str) -> None:
    noisy = problem(noise=0.1)
    assert not torch.equal(drawn(name, noisy, WHOLE, seed=1), drawn(name, replace(noisy), WHOLE, seed=2))
