"""Given entries lead samples by one stochastic rule, which has the conditional law, and only while a task asks for it."""

import pytest
import torch
from torch import Generator, Tensor

from compbench.api.interfaces import Request
from compbench.flow import smc, solver
from compbench.flow.inpainting import guided_networks, stochastic
from compbench.flow.nets import monolithic_net
from compbench.flow.silos import untrained_mixture
from compbench.flow.solver import answer
from compbench.testing.tiny_problems import PROBLEMS

ROWS, STEPS, SHARED = 4000, 100, 0.8
COVARIANCE = torch.tensor([[1.0, SHARED], [SHARED, 1.0]])
"""Of the data, two entries around (1, -1)."""
MEAN = torch.tensor([1.0, -1.0])
BY_NAME = {tiny.name: tiny for tiny in PROBLEMS}


def velocity(x: Tensor, t: Tensor) -> Tensor:
    """(E[x1 | x_t] - x) / (1 - t) of Gaussian data on the linear path, in closed form."""
    time = t[0]
    spread = time**2 * COVARIANCE + (1 - time) ** 2 * torch.eye(2)
    denoised = MEAN + (x - time * MEAN) @ (time * torch.linalg.solve(spread, COVARIANCE))
    return (denoised - x) / (1 - time)


def asked() -> Request:
    generator = Generator().manual_seed(1)
    known = torch.tensor([2.0, 0.0]).expand(ROWS, 2)
    mask = torch.tensor([True, False]).expand(ROWS, 2)
    return Request(torch.zeros(ROWS, 2, dtype=torch.long), torch.randn(ROWS, 2, generator=generator), known, mask)


def test_samples_have_the_law_given_what_is_known() -> None:
    request = asked()
    with stochastic(None, Generator().manual_seed(2), weight=1.0), torch.no_grad():
        drawn = answer(velocity, request, num_steps=STEPS)
    assert (drawn[:, 0] == 2).all()
    given = -1 + SHARED * (2 - 1)
    assert float(drawn[:, 1].mean()) == pytest.approx(given, abs=0.06)
    assert float(drawn[:, 1].std()) == pytest.approx((1 - SHARED**2) ** 0.5, rel=0.1)


def test_a_request_that_gives_nothing_and_all_requests_afterwards_are_answered_as_ever() -> None:
    request, before = asked(), (solver.euler, smc.feynman_kac)
    plain = answer(velocity, request._replace(known=None, known_mask=None), num_steps=5)
    with stochastic(None, Generator().manual_seed(2), weight=1.0):
        assert torch.equal(answer(velocity, request._replace(known=None, known_mask=None), num_steps=5), plain)
        assert (solver.euler, smc.feynman_kac) != before
    assert (solver.euler, smc.feynman_kac) == before


@pytest.mark.parametrize("name", ["vector", "silos"])
def test_networks_have_the_weight_of_such_requests_meanwhile(name: str) -> None:
    problem = BY_NAME[name].make(torch.device("cpu"))
    net = monolithic_net(problem)
    model = untrained_mixture(net, problem) if name == "silos" else net
    own = [found.guidance for found in guided_networks(model)]
    with stochastic(model, Generator(), weight=1.75):
        assert {found.guidance.weight for found in guided_networks(model)} == {1.75}
    assert [found.guidance for found in guided_networks(model)] == own != []
