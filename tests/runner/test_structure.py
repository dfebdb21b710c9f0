"""The structure of hidden activations: which layer is heard, known answers, and a model that is left as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compbench.api.context import Batch
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow.nets import monolithic_net
from compbench.runner.structure import MOST_ROWS, structure_of

SPACE = FactorSpace([Factor("a", 4), Factor("b", 5), Factor("c", 3)])
HOLDOUT = Holdout.by_rule(SPACE, ("a", "b"), lambda a, b: (a + b) % 3 == 0)
BUDGET = Budget(train_steps=4, batch_size=4, width=8, learning_rate=1e-3, sample_steps=2)
CPU = torch.device("cpu")


class Nothing:
    name, size = "nothing", 1

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        raise AssertionError("the structure is measured without data")


def problem(**changed: Any) -> Problem:
    known = Problem(SPACE, Event("image", (1, 8, 8)), Federation([Nothing()]), BUDGET, HOLDOUT, composed=(0, 1))
    return replace(known, **changed)


class Sums(nn.Module):
    """A hidden layer of a's effects in its first half and b's in its second, and a projection; `rest` times a * b on top."""

    def __init__(self, rest: float = 0.0) -> None:
        super().__init__()
        self.effects = nn.ParameterList(torch.randn(size, 6, generator=torch.Generator().manual_seed(size)) for size in (4, 5))
        self.drop, self.leave, self.rest = nn.Dropout(0.5), nn.Linear(12, 64), rest

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        a, b = (effects[condition[:, k]] for k, effects in enumerate(self.effects))
        h = torch.cat([a, b], 1) + self.rest * torch.cat([a * a.roll(1, 1) * b, a * b], 1)
        return self.leave(self.drop(h)).unflatten(1, (1, 8, 8)) + x_t


def test_additive_orthogonal_activations_have_an_r2_of_one_and_a_cosine_of_zero() -> None:
    model = Sums()
    model.drop.train()
    found = structure_of(model, problem(), CPU, 0)
    assert found is not None
    assert (found.r2, found.cosine) == (pytest.approx(1), pytest.approx(0, abs=1e-5))
    assert (found.layer, found.num_cells, found.num_units) == ("input of leave", len(HOLDOUT.seen_cells), 12)
    mixed = structure_of(Sums(rest=1.0), problem(), CPU, 0)
    assert mixed is not None
    assert mixed.r2 is not None
    assert found.num_effects / (found.num_cells - 1) < mixed.r2 < 0.95


def test_a_network_names_its_layer_and_one_of_conditions_alone_is_asked_for_these() -> None:
    class Decoder(nn.Sequential):
        def forward(self, condition: Tensor) -> Tensor:
            return super().forward(condition[:, :2].float())

    model = Decoder(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 3))
    plain = structure_of(model, problem(), CPU, 0)
    model.hidden_layer = "0"  # type: ignore[assignment]
    named = structure_of(model, problem(), CPU, 0)
    assert plain is not None
    assert named is not None
    assert plain.layer == "input of 2"
    assert (named.layer, named.r2) == ("output of 0", pytest.approx(1))
    assert plain.r2 is not None
    assert plain.r2 < 0.999


def test_the_house_s_network_is_heard_before_its_projection_and_left_as_it_was() -> None:
    net = monolithic_net(problem())
    assert structure_of(net, problem(), CPU, 0).r2 is None  # as it is built, it does not look at the condition
    nn.init.normal_(net.conditioning.head[-1].weight)
    net.backbone.up_blocks.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes, chance = [module.training for module in net.modules()], torch.get_rng_state()
    found = structure_of(net, problem(), CPU, 0)
    assert found is not None
    assert found.layer == "input of backbone.leave"
    assert found == structure_of(net, problem(), CPU, 0) != structure_of(net, problem(), CPU, 1)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert modes == [module.training for module in net.modules()]
    assert torch.equal(chance, torch.get_rng_state())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in net.modules())


def test_many_cells_are_drawn_from_and_those_that_fit_any_vectors_have_no_r2() -> None:
    large = FactorSpace([Factor("a", 30), Factor("b", 30), Factor("c", 3)])
    many = Holdout.by_rule(large, ("a", "b"), lambda a, b: a == b)

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.leave = nn.Linear(60, 2)

        def forward(self, condition: Tensor) -> Tensor:
            return self.leave(torch.cat([nn.functional.one_hot(condition[:, k], 30) for k in (0, 1)], 1).float())

    found = structure_of(Tables(), problem(space=large, holdout=many), CPU, 0)
    assert found is not None
    assert (found.num_cells, found.r2) == (MOST_ROWS, pytest.approx(1))
    few = Holdout.by_rule(SPACE, ("a", "b"), lambda a, b: a != b)
    saturated = structure_of(Sums(), problem(holdout=few), CPU, 0)
    assert saturated is not None
    assert saturated.r2 is None


@pytest.mark.parametrize("model", [None, nn.Linear(3, 3), nn.Sequential(nn.ReLU()), torch.zeros(3), Sums().leave])
def test_a_model_that_names_no_layer_has_no_structure(model: object) -> None:
    assert structure_of(model, problem(), CPU, 0) is None


def test_a_task_without_a_holdout_of_two_factors_has_none() -> None:
    assert structure_of(Sums(), problem(holdout=Holdout.empty(SPACE)), CPU, 0) is None
    assert structure_of(Sums(), problem(holdout=Holdout.by_rule(SPACE, ("a",), lambda a: a == 1)), CPU, 0) is None
