"""One guidance weight for all composed rows of a task: every composing method takes the task's unless it is given its own."""

from dataclasses import replace

import pytest
import torch
from problems import context, vector_problem
from support.seldom import seldom

from compbench.api.factors import Holdout
from compbench.api.interfaces import Problem, Request
from compbench.registry.registry import Registry

REGISTRY = Registry()
COMPOSING = {
    "slice-cfg": "holdout_weight",
    **dict.fromkeys(
        ("centralised", "fedflow", "ddm", "dfd", "dcfm-a", "dcfm-b", "naive-ode", "naive-sde", "fkc", "cfg"), "weight"
    ),
}


def problem(guidance_weight: float) -> Problem:
    whole = vector_problem(train_steps=4)
    holdout = Holdout(whole.space, (0, 1), ((1, 1),))
    return replace(whole, holdout=holdout, composed=(0, 1), guidance_weight=guidance_weight)


def drawn(name: str, asked: Problem, **settings):
    torch.manual_seed(0)
    method, ctx = REGISTRY.load("methods", name), context()
    model = method.fit(method.settings(**settings), asked, context())
    request = Request(torch.tensor([[0, 1], [1, 0]] * 8), torch.randn(16, 2, generator=torch.Generator().manual_seed(1)))
    return method.sample(method.settings(**settings), model, request, ctx), ctx.notes


@pytest.mark.parametrize("name", seldom(COMPOSING, but=["cfg", "dcfm-a", "fkc", "naive-ode", "slice-cfg"]))
def test_a_composing_method_takes_the_tasks_weight_unless_given_its_own(name: str) -> None:
    by_task, notes = drawn(name, problem(2.0))
    own, _ = drawn(name, problem(1.0), **{COMPOSING[name]: 2.0})
    plain, plain_notes = drawn(name, problem(1.0))
    assert torch.equal(by_task, own)
    assert not torch.allclose(by_task, plain)
    assert (notes["guidance_weight"], plain_notes["guidance_weight"]) == (2.0, 1.0)


@pytest.mark.parametrize("name", ["centralised", "slice-cfg", "naive-ode"])
def test_only_the_factors_that_the_holdout_is_about_are_guided(name: str) -> None:
    about_one = replace(problem(2.0), composed=(1,))
    method = REGISTRY.load("methods", name)
    assert method.build(method.settings(), about_one).guidance.weights() == (1.0, 2.0)
