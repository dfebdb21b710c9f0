"""OR over silos: the mixture of the silos' own laws, known in closed form, and silos that are not asked."""

from functools import partial

import pytest
import torch
from torch import Generator, Tensor

from compbench.flow import superposed_silos
from compbench.flow.path import LinearPath, VariancePreservingPath
from compbench.flow.smc import given, schedule
from compbench.flow.solver import Known
from compbench.flow.superposed_silos import SiloPrior, follow_either
from compbench.flow.superposition import either
from compbench.flow.swarms import levels

PATH = VariancePreservingPath()
MEANS = torch.tensor([[-2.0, 0.0], [2.0, 0.0]])
"""Of two silos, each N(mean, 1/4 I)."""


def scores(x: Tensor, t: float) -> Tensor:
    at = PATH.at(torch.tensor(t, dtype=torch.float64))
    variance = float(at.alpha**2 / 4 + at.sigma**2)
    return ((float(at.alpha) * MEANS[:, None] - x) / variance)[:, None]  # (2, 1, N, 2)


def samples(log_prior: Tensor, *, count: int = 3000, temperature: float = 1.0, scores=scores, weights=(1.0,)) -> Tensor:
    x = torch.randn(count, 2, generator=Generator().manual_seed(0))
    prior = log_prior[:, None, None].expand(len(log_prior), len(weights), count)
    return follow_either(
        scores,
        weights,
        prior,
        schedule(PATH, 200, 1e-5),
        x,
        Generator().manual_seed(1),
        temperature=temperature,
        keep=lambda x, number: x,
    )


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_samples_are_of_the_mixture_by_the_silos_shares(share) -> None:
    x = samples(torch.tensor([1 - share, share]).log())
    right = x[:, 0] > 0
    assert right.float().mean().item() == pytest.approx(share, abs=0.04)
    for side, mean in ((~right, MEANS[0]), (right, MEANS[1])):
        assert torch.allclose(x[side].mean(0), mean, atol=0.08)
        assert torch.allclose(x[side].std(0), torch.full((2,), 0.5), atol=0.06)


def test_a_silo_of_no_weight_is_not_heard() -> None:
    x = samples(torch.tensor([0.0, -torch.inf]))
    assert (x[:, 0] < 0.5).all()


def test_without_densities_experts_are_averaged_and_the_mixture_is_lost() -> None:
    x = samples(torch.tensor([0.5, 0.5]).log(), temperature=0.0)
    assert x[:, 0].mean().abs() < 0.1
    assert (x[:, 0].abs() < 1).float().mean() > 0.9


def test_one_silo_follows_the_composition_of_its_scores() -> None:
    """N(-2, v) N(2, v) / N(0, v) is N(0, v): weights 1, 1 and -1 of one silo's three conditions."""

    def three(x: Tensor, t: float) -> Tensor:
        low, high = scores(x, t)[:, 0]
        return torch.stack([low, high, (low + high) / 2])[None]

    x = samples(torch.zeros(1), scores=three, weights=(1.0, 1.0, -1.0))
    assert torch.allclose(x.mean(0), torch.zeros(2), atol=0.05)
    assert torch.allclose(x.std(0), torch.full((2,), 0.5), atol=0.05)


