"""What a fit takes is counted where it happens, whatever it reports."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.planted.stranger_bugs import STRANGER_BUGS
from torch import Generator

from compbench.api.schemas import RunRequest
from compbench.runner import counted
from compbench.runner.counted import Tally
from compbench.runner.one_run import run
from compbench.store.counts import beyond_budget, evaluations_excess, extension_excess, fit_excess
from compbench.testing.tiny_problems import PROBLEMS

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
    assert tally == Tally(optimiser_steps=3, examples=36, backward_passes=3)
    own, theirs = (
        silo.batch(5, Generator().manual_seed(1)) for silo in (problem.federation.pooled(), VECTOR(CPU).federation.pooled())
    )
    assert torch.equal(own.x1, theirs.x1)
    assert problem.federation.sizes == VECTOR(CPU).federation.sizes


@pytest.mark.parametrize(
    ("steps", "size", "reported", "said"),
    [(6, 12, 6, ""), (7, 12, 7, "of 6 that the budget grants"), (6, 12, 4, "4 were reported"), (6, 3000, 6, "examples")],
)
def test_what_goes_beyond_the_budget_or_the_report_is_said(steps, size, reported, said) -> None:
    tally = Tally()
    problem = fitted(tally, steps=steps, size=size)
    excess = fit_excess(counted.counts(problem, tally, before=Tally(), reported=reported))
    assert said in excess if said else excess == ""
    assert "before the fit" in fit_excess(counted.counts(problem, tally, before=Tally(examples=1), reported=reported))


def test_decentralised_parties_and_their_server_have_a_budget_each() -> None:
    problem = SILOS(CPU)
    assert counted.allowed_steps(problem) == 6
    for account in problem.federation.accounts:
        account.rounds = 1
    assert counted.allowed_steps(problem) == 4 * 6
    assert counted.allowed_steps(replace(VECTOR(CPU))) == 6
    pooling = SILOS(CPU)
    pooling.federation.pooled()
    assert counted.allowed_steps(pooling) == 3 * 6


def test_evaluations_are_those_of_one_more_sample() -> None:
    weight = torch.randn(8, 8)

    def sample(rows: int) -> None:
        for _ in range(6):
            torch.randn(rows + 5, 8) @ weight  # pilots of no one's are the same for all requests

    assert counted.evaluations(sample, 2 * 8 * 8 * 10, 10, declared=3) == 6
    assert counted.evaluations(sample, 2 * 8 * 8 * 10, 10, declared=20) == 6 * (2 + 5) / 2  # a bound, which says enough
    assert counted.evaluations(sample, 0, 10, declared=3) is None
    assert evaluations_excess(6, 6) == ""
    assert "about 6 evaluations" in evaluations_excess(6.0, 3)


def test_an_extension_has_a_budget_of_its_own() -> None:
    problem = VECTOR(CPU)
    assert counted.allowed_steps(problem, extending=True) == problem.budget.extend_steps
    counts = {"extension_steps": 13.0, "granted_extension_steps": 12.0}
    assert extension_excess(counts) == "13 optimiser steps of the extension, of 12 that the budget grants"
    assert extension_excess({}) == ""


def test_a_run_that_trains_and_samples_more_than_it_says_is_marked_in_its_record(home, tmp_path) -> None:
    text = (Path(__file__).parents[1] / "support" / "planted" / "honest.py").read_text()
    for bug in ("two optimiser steps are reported as one", "evaluations are understated"):
        text = text.replace(STRANGER_BUGS[bug].old, STRANGER_BUGS[bug].new)
    (file := tmp_path / "planted.py").write_text(text)
    facts = {"task": "gauss2d-fact-id", "method": "planted", "preset": "smoke", "device": "cpu", "threads": 1}
    record = run(RunRequest(**facts, home=str(home), plugins=(str(file),))).record
    steps, evaluations = record.spec.budget.train_steps, record.profile.evaluations_per_sample
    assert beyond_budget(record) == (
        f"{2 * steps} optimiser steps, of {steps} that the budget grants",
        f"about {2 * evaluations} evaluations of the network for a sample, of which {evaluations} were declared",
    )


BY_HAND = """
def train(steps):
    weight = torch.ones(2, requires_grad=True)
    for _ in range(steps):
        torch.autograd.grad(weight.square().sum(), weight)
asked = []
def guided(x):
    x = x.detach().requires_grad_()
    return (x - torch.autograd.grad(x.square().sum(), x)[0]).detach()
"""
LATE = "1200 backward passes after the fit, where no training is granted"
BATCH = "federation.pooled().batch(8, torch.Generator())"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"fit": "train(30)"}, ()),
        ({"fit": "train(1200)"}, ("1200 backward passes in 0 optimiser steps, where the budget's steps take 75 at most",)),
        ({"sample": "asked or train(1200); asked.append(1); return request.x0"}, (LATE,)),
        ({"sample": "return guided(guided(request.x0))"}, ()),
        (
            {"fit": "asked.append(problem)", "sample": f"asked and asked.pop().{BATCH}; return request.x0"},
            ("8 examples drawn after the fit, where no training is granted",),
        ),
    ],
    ids=[
        "by hand within the budget",
        "by hand beyond it",
        "in the first answer",
        "guidance by a gradient",
        "a draw in an answer",
    ],
)
def test_training_by_hand_or_after_the_fit_is_marked_and_guidance_is_not(home, plugin, body, said) -> None:
    facts = {"task": "blobs-iid", "method": "naughty", "preset": "smoke", "device": "cpu", "threads": 1}
    record = run(RunRequest(**facts, home=str(home), plugins=(str(plugin(head=BY_HAND, **body)),)), force=True).record
    assert record.status == "ok", record.reason
    assert beyond_budget(record) == said
