"""Annealed chains against closed forms: detailed balance point by point, laws that chains keep, the composition they reach."""

import pytest
import torch
from support.seldom import seldom
from torch import Tensor
from torch.distributions import Normal

from compbench.flow import markov_chains as mcmc
from compbench.flow.markov_chains import (
    Chain,
    Settings,
    Target,
    anneal,
    hamiltonian,
    langevin,
    line_integral,
    num_evaluations,
    share_of_scale,
)
from compbench.flow.path import VariancePreservingPath
from compbench.flow.scores import Members, Pilots
from compbench.system.errors import CompbenchError

VARIANCES = torch.tensor([4.0, 0.25], dtype=torch.float64)
PATH = VariancePreservingPath()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*, exact: bool, line_points: int = 2) -> Target:
    def log_density(x: Tensor) -> Tensor:
        return -(x.square() / VARIANCES).sum(1) / 2

    return Target(lambda x: -x / VARIANCES, log_density if exact else None, line_points)


def started(count: int, target: Target) -> Chain:
    """Chains that start in N(0, diag(4, 1/4)) itself."""
    x = torch.randn(count, 2, generator=generator(), dtype=torch.float64) * VARIANCES.sqrt()
    return Chain(x, target.score(x[:, None])[:, 0], torch.zeros_like(x), torch.zeros(count))


def members(base: float) -> Members:
    """N(0, diag(10, 1)) and N(0, diag(1, 10)) over N(0, base I), noised on the path."""
    laws = torch.tensor([[10.0, 1.0], [1.0, 10.0], [base, base]])

    def scores(x: Tensor, t: float) -> Tensor:
        at = PATH.at(torch.tensor(t, dtype=torch.float64))
        return -x / (at.alpha**2 * laws + at.sigma**2)[:, None].to(x.dtype)

    return Members.of(scores, (1.0, 1.0, -1.0))


def run(composition: Members, count: int = 4000, seed: int = 0, **changes) -> Tensor:
    x0 = torch.randn(count, 2, generator=generator(1))
    return anneal(composition, PATH, x0, Settings(**changes), generator(seed), pilots=Pilots(composition, 1)).x


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("eta", [0.05, 0.4])
def test_langevin_moves_keep_detailed_balance(exact: bool, eta: float, monkeypatch) -> None:
    """p(x) k(x -> x') a(x -> x') = p(x') k(x' -> x) a(x' -> x); a is measured as the share that is accepted."""
    target, tries = gaussian(exact=exact), 40_000
    ends = torch.tensor([[1.5, -0.4], [0.6, 0.7]], dtype=torch.float64)

    def log_flow(start: Tensor, end: Tensor) -> float:
        score = -start / VARIANCES
        proposal = Normal(start + eta * score, (2 * eta) ** 0.5).log_prob(end).sum()
        chain = Chain(start.expand(tries, 2), score.expand(tries, 2), torch.zeros(tries, 2), torch.zeros(tries))
        noise = (end - start - eta * score) / (2 * eta) ** 0.5
        monkeypatch.setattr(mcmc, "_noise", lambda target, x, _: noise.expand_as(x))  # every chain proposes the end
        moved = langevin(target, chain, eta, generator(), adjusted=True)
        return float(Normal(0, VARIANCES.sqrt()).log_prob(start).sum() + proposal + moved.accepted.mean().log())

    assert log_flow(ends[0], ends[1]) == pytest.approx(log_flow(ends[1], ends[0]), abs=0.03)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kernel", ["mala", "hmc"])
def test_adjusted_moves_keep_the_law_they_start_in(kernel: str, exact: bool) -> None:
    """At steps so long that an unadjusted move would be off by far; the published variance of the proposal fails here."""
    target, generator_ = gaussian(exact=exact), generator(3)
    chain = started(40_000, target)
    for _ in range(20):
        if kernel == "mala":
            chain = langevin(target, chain, 0.2, generator_, adjusted=True)
        else:
            chain = hamiltonian(target, chain, 0.08, generator_, num_leapfrog=3, damping=0.5, adjusted=True)
    assert 0.3 < float(chain.accepted.mean()) / 20 < 0.99
    assert chain.x.var(0).tolist() == pytest.approx(VARIANCES.tolist(), rel=0.05)


def test_unadjusted_langevin_is_too_wide_by_the_known_factor() -> None:
    """x' = (1 - eta / v) x + sqrt(2 eta) xi has variance v / (1 - eta / 2v)."""
    target, generator_ = gaussian(exact=False), generator(5)
    chain = started(40_000, target)
    for _ in range(60):
        chain = langevin(target, chain, 0.2, generator_, adjusted=False)
    assert float(chain.x[:, 1].var()) == pytest.approx(0.25 / (1 - 0.4), rel=0.04)


