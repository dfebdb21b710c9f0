import math

import pytest
import torch
from torch import Tensor

from compbench.flow.solver import euler, heun


def growth(x: Tensor, t: Tensor) -> Tensor:
    return x


def test_euler_follows_a_straight_path_exactly_in_one_step() -> None:
    x0, x1 = torch.randn(2, 4, 3)
    torch.testing.assert_close(euler(lambda x, t: x1 - x0, x0, num_steps=1), x1)


def test_euler_of_exponential_growth_is_compound_interest() -> None:
    x = euler(growth, torch.ones(1, 1, dtype=torch.float64), num_steps=10)
    assert float(x) == pytest.approx(1.1**10)


def test_heun_of_exponential_growth_is_its_second_order_polynomial() -> None:
    x = heun(growth, torch.ones(1, 1, dtype=torch.float64), num_steps=10)
    assert float(x) == pytest.approx((1 + 0.1 + 0.1**2 / 2) ** 10)


@pytest.mark.parametrize(("solver", "order"), [(euler, 1), (heun, 2)])
def test_solver_converges_with_its_order(solver, order) -> None:
    def error(num_steps: int) -> float:
        return abs(float(solver(growth, torch.ones(1, 1, dtype=torch.float64), num_steps=num_steps)) - math.e)

    assert error(32) / error(64) == pytest.approx(2**order, rel=0.05)


@pytest.mark.parametrize(("solver", "times"), [(euler, [0.0, 0.5]), (heun, [0.0, 0.5, 0.5, 1.0])])
def test_solver_asks_at_these_times(solver, times) -> None:
    asked: list[float] = []

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        assert t.shape == (4,)
        asked.append(float(t[0]))
        return x

    solver(velocity, torch.zeros(4, 3), num_steps=2)
    assert asked == times


def test_solver_leaves_the_noise_alone() -> None:
    x0 = torch.randn(4, 3)
    before = x0.clone()
    euler(growth, x0, num_steps=3)
    assert torch.equal(x0, before)
