"""What the largest requests of the `paper` preset hold on a GPU, counted on tensors without numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support import stand_in
from support.peak_memory import GIB, Peak, counted, draws_without_driver
from support.seldom import seldom
from torch import Tensor, nn

from compbench.api.factors import NULL, Weighted
from compbench.flow import memory, scores
from compbench.flow.compose import compose
from compbench.flow.experts import Experts
from compbench.flow.mixture import LabelRouter, mixture_velocity
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.noise import NoiseNet
from compbench.flow.smc import chunk
from compbench.registry.registry import Registry
from compbench.runner.referee import GPU_BATCH, TRAJECTORY_BATCH

pytestmark = [
    stand_in.needs_torch_with_cuda,
    pytest.mark.skipif(not draws_without_driver(), reason="this torch draws no numbers of a GPU in name only"),
]
LIMIT = 40 * GIB
REGISTRY = Registry()
IMAGES = seldom(["shapes3d-heavy", "mpi3d-heavy", "cmnist-iid"], but=["shapes3d-heavy"])


def at_paper(task: str) -> SimpleNamespace:
    """What a task's networks depend on, at `paper`."""
    found = REGISTRY.load("tasks", task)
    facts = {"space": found.space, "event": found.event, "budget": found.budgets["paper"]}
    return SimpleNamespace(**facts, guidance_weight=1.0, composed=(0, 1))


def around_null(problem: SimpleNamespace, rows: int) -> list[Weighted]:
    condition = torch.full((rows, len(problem.space)), NULL)
    return [Weighted(1.0, condition) for _ in range(len(problem.space) + 1)]


def swarm(problem: SimpleNamespace, num_particles: int, most: int) -> Tensor:
    rows = min(most, chunk(torch.empty(1, *problem.event.shape), num_particles))
    return torch.empty(rows, num_particles, *problem.event.shape)


@pytest.mark.parametrize("task", IMAGES)
def test_swarms_of_images_fit(task: str) -> None:
    problem = at_paper(task)
    with counted() as peak, torch.no_grad():
        net = monolithic_net(problem)
        x = swarm(problem, 16, GPU_BATCH)
        composed = scores.of_velocity_net(net, around_null(problem, len(x))).composed
        now = composed(x, 0.5)
        moved = x + now.score + torch.empty_like(x)
        right = composed(moved, 0.6)
        assert right.score.shape == x.shape
    assert peak.bytes < LIMIT


@pytest.mark.parametrize("task", IMAGES)
def test_a_composition_of_slices_fits(task: str) -> None:
    problem = at_paper(task)
    with counted() as peak, torch.no_grad():
        net, x = monolithic_net(problem), torch.empty(GPU_BATCH, *problem.event.shape)
        assert compose(net, x, torch.empty(len(x)), around_null(problem, len(x))).shape == x.shape
    assert peak.bytes < LIMIT


@pytest.mark.slow
def test_a_mixture_of_ten_silos_experts_fits() -> None:
    problem = at_paper("cmnist-iid")
    with counted() as peak, torch.no_grad():
        net = monolithic_net(problem)
        experts = Experts(net, [net.state_dict()] * 10)
        router = LabelRouter(torch.ones(10, sum(problem.space.sizes)), problem.space.sizes)
        x = torch.empty(GPU_BATCH, *problem.event.shape)
        found = mixture_velocity(experts, router, x, torch.empty(len(x)), around_null(problem, len(x)))
        assert found.shape == x.shape
    assert peak.bytes < LIMIT


@pytest.mark.parametrize("num_particles", [16, 1024, 1 << 16])
def test_swarms_of_vectors_fit(num_particles: int) -> None:
    with counted() as peak, torch.no_grad():
        net = NoiseNet(2, ((0, 0), (1, 0), (0, 1)), width=512, experts=False, sample_steps=5)
        rows = chunk(torch.empty(1, 2), num_particles)
        x = torch.empty(min(rows, 8192) * num_particles, 2)
        assert net.at_sources(x, 0.5, [0, 1, 2]).shape == (3, *x.shape)
    assert peak.bytes < LIMIT


def test_swarms_of_plans_around_what_is_given_fit() -> None:
    """They need gradients: what the forward keeps for them, and as much again while they are taken."""
    problem = at_paper("planning-iid")
    with counted() as peak:
        net = monolithic_net(problem)
        x = swarm(problem, 16, TRAJECTORY_BATCH).requires_grad_(True)
        found = scores.of_velocity_net(net, around_null(problem, len(x))).composed(x, 0.5)
        assert found.score.shape == x.shape
    assert peak.bytes < LIMIT / 2


@pytest.mark.parametrize("task", ["shapes3d-heavy", "cmnist-iid", "planning-iid", "blobs-iid"])
def test_a_network_says_what_its_forward_holds(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FORWARD_NUMBERS", 1 << 60)
    problem, rows = at_paper(task), 2048 if task in ("planning-iid", "blobs-iid") else 64
    with counted(), torch.no_grad():
        net: VelocityNet = monolithic_net(problem)
        conditions = torch.full((4, rows, len(problem.space)), NULL)
        x, t = torch.empty(rows, *problem.event.shape), torch.empty(rows)
        with Peak() as peak:
            net.stacked(x, t, conditions)
    assert 0.75 < peak.bytes / 4 / (4 * rows) / net.numbers_per_row < 1.1


class Counting(nn.Module):
    """v = x + c, and the rows of each call."""

    numbers_per_row = 100

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def stacked(self, x: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        self.rows.append(len(x))
        return x + t[:, None] + conditions


def test_rows_that_do_not_fit_go_through_in_parts_and_come_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FORWARD_NUMBERS", 100 * 2 * 3)
    with stand_in.gpu(), torch.no_grad():
        x, t, c = (torch.randn(*shape, device="cuda") for shape in ((7, 2), (7,), (2, 7, 2)))
        members = [Weighted(1.0, c[0]), Weighted(2.0, c[1])]
        net = Counting()
        found = compose(net, x, t, members)
        assert net.rows == [3, 3, 1]
        whole = 3 * (x + t[:, None]) + c[0] + 2 * c[1]
        assert torch.allclose(found.cpu(), whole.cpu(), atol=1e-5)
    with torch.no_grad():
        compose(net, x.cpu(), t.cpu(), [Weighted(1.0, c[0].cpu())] * 2)
    assert net.rows[3:] == [7]  # a CPU's memory is large, and splitting would change its numbers
