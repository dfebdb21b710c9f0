"""Stacked experts against one after the other, on every architecture."""

import pytest
import torch
from reference.experts import loop
from torch import Generator

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow.experts import Experts
from compbench.flow.nets import monolithic_net

SPACE = FactorSpace([Factor("a", 2), Factor("b", 3)])
SHAPES = {"vector": (2,), "image": (3, 16, 16)}


def network(kind: str, seed: int) -> torch.nn.Module:
    budget = Budget(train_steps=1, batch_size=4, width=8, patch=2 if kind == "image" else 1, learning_rate=1e-3, sample_steps=2)
    problem = Problem(SPACE, Event(kind, SHAPES[kind]), None, budget, Holdout.empty(SPACE))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = monolithic_net(problem, head_width=1.0)
        for parameter in net.parameters():  # the last layers start at 0, and equal outputs would show nothing
            torch.nn.init.normal_(parameter, std=0.2)
    return net.eval()


def asked(kind: str, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = Generator().manual_seed(0)
    x = torch.randn(experts, 5, *SHAPES[kind], generator=generator)
    t = torch.rand(5, generator=generator)
    conditions = torch.stack([torch.randint(-1, size, (experts, 4, 5), generator=generator) for size in SPACE.sizes], -1)
    return x, x[0], t, conditions


@pytest.mark.parametrize("kind", ["vector", "image"])
def test_one_stacked_call_is_the_loop_and_the_networks_themselves(kind: str) -> None:
    nets = [network(kind, seed) for seed in range(3)]
    experts = Experts(nets[0], [net.state_dict() for net in nets])
    own, shared, t, conditions = asked(kind, 3)
    with torch.no_grad():
        stacked = experts(shared, t, conditions)
        assert torch.allclose(stacked, loop(nets, shared, t, conditions), atol=1e-5)
        for a, net in enumerate(nets):
            for k in range(4):
                assert torch.allclose(stacked[a, k], net(shared, t, conditions[a, k]), atol=1e-5)
        assert torch.allclose(
            experts(own, t, conditions, own_points=True), loop(nets, own, t, conditions, own_points=True), atol=1e-5
        )
    assert (stacked[0] - stacked[1]).abs().mean() > 1e-2


def test_chosen_experts_may_repeat_and_the_state_dict_is_the_stack_alone() -> None:
    nets = [network("vector", seed) for seed in range(3)]
    experts = Experts(nets[0], [net.state_dict() for net in nets])
    _, x, t, conditions = asked("vector", 4)
    routed = experts.chosen(torch.tensor([2, 0, 2, 1]))
    with torch.no_grad():
        found = routed(x, t, conditions)
        for row, expert in enumerate([2, 0, 2, 1]):
            assert torch.allclose(found[row, 0], nets[expert](x, t, conditions[row, 0]), atol=1e-5)
    assert len(routed) == 4
    assert sum(p.numel() for p in experts.parameters()) == 3 * sum(p.numel() for p in nets[0].parameters())
    assert not any(p.requires_grad for p in experts.parameters())
    assert all(value.shape[0] == 3 for value in experts.state_dict().values())
    again = Experts(network("vector", 9), [network("vector", 9).state_dict()] * 3)
    again.load_state_dict(experts.state_dict())
    with torch.no_grad():
        assert torch.equal(again.everywhere(x, t, conditions[0]), experts.everywhere(x, t, conditions[0]))
