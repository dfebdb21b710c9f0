"""What a fit takes is counted where it happens, whatever it reports."""

from dataclasses import replace

import pytest
import torch
from torch import Generator

from compbench.check.tiny_problems import PROBLEMS
from compbench.cost import counted
from compbench.cost.counted import Tally

CPU = torch.device("cpu")
VECTOR, SILOS = PROBLEMS[0].make, PROBLEMS[2].make


def fitted(tally: Tally, *, steps: int, size: int = 12):
    """A problem on which so many steps were taken with batches of a size."""
    problem = counted.counted(VECTOR(CPU), tally)
    weight = torch.zeros(2, requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=0.1)
    with tally.counting_steps():
        for _ in range(steps):
            batch = problem.federation.pooled().batch(size, Generator().manual_seed(0))
            (batch.x1 - weight).square().mean().backward()
            optimiser.step()
    optimiser.step()  # outside: not counted
    return problem


def test_steps_and_examples_are_counted_and_draws_are_the_silos_own() -> None:
    tally = Tally()
    problem = fitted(tally, steps=3)
    assert tally == Tally(optimiser_steps=3, examples=36)
    own, theirs = (
        silo.batch(5, Generator().manual_seed(1)) for silo in (problem.federation.pooled(), VECTOR(CPU).federation.pooled())
    )
    assert torch.equal(own.x1, theirs.x1)
    assert problem.federation.sizes == VECTOR(CPU).federation.sizes


@pytest.mark.parametrize(
    ("steps", "size", "reported", "said"),
    [(12, 12, 12, ""), (13, 12, 13, "of 12 that the budget grants"), (12, 12, 6, "6 were reported"), (12, 2000, 12, "examples")],
)
def test_what_goes_beyond_the_budget_or_the_report_is_said(steps, size, reported, said) -> None:
    tally = Tally()
    problem = fitted(tally, steps=steps, size=size)
    excess = counted.fit_excess(problem, tally, before=Tally(), reported=reported)
    assert said in excess if said else excess == ""
    assert "before the fit" in counted.fit_excess(problem, tally, before=Tally(examples=1), reported=reported)


def test_decentralised_parties_and_their_server_have_a_budget_each() -> None:
    problem = SILOS(CPU)
    assert counted.allowed_steps(problem) == 12
    for account in problem.federation.accounts:
        account.rounds = 1
    assert counted.allowed_steps(problem) == 4 * 12
    assert counted.allowed_steps(replace(VECTOR(CPU))) == 12


def test_evaluations_are_those_of_one_more_sample() -> None:
    weight = torch.randn(8, 8)

    def sample(rows: int) -> None:
        for _ in range(6):
            torch.randn(rows + 5, 8) @ weight  # pilots of no one's are the same for all requests

    assert counted.evaluations(sample, 2 * 8 * 8 * 10, 10) == 6
    assert counted.evaluations(sample, 0, 10) is None
    assert counted.evaluations_excess(6, 6) == ""
    assert "about 6 evaluations" in counted.evaluations_excess(6.0, 3)
