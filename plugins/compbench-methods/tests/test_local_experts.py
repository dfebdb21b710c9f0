"""Networks that saw their own silo alone: fitted once, and what each method makes of them."""

import json

import pytest
import torch
from compbench_methods import ddm, superdiff_or
from problems import context
from test_silo_methods import draw, problem

from compbench.api.interfaces import Method
from compbench.flow.local_experts import LocalExperts, LocalSettings

METHODS: dict[str, Method] = {method.name: method for module in (ddm, superdiff_or) for method in module.compbench_methods()}


def facts(name: str, **settings: object) -> str:
    method = METHODS[name]
    return json.dumps(method.shared_fit(method.settings(**settings), problem()), sort_keys=True)


def trained(seed: int = 0) -> LocalExperts:
    torch.manual_seed(seed)
    return METHODS["ddm"].parts.fit(LocalSettings(), problem(train_steps=16), context())


def test_methods_that_answer_otherwise_ask_for_one_fit() -> None:
    assert len({facts(name) for name in METHODS}) == 1
    same = [facts("superdiff-or", temperature=2.0), facts("ddm", inference="joint"), facts("ddm", ci_weight=3.0)]
    assert set(same) == {facts("ddm")}


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


def test_an_expert_has_the_share_of_its_silos_examples_with_the_value() -> None:
    """Of silo 0's 30 examples one has value 1 of the first factor; of silo 1's 10 none has value 0 of the second."""
    prior = superdiff_or.LabelPrior(torch.tensor([[29.0, 1, 15, 15, 0], [5.0, 5, 0, 10, 0]]), (2, 3))

    def shares(*condition: int) -> list[float]:
        found = prior(torch.tensor(condition)[None, None])[:, 0, 0]  # (n,)
        return found.softmax(0).tolist()

    assert shares(-1, -1) == pytest.approx([30 / 40, 10 / 40])
    assert shares(0, -1) == pytest.approx([29 / 34, 5 / 34])
    assert shares(1, -1) == pytest.approx([1 / 6, 5 / 6])
    assert shares(-1, 0) == [1.0, 0.0]
    assert shares(1, 1) == pytest.approx([1 * 15 / 30 / (15 / 30 + 5 * 10 / 10), 5 / (15 / 30 + 5)])
    assert shares(-1, 2) == pytest.approx([30 / 40, 10 / 40])  # no silo has it
    assert all(value.isfinite().all() for value in prior.state_dict().values())  # as `compbench check` demands of stored weights