def test_chains_are_accepted_each_for_itself() -> None:
    target = gaussian(exact=True)
    chain = langevin(target, started(1000, target), 0.3, generator(2), adjusted=True)
    assert 0.1 < float(chain.accepted.mean()) < 0.9
    assert set(chain.accepted.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(("num_points", "error"), [(2, 4.0), (9, 0.2), (129, 1e-3)])
def test_line_integrals_are_differences_of_log_densities(num_points: int, error: float) -> None:
    """Of a mixture of N(-2, 1) and N(2, 1): log p = -x^2 / 2 + log cosh(2 x)."""

    def score(x: Tensor) -> Tensor:
        return -x + 2 * torch.tanh(2 * x)

    start, end = torch.full((3, 1), -1.5, dtype=torch.float64), torch.tensor([[-2.0], [0.0], [2.5]], dtype=torch.float64)
    truth = [
        float((-(b**2) / 2 + (2 * b).cosh().log()) - (-(a**2) / 2 + (2 * a).cosh().log()))
        for a, b in zip(start, end, strict=True)
    ]
    found = line_integral(score, start, end, score(start), num_points)
    assert found.value.tolist() == pytest.approx(truth, abs=error)
    assert torch.equal(found.score, score(end))


def test_line_integrals_of_linear_scores_need_no_inner_points() -> None:
    target = gaussian(exact=True)
    start, end = torch.randn(2, 50, 2, generator=generator(), dtype=torch.float64)
    found = line_integral(target.score, start, end, -start / VARIANCES, 2).value
    assert found.tolist() == pytest.approx((target.log_density(end) - target.log_density(start)).tolist())


@pytest.mark.parametrize("kernel", ["mala", "hmc"])
@pytest.mark.parametrize(("base", "variance"), [(10.0, 1.0), (20.0, 20 / 21), (1.1, 110 / 21)])
def test_chains_reach_the_composition_where_the_flow_does_not(base: float, variance: float, kernel: str) -> None:
    """Theorem 1 of Catastrophic Compositional Generation; without moves the flow of theorem 2 ends at 0.5 and 9.05."""
    found = run(members(base), kernel=kernel, num_levels=40, num_inner=4)
    assert found.var(0).tolist() == pytest.approx([variance] * 2, rel=0.08)
    if base != 10.0:
        alone = run(members(base), kernel=kernel, num_levels=200, num_inner=0)
        assert float(alone.var()) == pytest.approx({20.0: 0.5, 1.1: 9.05}[base], rel=0.1)


@pytest.mark.parametrize("kernel", ["ula", "uhmc", "mala", "hmc"])
@pytest.mark.parametrize("line_points", [2, 4])
def test_evaluations_are_counted_as_they_are_spent(kernel: str, line_points: int) -> None:
    counted, composition = 0, members(10.0)

    def composed(x: Tensor, t: float):
        nonlocal counted
        counted += x.shape[:2].numel()
        return composition.composed(x, t)

    settings = Settings(kernel=kernel, num_levels=7, num_inner=2, line_points=line_points, smallest_sigma=0.3)
    anneal(composition._replace(composed=composed), PATH, torch.randn(1, 2), settings, generator(), pilots=Pilots(composition, 1))
    assert counted == num_evaluations(settings, PATH)


def test_a_chain_depends_on_its_own_noise_alone() -> None:
    composition, settings = members(20.0), Settings(num_levels=10)
    x0 = torch.randn(200, 2, generator=generator(1))
    other = torch.cat([-x0[:100], x0[100:]])
    first, second = (anneal(composition, PATH, x, settings, generator(), pilots=Pilots(composition, 1)).x for x in (x0, other))
    assert torch.equal(first[100:], second[100:])
    assert not torch.equal(first[:100], second[:100])


@pytest.mark.parametrize("kernel", seldom(["mala", "hmc"], but=["mala"]))
def test_as_many_moves_are_accepted_in_a_pictures_dimensions_as_in_the_plane(kernel: str) -> None:
    """A standard normal stays one along the path; one step for all dimensions accepts nothing here."""
    normal = Members.of(lambda x, t: -x[None], (1.0,))
    for size in (2, 12_288):
        settings = Settings(kernel=kernel, num_levels=20, smallest_sigma=0.1)
        found = anneal(normal, PATH, torch.randn(20, size), settings, generator(), pilots=Pilots(normal, 1))
        assert min(found.acceptance) > 0.4


@pytest.mark.parametrize("kernel", ["ula", "uhmc", "mala", "hmc"])
def test_steps_in_the_plane_are_the_setting_itself(kernel: str) -> None:
    assert share_of_scale(Settings(kernel=kernel, step_size=0.5), 2) == 0.5


def test_chains_that_stand_still_are_an_error_with_advice() -> None:
    with pytest.raises(CompbenchError, match="accepted none of its moves.*lower step_size"):
        run(members(10.0), count=50, step_size=1e9)
