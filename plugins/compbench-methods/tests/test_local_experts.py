"""Networks that saw their own silo alone: fitted once, and what each method makes of them."""

import json

import pytest
import torch
from compbench_methods import ddm, soup, superdiff_or
from problems import context
from test_silo_methods import draw, problem

from compbench.api.interfaces import Method
from compbench.flow.local_experts import LocalExperts, LocalSettings, start_of
from compbench.flow.silos import network, recipe

METHODS: dict[str, Method] = {
    method.name: method for module in (ddm, soup, superdiff_or) for method in module.compbench_methods()
}


def facts(name: str, **settings: object) -> str:
    method = METHODS[name]
    return json.dumps(method.shared_fit(method.settings(**settings), problem()), sort_keys=True)


def trained(seed: int = 0) -> LocalExperts:
    torch.manual_seed(seed)
    return METHODS["ddm"].parts.fit(LocalSettings(), problem(train_steps=16), context())


def test_methods_that_answer_otherwise_ask_for_one_fit() -> None:
    assert len({facts(name) for name in METHODS}) == 1
    same = [facts("task-arithmetic", scaling=0.7), facts("superdiff-or", temperature=2.0), facts("ddm", inference="joint")]
    assert {*same, facts("soup", ci_weight=3.0)} == {facts("ddm")}


@pytest.mark.parametrize("settings", [{"local_ci": True}, {"head_width": 2.0}, {"pi_full": 0.6, "pi_marginal": 0.3}])
def test_what_changes_the_fit_is_among_its_facts(settings: dict) -> None:
    assert facts("ddm", **settings) != facts("ddm")


@pytest.mark.parametrize("name", METHODS)
def test_a_kept_fit_of_another_method_samples_like_ones_own_bit_for_bit(name: str) -> None:
    method, asked = METHODS[name], torch.tensor([[0, 0], [1, 0]] * 8)
    settings, whole = method.settings(), problem(train_steps=16)
    torch.manual_seed(0)
    own = method.fit(settings, whole, context())
    kept = method.parts.build(settings, whole)
    kept.load_state_dict(trained().state_dict())
    torch.manual_seed(1)  # a run that loads a fit has drawn nothing of it
    made = method.parts.finish(settings, whole, kept.eval())
    assert torch.equal(draw(method, made, asked), draw(method, own, asked))
    built = method.build(settings, whole)
    built.load_state_dict(made.state_dict())


@pytest.mark.parametrize("seed", [0, 2**63 + 5, 2**64 - 1])
def test_the_common_start_is_kept_with_the_networks(seed: int) -> None:
    torch.manual_seed(seed)
    expected = recipe(network, LocalSettings(), problem())().state_dict()
    kept = trained(seed)
    torch.manual_seed(7)
    found = start_of(LocalSettings(), problem(), kept).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
