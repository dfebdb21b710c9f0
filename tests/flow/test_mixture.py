"""Routers and mixtures against sums worked by hand."""

import torch
from torch import Generator

from compbench.api.factors import NULL, Factor, FactorSpace, Holdout, Weighted
from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow.experts import Experts
from compbench.flow.mixture import LabelRouter, composition, label_counts, mixture_velocity
from compbench.flow.nets import monolithic_net

SIZES = (2, 3)


def test_label_counts_are_side_by_side() -> None:
    condition = torch.tensor([[0, 2], [0, 0], [1, 2]])
    assert label_counts(condition, SIZES).tolist() == [2, 1, 1, 0, 2]


def test_a_router_of_labels_follows_marginals_only() -> None:
    # Silo 0 has 30 examples, silo 1 has 10; value a=1 is silo 1's alone, value b=2 is no one's.
    counts = torch.tensor([[30.0, 0.0, 15.0, 15.0, 0.0], [5.0, 5.0, 0.0, 10.0, 0.0]])
    router = LabelRouter(counts, SIZES)
    asked = torch.tensor([[[0, NULL]], [[1, NULL]], [[NULL, 1]], [[NULL, NULL]], [[1, 1]], [[NULL, 2]]])
    weights = router(torch.zeros(1, 2), torch.zeros(1), asked)[:, :, 0]
    assert torch.allclose(weights.sum(0), torch.ones(6))
    assert torch.allclose(weights[0], torch.tensor([30 / 35, 0.0, 15 / 25, 0.75, 0.3, 0.75]))


def test_a_mixture_is_the_weighted_sum_of_experts_and_members() -> None:
    space = FactorSpace([Factor("a", 2), Factor("b", 3)])
    budget = Budget(train_steps=1, batch_size=4, width=8, learning_rate=1e-3, sample_steps=2)
    problem = Problem(space, Event("vector", (2,)), None, budget, Holdout.empty(space))
    nets = []
    for seed in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            nets.append(monolithic_net(problem, head_width=1.0).eval())
            for parameter in nets[-1].parameters():
                torch.nn.init.normal_(parameter, std=0.3)
    experts = Experts(nets[0], [net.state_dict() for net in nets])
    generator = Generator().manual_seed(0)
    x, t = torch.randn(4, 2, generator=generator), torch.rand(4, generator=generator)
    members = composition(torch.tensor([[1, 2]] * 4), [1.5, 1.5], "composed")
    shares = torch.tensor([[0.2, 0.7, 1.0], [0.8, 0.3, 0.0]])
    with torch.no_grad():
        found = mixture_velocity(experts, lambda x, t, c: shares[:, :, None].expand(2, 3, 4), x, t, members)
        expected = sum(
            member.weight * shares[a, k] * nets[a](x, t, member.condition) for a in range(2) for k, member in enumerate(members)
        )
    assert torch.allclose(found, expected, atol=1e-5)


def test_compositions_around_null_or_whole() -> None:
    condition = torch.tensor([[1, 2]])
    around = composition(condition, [2.0, 2.0], "composed")
    assert sorted((member.weight, member.condition.tolist()) for member in around) == [
        (-3.0, [[NULL, NULL]]),
        (2.0, [[NULL, 2]]),
        (2.0, [[1, NULL]]),
    ]
    assert composition(condition, [2.0, 2.0], "joint") == [Weighted(1.0, condition)]
