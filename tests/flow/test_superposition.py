"""Superposed models against closed forms: followed densities are the true ones, AND ends where they agree, OR is a mixture."""

from functools import partial

import pytest
import torch
from support.seldom import seldom
from torch import Tensor

from compbench.flow.path import VariancePreservingPath
from compbench.flow.smc import given, schedule
from compbench.flow.solver import Known
from compbench.flow.superposition import Asked, all_equal, either, follow_all, superposed_step
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


def origin(x: Tensor, t: float) -> Tensor:
    """Of N(0, 1/4)."""
    return -x / moments(t)[1]


def from_origin(x: Tensor, t: float) -> Tensor:
    return torch.cat([origin(x, t)[None], scores(x, t)])


def asked(active: Tensor, guidance: float = 1.0) -> Asked:
    """Even shares of the members that count, (C, N)."""
    return Asked(active.double() / active.double().sum(0), torch.full(active.shape[1:], guidance, dtype=torch.float64))


def everyone(members: int, points: int, guidance: float = 1.0) -> Asked:
    return asked(torch.ones(members, points, dtype=torch.bool), guidance)


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


@pytest.mark.parametrize("guidance", seldom([1.0, 2.0], but=[2.0]))
def test_and_ends_where_the_members_agree(guidance: float) -> None:
    """N((-2, 0), 1/4 I) and N((2, 0), 1/4 I) are equal on the line x = 0 and nowhere else."""
    found = follow_all(
        from_origin,
        everyone(2, 2000, guidance),
        schedule(PATH, 300, 1e-5),
        noise(2000),
        generator(1),
        ridge=0.01,
        last_noise=True,
        keep=lambda y, _: y,
    )
    assert found[:, 0].abs().mean() < 0.01
    assert found[:, 1].var() == pytest.approx(0.25, rel=0.15)


def test_a_step_leaves_the_guided_members_alike() -> None:
    """log p_a - log p_b after one step of the guided field, without a ridge to speak of: what it was before is gone."""
    x, own, before = noise(50), noise(50, 1), torch.randn(3, 50, generator=generator(2), dtype=torch.float64)
    s = from_origin(x, 0.6)
    coefficients = all_equal(s, before, everyone(2, 50, 5.0), AT, 0.1, own, ridge=1e-12)
    after = before + superposed_step(x, s, coefficients, AT, 0.1, own).gained
    assert (before[1] - before[2]).abs().mean() > 0.5
    assert (after[1] - after[2]).abs().max() < 1e-6


def test_and_of_one_active_member_is_that_member() -> None:
    x, active = noise(500), torch.tensor([[True], [False]]).expand(2, 500)
    found = all_equal(from_origin(x, 0.6), torch.zeros(3, 500), asked(active), AT, 0.1, noise(500, 1), ridge=1e-3)
    assert found[1].tolist() == pytest.approx([1.0] * 500)
    assert not found[[0, 2]].any()


def test_and_takes_its_shares_where_the_members_are_one() -> None:
    x = noise(50)
    same = scores(x, 0.6)[:1].expand(4, 50, 2)
    shares = torch.tensor([0.5, 0.3, 0.2])[:, None].expand(3, 50)
    found = all_equal(same, torch.zeros(4, 50), Asked(shares, torch.full((50,), 4.0)), AT, 0.1, noise(50, 1), 1e-3)
    assert torch.allclose(found, torch.tensor([-3.0, 2.0, 1.2, 0.8], dtype=found.dtype)[:, None].expand(4, 50))


def test_coefficients_of_and_sum_to_one() -> None:
    found = all_equal(from_origin(noise(50), 0.6), torch.randn(3, 50), everyone(2, 50, 7.5), AT, 0.1, noise(50, 1), 1e-3)
    assert found.sum(0).tolist() == pytest.approx([1.0] * 50)
    assert found[1:].sum(0).tolist() == pytest.approx([7.5] * 50)


@pytest.mark.parametrize(("guidance", "mean"), [(6.0, 2.0), (1.0, 2 / 6)])
def test_six_members_with_a_wish_each_need_six_times_the_guidance(guidance: float, mean: float) -> None:
    """N(2 e_a, I) for six axes a, around N(0, I): kappa is 1/6 each, so the mean of every axis is 2 g / 6."""
    wishes = torch.cat([torch.zeros(1, 6), 2 * torch.eye(6)]).double()

    def unit(x: Tensor, t: float) -> Tensor:
        return float(PATH.at(torch.tensor(t, dtype=torch.float64)).alpha) * wishes[:, None] - x

    x0 = torch.randn(1500, 6, generator=generator(), dtype=torch.float64)
    found = follow_all(
        unit,
        everyone(6, 1500, guidance),
        schedule(PATH, 50, 1e-5),
        x0,
        generator(1),
        ridge=0.01,
        last_noise=True,
        keep=lambda y, _: y,
    )
    assert found.mean(0).tolist() == pytest.approx([mean] * 6, abs=0.07)
    assert (found - found.mean(1, keepdim=True)).abs().max() < 0.1  # log p_a are equal where all axes are


def test_or_is_the_score_of_the_mixture() -> None:
    x, shares = noise(100), torch.tensor([0.3, 0.7], dtype=torch.float64)
    kappa = either(log_densities(x, 0.8), shares.log()[:, None])
    leaf = x.clone().requires_grad_(True)
    (log_densities(leaf, 0.8) + shares.log()[:, None]).logsumexp(0).sum().backward()
    assert torch.allclose((kappa[..., None] * scores(x, 0.8)).sum(0), leaf.grad)


@pytest.mark.parametrize("apart", seldom([0.0, 1.0], but=[1.0]))
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

    x0, ends = noise(2000), levels(PATH, 100, 1e-5)
    known = Known(torch.tensor([2.0, 0.0], dtype=torch.float64).expand_as(x0), torch.tensor([True, False]).expand_as(x0))

    def keep(x: Tensor, number: int) -> Tensor:
        return known.on_path(x, x0, *((1.0, 0.0) if number == 99 else ends[number + 1][1:]))

    x = follow_all(
        lambda x, t: torch.cat([tied(x, t)[:1], tied(x, t)]),
        everyone(2, 2000),
        schedule(PATH, 100, 1e-5),
        x0,
        generator(1),
        ridge=0.01,
        last_noise=False,
        keep=keep,
        led=partial(given, path=PATH, known=known.with_particles()),
    )
    assert torch.equal(x[:, 0], known.values[:, 0])
    assert x[:, 1].mean().item() == pytest.approx(1.6, abs=0.05)
    assert x[:, 1].std().item() == pytest.approx(0.0 if apart else 0.6, abs=0.1 if apart else 0.05)
