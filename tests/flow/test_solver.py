import math

import pytest
import torch
from torch import Tensor

from compbench.api.interfaces import Request
from compbench.flow.solver import Known, answer, euler


def growth(x: Tensor, t: Tensor) -> Tensor:
    return x


def test_euler_follows_a_straight_path_exactly_in_one_step() -> None:
    x0, x1 = torch.randn(2, 4, 3)
    torch.testing.assert_close(euler(lambda x, t: x1 - x0, x0, num_steps=1), x1)


def test_euler_of_exponential_growth_is_compound_interest() -> None:
    x = euler(growth, torch.ones(1, 1, dtype=torch.float64), num_steps=10)
    assert float(x) == pytest.approx(1.1**10)


def test_euler_is_of_first_order() -> None:
    def error(num_steps: int) -> float:
        return abs(float(euler(growth, torch.ones(1, 1, dtype=torch.float64), num_steps=num_steps)) - math.e)

    assert error(32) / error(64) == pytest.approx(2, rel=0.05)


def test_euler_asks_at_the_beginning_of_each_step() -> None:
    asked: list[float] = []

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        assert t.shape == (4,)
        asked.append(float(t[0]))
        return x

    euler(velocity, torch.zeros(4, 3), num_steps=2)
    assert asked == [0.0, 0.5]


def test_solver_leaves_the_noise_alone() -> None:
    x0 = torch.randn(4, 3)
    before = x0.clone()
    euler(growth, x0, num_steps=3)
    assert torch.equal(x0, before)


def test_answer_moves_known_entries_along_their_path_and_returns_them_as_given() -> None:
    x0, known = torch.randn(2, 5, 3)
    mask = torch.tensor([True, False, True]).expand(5, 3)
    seen = []

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        seen.append((float(t[0]), x))
        return x.sum(1, keepdim=True).expand_as(x)  # the free entry follows the others

    x1 = answer(velocity, Request(torch.zeros(5, 1), x0, known, mask), num_steps=7)
    assert torch.equal(x1[mask], known[mask])
    for t, x in seen:
        torch.testing.assert_close(x[mask], ((1 - t) * x0 + t * known)[mask])
    assert not torch.allclose(x1, answer(velocity, Request(torch.zeros(5, 1), x0), num_steps=7))


def test_answer_without_known_entries_is_euler() -> None:
    x0 = torch.randn(4, 2)
    request = Request(torch.zeros(4, 1), x0)
    assert Known.of(request) is None
    assert torch.equal(answer(growth, request, num_steps=3), euler(growth, x0, num_steps=3))


def test_answer_draws_from_the_conditional_law_of_a_gaussian() -> None:
    """x1 = (z, 0.9 z + sqrt(0.19) e): given z the other entry is N(0.9 z, 0.19)."""
    covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]])

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        now = float(t[0])
        gain = now * covariance @ torch.linalg.inv(now**2 * covariance + (1 - now) ** 2 * torch.eye(2))
        return (x @ gain.T - x) / (1 - now)

    x0 = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    known, mask = torch.full((4000, 2), 1.5), torch.tensor([True, False]).expand(4000, 2)
    other = answer(velocity, Request(torch.zeros(4000, 1), x0, known, mask), num_steps=100)[:, 1]
    assert float(other.mean()) == pytest.approx(1.35, abs=0.04)
    assert float(other.std()) == pytest.approx(0.19**0.5, abs=0.04)