@pytest.mark.parametrize(("slopes", "tolerance"), [((0.8, 0.8), 0.06), ((-0.8, 0.8), 0.25)])
def test_given_entries_lead_the_others(slopes, tolerance) -> None:
    """x2 = slope x1 + N(0, 0.36) in each silo, and x1 = 2 is given: x2 is N(2 slope, 0.36) of the silos' mixture.

    Silos that agree are one Gaussian, for which the regression is exact.  Where they do not, it takes their shares as fixed and
    falls 0.2 short; kept on its path and no more, x1 leaves x2 0.6 short of either.
    """
    spread = torch.tensor([[[1.0, slope], [slope, 1.0]] for slope in slopes])

    def tied(x: Tensor, t: float) -> Tensor:
        at = PATH.at(torch.tensor(t, dtype=torch.float64))
        precision = (float(at.alpha**2) * spread + float(at.sigma**2) * torch.eye(2)).inverse()
        return -torch.einsum("nij,bj->nbi", precision, x)[:, None]  # (2, 1, N, 2)

    x0, ends = torch.randn(2000, 2, generator=Generator().manual_seed(0)), levels(PATH, 100, 1e-3)
    known = Known(torch.tensor([2.0, 0.0]).expand_as(x0), torch.tensor([True, False]).expand_as(x0))

    def keep(x: Tensor, number: int) -> Tensor:
        return known.on_path(x, x0, *((1.0, 0.0) if number == 99 else ends[number + 1][1:]))

    x = follow_either(
        tied,
        (1.0,),
        torch.zeros(2, 1, len(x0)),
        schedule(PATH, 100, 1e-3),
        x0,
        Generator().manual_seed(1),
        temperature=1.0,
        keep=keep,
        led=partial(given, path=PATH, known=known.with_particles()),
    )
    assert torch.equal(x[:, 0], known.values[:, 0])
    right = x[:, 1] > 0
    assert right.float().mean().item() == pytest.approx(0.5 if min(slopes) < 0 else 1, abs=0.04)
    for side in (x[right, 1], -x[~right, 1]) if min(slopes) < 0 else (x[:, 1],):
        assert side.mean().item() == pytest.approx(1.6, abs=tolerance)
        assert side.std().item() == pytest.approx(0.6, abs=0.06)


def test_densities_are_tracked_also_where_given_entries_are_put_back(monkeypatch) -> None:
    """Two silos N(-0.3, I / 4) and N(0.3, I / 4) in 20 dimensions, of which a sample of one silo gives 5."""
    path, steps, count = LinearPath(), 40, 200
    silo = torch.tensor([[-0.3], [0.3]])
    truth = silo[torch.arange(count) % 2] + torch.randn(count, 20, generator=Generator().manual_seed(0)) / 2
    known = Known(truth, (torch.arange(20) < 5).expand_as(truth))
    x0, ends = torch.randn(count, 20, generator=Generator().manual_seed(1)), levels(path, steps, 1e-3)
    exact, tracked = [], []

    def of_silos(x: Tensor, t: float) -> Tensor:
        variance, away = t**2 / 4 + (1 - t) ** 2, x - t * silo[:, None]  # (2, N, 20)
        log_p = -away.double().square().sum(-1) / (2 * variance)
        exact.append(log_p[1] - log_p[0])
        return (-away / variance)[:, None]

    def watched(densities: Tensor, log_prior: Tensor, temperature: float) -> Tensor:
        tracked.append(densities[1, 0] - densities[0, 0])
        return either(densities, log_prior, temperature)

    monkeypatch.setattr(superposed_silos, "either", watched)
    follow_either(
        of_silos,
        (1.0,),
        torch.zeros(2, 1, count),
        schedule(path, steps, 1e-3),
        x0,
        Generator().manual_seed(2),
        temperature=1.0,
        keep=lambda x, number: known.on_path(x, x0, *((1.0, 0.0) if number + 1 == steps else ends[number + 1][1:])),
        led=partial(given, path=path, known=known.with_particles()),
    )
    error = torch.stack(tracked) - torch.stack(exact)  # (steps, N)
    assert (error[10:].square().mean(1).sqrt() < 0.2 * torch.stack(exact)[10:].std(1)).all()


def test_a_silo_has_its_share_where_it_knows_the_values_and_nothing_elsewhere() -> None:
    knows = torch.tensor([[[True, False], [True, True]], [[True, True], [True, True]]])
    prior = SiloPrior(torch.tensor([30, 10]), knows)
    conditions = torch.tensor([[[-1, -1], [0, 1], [1, 0]]])  # (K = 1, B = 3, F = 2)
    found = prior(conditions).exp()[:, 0]
    assert torch.allclose(found, torch.tensor([[0.75, 0.75, 0.0], [0.25, 0.25, 0.25]]))
    assert prior(torch.tensor([[[1, 1]]])).isfinite().any()


def test_where_no_silo_knows_a_value_all_are_asked() -> None:
    prior = SiloPrior(torch.tensor([1, 1]), torch.zeros(2, 1, 2, dtype=torch.bool))
    assert torch.allclose(prior(torch.tensor([[[1]]])).exp(), torch.full((2, 1, 1), 0.5))
