"""Superposed models against closed forms: followed densities are the true ones, AND ends where they agree, OR is a mixture."""

from functools import partial

import pytest
import torch
from torch import Tensor

from compbench.flow.path import VariancePreservingPath
from compbench.flow.smc import given, schedule
from compbench.flow.solver import Known
from compbench.flow.superposition import all_equal, either, follow_all, superposed_step
from compbench.flow.swarms import levels

PATH = VariancePreservingPath()
AT = schedule(PATH, 10, 1e-5)[6]
MEANS = torch.tensor([[-2.0, 0.0], [2.0, 0.0]], dtype=torch.float64)


def moments(t: float) -> tuple[Tensor, float]:
    """Means and variance of N(+-2, 1/4) at t."""
    at = PATH.at(torch.tensor(t, dtype=torch.float64))
    return at.alpha * MEANS, float(at.alpha**2 / 4 + at.sigma**2)


def scores(x: Tensor, t: float) -> Tensor:
    means, variance = moments(t)
    return (means[:, None] - x) / variance


def log_densities(x: Tensor, t: float) -> Tensor:
    means, variance = moments(t)
    return -(means[:, None] - x).square().sum(-1) / (2 * variance)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 2, generator=generator(seed), dtype=torch.float64)


def test_followed_densities_are_the_true_ones() -> None:
    """Differences of log p_a along a path that a mixture moves, with 4,000 steps, against the densities themselves."""
    steps, x, own = 4000, noise(20), generator(1)
    table, found = schedule(PATH, steps, 1e-5), torch.zeros(2, 20, dtype=torch.float64)
    stop = 3600
    for number in range(stop):
        s = scores(x, table[number].time)
        kappa = torch.full((2, 20), 0.5, dtype=torch.float64)
        step_noise = torch.randn(x.shape, generator=own, dtype=torch.float64)
        x, gained = superposed_step(x, s, kappa, table[number], 1 / steps, step_noise)
        found += gained
    truth = log_densities(x, table[stop].time)
    assert (found[0] - found[1]).tolist() == pytest.approx((truth[0] - truth[1]).tolist(), abs=0.4)
    assert (truth[0] - truth[1]).abs().max() > 2


def test_and_ends_where_the_members_agree() -> None:
    """N((-2, 0), 1/4 I) and N((2, 0), 1/4 I) are equal on the line x = 0 and nowhere else."""
    x = noise(2000)
    active = torch.ones(2, 2000, dtype=torch.bool)
    found = follow_all(
        scores, active, schedule(PATH, 300, 1e-5), x, generator(1), ridge=1e-3, last_noise=True, keep=lambda y, _: y
    )
    assert found[:, 0].abs().mean() < 0.15
    assert found[:, 1].var() == pytest.approx(0.25, rel=0.15)


def test_and_of_one_active_member_is_that_member() -> None:
    x, active = noise(500), torch.tensor([[True], [False]]).expand(2, 500)
    kappa = all_equal(scores(x, 0.6), torch.zeros(2, 500), active, AT, 0.1, noise(500, 1), ridge=1e-3)
    assert kappa[0].tolist() == pytest.approx([1.0] * 500)
    assert not kappa[1].any()


def test_and_shares_evenly_where_the_members_are_one() -> None:
    x = noise(50)
    same = scores(x, 0.6)[:1].expand(3, 50, 2)
    kappa = all_equal(
        same, torch.zeros(3, 50), torch.ones(3, 50, dtype=torch.bool), schedule(PATH, 10, 1e-5)[6], 0.1, noise(50, 1), 1e-3
    )
    assert torch.allclose(kappa, torch.full_like(kappa, 1 / 3))


def test_and_sums_to_one() -> None:
    kappa = all_equal(
        scores(noise(50), 0.6),
        torch.randn(2, 50),
        torch.ones(2, 50, dtype=torch.bool),
        schedule(PATH, 10, 1e-5)[6],
        0.1,
        noise(50, 1),
        1e-3,
    )
    assert kappa.sum(0).tolist() == pytest.approx([1.0] * 50)


def test_or_is_the_score_of_the_mixture() -> None:
    x, shares = noise(100), torch.tensor([0.3, 0.7], dtype=torch.float64)
    kappa = either(log_densities(x, 0.8), shares.log()[:, None])
    leaf = x.clone().requires_grad_(True)
    (log_densities(leaf, 0.8) + shares.log()[:, None]).logsumexp(0).sum().backward()
    assert torch.allclose((kappa[..., None] * scores(x, 0.8)).sum(0), leaf.grad)


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_given_entries_lead_the_others_of_and(apart: float) -> None:
    """x1 = 2 of N((0, -+ apart), [[1, 0.8], [0.8, 1]]) is given.

    Apart, the members are equal where x2 = 0.8 x1, so x2 is 1.6 and no more; members that are one leave x2 its law, N(1.6, 0.36).
    """
    spread = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=torch.float64)
    means = torch.tensor([[0.0, -apart], [0.0, apart]], dtype=torch.float64)

    def tied(x: Tensor, t: float) -> Tensor:
        at = PATH.at(torch.tensor(t, dtype=torch.float64))
        precision = (float(at.alpha**2) * spread + float(at.sigma**2) * torch.eye(2, dtype=torch.float64)).inverse()
        return (at.alpha * means[:, None] - x) @ precision

    x0, ends = noise(2000), levels(PATH, 200, 1e-5)
    known = Known(torch.tensor([2.0, 0.0], dtype=torch.float64).expand_as(x0), torch.tensor([True, False]).expand_as(x0))

    def keep(x: Tensor, number: int) -> Tensor:
        return known.on_path(x, x0, *((1.0, 0.0) if number == 199 else ends[number + 1][1:]))

    x = follow_all(
        tied,
        torch.ones(2, 2000, dtype=torch.bool),
        schedule(PATH, 200, 1e-5),
        x0,
        generator(1),
        ridge=1e-3,
        last_noise=False,
        keep=keep,
        led=partial(given, path=PATH, known=known.with_particles()),
    )
    assert torch.equal(x[:, 0], known.values[:, 0])
    assert x[:, 1].mean().item() == pytest.approx(1.6, abs=0.03)
    assert x[:, 1].std().item() == pytest.approx(0.0 if apart else 0.6, abs=0.1 if apart else 0.03)
