"""Energies against the Gaussian that they should find, and the router that weighs by them."""

import torch
from torch import Generator, nn

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.interfaces import Budget, Event
from compbench.data.silo_shards import TensorSilo
from compbench.flow.energy import LAST_TIME, DensityRouter, Energy, score_matching_loss
from compbench.flow.superposed_silos import SiloPrior
from compbench.flow.train import train


class Exact(nn.Module):
    """log density of x_t for data N(mean, var I), up to a constant."""

    def __init__(self, mean: float, var: float) -> None:
        super().__init__()
        self.mean, self.var = mean, var

    def forward(self, x, t):
        variance = (1 - t) ** 2 + t**2 * self.var
        return -(x - t[:, None] * self.mean).square().sum(1) / (2 * variance)

    centred = forward


def gaussian(count: int, mean: float, std: float) -> torch.Tensor:
    return mean + std * torch.randn(count, 2, generator=Generator().manual_seed(0))


def test_the_exact_score_minimises_the_loss() -> None:
    batch = Batch(gaussian(50_000, 1.0, 0.5), torch.zeros(50_000, 1, dtype=torch.long))

    def loss(mean: float, var: float) -> float:
        return score_matching_loss(Exact(mean, var), batch, Generator().manual_seed(1)).item()

    exact = loss(1.0, 0.25)
    assert exact < min(loss(0.9, 0.25), loss(1.1, 0.25), loss(1.0, 0.2), loss(1.0, 0.3))


def test_a_trained_energy_is_the_log_density_up_to_a_constant() -> None:
    torch.manual_seed(0)
    x1 = gaussian(4000, 1.0, 0.5)
    energy = Energy(Event("vector", (2,)), width=64)
    budget = Budget(train_steps=500, batch_size=256, width=64, learning_rate=5e-3, ema_decay=0.97, sample_steps=1)
    ctx = Context(torch.device("cpu"), "fp32", Generator().manual_seed(0), NoCheckpoints())
    train(energy, score_matching_loss, TensorSilo("one", x1, torch.zeros(4000, 1, dtype=torch.long)), budget, ctx)
    for time in (0.2, 0.5, 0.8):
        t = torch.full((500,), time)
        x = gaussian(500, 0.0, 1.0) * ((1 - time) ** 2 + time**2 * 0.25) ** 0.5 + time
        with torch.no_grad():
            found, expected = energy(x, t), Exact(1.0, 0.25)(x, t)
        error = (found - found.mean()) - (expected - expected.mean())
        assert error.std() < 0.2 * expected.std()


def test_energies_are_centred_on_the_silos_own_points() -> None:
    x1 = gaussian(4000, 1.0, 0.5)
    silo = TensorSilo("one", x1, torch.zeros(4000, 1, dtype=torch.long))
    energy = Energy(Event("image", (1, 8, 8)), width=16)
    images = TensorSilo("two", torch.randn(300, 1, 8, 8), torch.zeros(300, 1, dtype=torch.long))
    energy.centre(images, Generator().manual_seed(0), num_batches=1)
    plane = Energy(Event("vector", (2,)), width=16)
    plane.centre(silo, Generator().manual_seed(0))
    x0 = torch.randn(x1.shape, generator=Generator().manual_seed(5))
    for time in (0.0, LAST_TIME / 19 * 4):
        t = torch.full((len(x1),), time)
        with torch.no_grad():
            assert abs(float(plane.centred((1 - time) * x0 + time * x1, t).mean())) < 0.05


def test_identical_silos_are_routed_equally_where_all_is_noise() -> None:
    """Untrained energies in 2,352 dimensions, where |x0|^2 / 2 varies by 34 nats; each silo has its own generator."""
    energies, shape = [Energy(Event("vector", (2352,)), width=16) for _ in range(4)], (32, 2352)
    silo = TensorSilo("each", torch.randn(shape, generator=Generator().manual_seed(0)), torch.zeros(32, 1, dtype=torch.long))
    for seed, energy in enumerate(energies):
        energy.load_state_dict(energies[0].state_dict())
        energy.centre(silo, Generator().manual_seed(seed), num_batches=1)
    router = DensityRouter(energies, SiloPrior(torch.ones(4), torch.ones(4, 1, 1, dtype=torch.bool)), temperature=1.0)
    with torch.no_grad():
        weights = router(torch.randn(shape), torch.zeros(32), torch.zeros(1, 32, 1, dtype=torch.long))
    assert (weights - 1 / 4).abs().max() < 0.02


def test_the_router_weighs_by_density_and_size() -> None:
    energies = [Exact(-2.0, 1.0), Exact(2.0, 1.0)]
    router = DensityRouter(energies, SiloPrior(torch.tensor([30, 10]), torch.ones(2, 2, 1, dtype=torch.bool)), temperature=1.0)
    x = torch.tensor([[-2.0, -2.0], [2.0, 2.0], [0.0, 0.0]])
    weights = router(x, torch.ones(3), torch.zeros(4, 3, 2, dtype=torch.long))
    assert weights.shape == (2, 4, 3)
    assert torch.allclose(weights.sum(0), torch.ones(4, 3))
    assert torch.allclose(weights[0, :, 2], torch.full((4,), 0.75))
    assert torch.allclose(weights[0, 0], torch.sigmoid(torch.tensor([16.0, -16.0, 0.0]) + torch.tensor(3.0).log()))
    assert torch.equal(weights[:, 0], weights[:, 3])


def test_the_router_asks_no_silo_for_a_value_that_it_never_saw() -> None:
    """Silo 0 has both values of the first factor, silo 1 the second alone; x lies where silo 1 is dense."""
    knows = torch.tensor([[[True, True]], [[False, True]]])
    router = DensityRouter([Exact(-2.0, 1.0), Exact(2.0, 1.0)], SiloPrior(torch.tensor([10, 10]), knows), temperature=1.0)
    conditions = torch.tensor([0, 1, -1])[:, None, None]  # (K, 1, 1)
    weights = router(torch.tensor([[2.0, 2.0]]), torch.ones(1), conditions)[..., 0]  # (n, K)
    assert weights[:, 0].tolist() == [1.0, 0.0]
    assert torch.allclose(weights[1, 1:], torch.sigmoid(torch.tensor(16.0)))
