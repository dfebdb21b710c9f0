"""Feynman-Kac correction against closed forms: Gaussians stay Gaussian, so every law here is known."""

import math

import numpy
import pytest
import torch
from reference.smc import feynman_kac_plainly
from support.seldom import seldom
from torch import Tensor

from compbench.flow.path import LinearPath, VariancePreservingPath
from compbench.flow.resampling import ess, positions, resample, temper
from compbench.flow.scores import of_members
from compbench.flow.smc import Settings, draw, feynman_kac, pick
from compbench.flow.solver import Known
from compbench.metrics.transport import directions, sliced_wasserstein
from compbench.system.errors import CompbenchError

VP = VariancePreservingPath()
SOURCES = (torch.tensor([10.0, 1.0]), torch.tensor([1.0, 10.0]))
WEIGHTS = (1.0, 1.0, -1.0)


def noised(variance: Tensor, t: float, path=VP) -> Tensor:
    at = path.at(torch.tensor(t, dtype=torch.float64))
    return (at.alpha**2 * variance + at.sigma**2).float()


def gaussians(base: float, path=VP, weights=WEIGHTS):
    """The composed score of N(0, diag(10, 1)), N(0, diag(1, 10)) and N(0, base I)."""
    laws = (*SOURCES, torch.tensor([base, base]))
    return of_members(lambda x, t: torch.stack([-x / noised(law, t, path) for law in laws[: len(weights)]]), weights)


def swarms(count: int, num_particles: int, seed: int = 0) -> tuple[Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, num_particles, 2, generator=generator), generator


def test_ess_is_all_particles_for_equal_weights_and_one_for_a_single_winner() -> None:
    log_weights = torch.tensor([[3.0, 3.0, 3.0, 3.0], [0.0, -1e4, -1e4, -1e4]])
    assert torch.equal(ess(log_weights), torch.tensor([4.0, 1.0], dtype=torch.float64))


def test_ess_of_three_to_one_is_eight_fifths() -> None:
    assert ess(torch.tensor([[0.75, 0.25]]).log()).item() == pytest.approx(1 / (0.75**2 + 0.25**2))


@pytest.mark.parametrize("scheme", ["systematic", "stratified", "multinomial"])
def test_resampling_keeps_expectations(scheme: str) -> None:
    generator = torch.Generator().manual_seed(0)
    log_weights = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0]).log().expand(40_000, 5)
    chosen = resample(log_weights, positions(40_000, 5, generator, scheme))
    copies = torch.nn.functional.one_hot(chosen, 5).double().sum(1).mean(0)
    assert copies.tolist() == pytest.approx([0.5, 1.0, 1.5, 2.0, 0.0], abs=0.02)


@pytest.mark.parametrize("scheme", ["systematic", "stratified", "multinomial"])
def test_resampling_never_picks_a_zero_weight(scheme: str) -> None:
    generator = torch.Generator().manual_seed(0)
    log_weights = torch.randn(5000, 7, generator=generator) * 30
    log_weights[:, [0, 3, 6]] = -math.inf
    chosen = resample(log_weights, positions(5000, 7, generator, scheme))
    assert not torch.isin(chosen, torch.tensor([0, 3, 6])).any()


def test_systematic_resampling_of_equal_weights_is_the_identity() -> None:
    generator = torch.Generator().manual_seed(0)
    chosen = resample(torch.zeros(1000, 16), positions(1000, 16, generator))
    assert torch.equal(chosen, torch.arange(16).expand(1000, 16))


def test_systematic_resampling_copies_each_particle_its_expected_number_of_times_rounded() -> None:
    generator = torch.Generator().manual_seed(0)
    log_weights = torch.randn(500, 8, generator=generator)
    copies = torch.nn.functional.one_hot(resample(log_weights, positions(500, 8, generator)), 8).sum(1)
    expected = 8 * log_weights.double().softmax(1)
    assert ((copies - expected).abs() < 1).all()


def test_factorised_conditionals_need_no_correction() -> None:
    """Theorem 3: on a product base the gap vanishes, weights stay equal, and FKC moves as the naive diffusion does."""
    x, generator = swarms(50, 8)
    composed = gaussians(10.0)
    for t in (0.0, 0.3, 0.9, 1.0):
        assert composed(x, t).gap.abs().max() < 1e-4
    swarm, trace = feynman_kac(composed, VP, x, Settings(num_steps=50), generator)
    assert trace.distinct_ancestors == 8
    assert min(trace.ess) == pytest.approx(8, abs=1e-6)
    assert torch.equal(swarm.ancestors, torch.arange(8).expand(50, 8))


@pytest.mark.parametrize(("base", "variance"), [(20.0, 0.5000), (1.1, 9.0500), (1.0, 9.9514)])
def test_the_probability_flow_ends_at_the_known_covariance(base: float, variance: float) -> None:
    """Theorem 2, with the discretisation of 500 Euler steps: figures of the protocol, to their four digits.

    A linear flow multiplies each axis by one number, so one point tells it.
    """
    x = torch.ones(1, 1, 2)
    swarm, _ = feynman_kac(gaussians(base), VP, x, Settings(num_steps=500, noise=False), torch.Generator())
    assert swarm.x.flatten().square().tolist() == pytest.approx([variance] * 2, rel=2e-3)


@pytest.mark.parametrize(("base", "variance"), seldom([(10.0, 1.0028), (20.0, 0.8477), (1.1, 8.5591)], but=[(1.1, 8.5591)]))
def test_the_naive_diffusion_ends_at_the_known_covariance(base: float, variance: float) -> None:
    x, generator = swarms(10_000, 1)
    swarm, _ = feynman_kac(gaussians(base), VP, x, Settings(num_steps=500), generator)
    assert swarm.x.var().item() == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("trigger", [1.0, 0.5])
def test_correction_approaches_the_target_as_particles_grow(trigger: float) -> None:
    """gauss2d-nonfact-ood: naive 8.56, target 110 / 21 (theorem 1)."""
    variances = []
    for num_particles in (1, 4, 64):
        x, generator = swarms(16_000 // max(num_particles, 8), num_particles)
        settings = Settings(num_steps=150, resample_below=trigger)
        swarm, _ = feynman_kac(gaussians(1.1), VP, x, settings, generator)
        variances.append(pick(swarm, generator).var().item())
    assert variances[0] > variances[1] > variances[2]
    assert variances[2] == pytest.approx(110 / 21, rel=0.1)


def test_correction_reaches_the_noise_floor_on_nonfact_id() -> None:
    """gauss2d-nonfact-id, as the paper's table 1: naive SW2 stands above the floor of exact samples, 64 particles within it."""
    generator = numpy.random.default_rng(0)
    exact = generator.standard_normal((8, 2500, 2)) * (20 / 21) ** 0.5
    along = directions(2, 200, generator)
    floor = max(sliced_wasserstein(exact[0], other, along) for other in exact[1:])
    found = {}
    for num_particles in (1, 64):
        x, own = swarms(2500, num_particles)
        swarm, _ = feynman_kac(gaussians(20.0), VP, x, Settings(num_steps=100), own)
        found[num_particles] = sliced_wasserstein(exact[0], pick(swarm, own).double().numpy(), along)
    assert found[64] < floor < found[1], (found, floor)


def test_tempering_follows_the_divergence_term() -> None:
    """A single weight of 2: N(0, v)^2 = N(0, v / 2); the term (sum w - 1) f d shifts all weights alike."""
    laws = torch.tensor([4.0, 4.0])
    composed = of_members(lambda x, t: (-x / noised(laws, t))[None], (2.0,))
    x, generator = swarms(1000, 48)
    swarm, _ = feynman_kac(composed, VP, x, Settings(num_steps=200, excess=1.0), generator)
    assert pick(swarm, generator).var().item() == pytest.approx(2.0, rel=0.1)


def test_the_linear_path_reaches_the_same_target() -> None:
    path = LinearPath()
    x, generator = swarms(600, 48)
    settings = Settings(num_steps=150, edge=1e-3, last_noise=False)
    swarm, _ = feynman_kac(gaussians(1.1, path), path, x, settings, generator)
    assert pick(swarm, generator).var().item() == pytest.approx(110 / 21, rel=0.12)


def test_fast_and_plain_have_one_law() -> None:
    """Other random numbers, so moments are compared: within four standard errors of each other."""
    base, count = 1.1, 4000
    laws = [*SOURCES, torch.tensor([base, base])]
    scores = [lambda x, t, law=law: -x / (VP.at(t).alpha[:, None] ** 2 * law + VP.at(t).sigma[:, None] ** 2) for law in laws]
    x, generator = swarms(count, 4)
    settings = Settings(num_steps=100, clip=15.0)
    plain = feynman_kac_plainly(scores, WEIGHTS, VP, x, settings, generator)
    swarm, _ = feynman_kac(gaussians(base), VP, x, settings, generator)
    fast = pick(swarm, generator)
    error = plain.var().item() * math.sqrt(2 / (2 * count))
    assert abs(fast.var().item() - plain.var().item()) < 4 * math.sqrt(2) * error


def test_a_tight_clip_binds_and_is_counted() -> None:
    x, generator = swarms(200, 8)
    _, free = feynman_kac(gaussians(1.1), VP, x, Settings(num_steps=50), generator)
    _, tight = feynman_kac(gaussians(1.1), VP, x, Settings(num_steps=50, clip=0.01), generator)
    assert free.clipped == 0
    assert tight.clipped > 0.4
    assert min(tight.ess) > min(free.ess)


def test_chunks_of_swarms_do_not_change_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(lambda part: gaussians(1.1), VP, torch.randn(2500, 2), 4, Settings(50), torch.Generator().manual_seed(0))
    monkeypatch.setattr("compbench.flow.smc.CPU_CHUNK", 4 * 2 * 250)
    parts = draw(lambda part: gaussians(1.1), VP, torch.randn(2500, 2), 4, Settings(50), torch.Generator().manual_seed(0))
    assert parts.x.shape == whole.x.shape
    assert parts.x.var().item() == pytest.approx(whole.x.var().item(), rel=0.12)
    assert parts.trace.distinct_ancestors == pytest.approx(whole.trace.distinct_ancestors, rel=0.05)


def test_the_first_particle_starts_from_the_requests_noise() -> None:
    seen = []

    def composed(x: Tensor, t: float):
        seen.append(x)
        return gaussians(20.0)(x, t)

    x0 = torch.randn(10, 2)
    draw(lambda part: composed, VP, x0, 3, Settings(2), torch.Generator().manual_seed(0))
    assert torch.equal(seen[0][:, 0], x0)
    assert len(seen) == 3  # one evaluation a step and one at the start


def test_a_sampler_that_diverges_says_when() -> None:
    def composed(x: Tensor, t: float):
        found = gaussians(20.0)(x, t)
        return found._replace(gap=found.gap * (math.nan if t > 0.55 else 1.0))

    x, generator = swarms(5, 4)
    with pytest.raises(CompbenchError, match=r"diverged at t = 0\.600 \(step 6 of 10\)"):
        feynman_kac(composed, VP, x, Settings(num_steps=10), generator)


def test_no_particles_are_refused() -> None:
    with pytest.raises(CompbenchError, match="at least one particle, got 0"):
        draw(lambda part: gaussians(20.0), VP, torch.randn(2, 2), 0, Settings(2), torch.Generator())


@pytest.mark.parametrize("num_particles", [1, 8])
def test_draw_returns_known_entries_as_given_and_draws_the_others(num_particles: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randn(64, 2, generator=generator)
    known = Known(torch.full((64, 2), 0.7), torch.tensor([True, False]).expand(64, 2))
    path = LinearPath()
    composed = gaussians(0.5, path)
    settings = Settings(num_steps=20, clip=5.0, edge=1e-3)
    drawn = draw(lambda part: composed, path, x0, num_particles, settings, generator, known=known)
    assert torch.equal(drawn.x[:, 0], known.values[:, 0])
    assert drawn.x[:, 1].std() > 0.1


@pytest.mark.parametrize("num_particles", [1, 4])
@pytest.mark.parametrize("path", [LinearPath(), VP])
def test_known_entries_lead_the_others_to_the_conditional_law_of_a_gaussian(path, num_particles: int) -> None:
    """x1 = (z, 0.9 z + sqrt(0.19) e): given z the other entry is N(0.9 z, 0.19), whatever the number of particles."""
    covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]])

    def score(x: Tensor, t: float) -> Tensor:
        at = path.at(torch.tensor(t, dtype=torch.float64))
        return -x @ torch.linalg.inv(float(at.alpha) ** 2 * covariance + float(at.sigma) ** 2 * torch.eye(2))

    composed = of_members(lambda x, t: score(x, t)[None], (1.0,))
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randn(2000, 2, generator=generator)
    known = Known(torch.full((2000, 2), 1.5), torch.tensor([True, False]).expand(2000, 2))
    settings = Settings(num_steps=60, edge=1e-3, last_noise=False)
    other = draw(lambda part: composed, path, x0, num_particles, settings, generator, known=known).x[:, 1]
    assert float(other.mean()) == pytest.approx(1.35, abs=0.06)
    assert float(other.std()) == pytest.approx(0.19**0.5, abs=0.06)


D64 = 64
WIDE, NARROW = torch.tensor([10.0, 1.0] * (D64 // 2)), torch.tensor([1.0, 10.0] * (D64 // 2))


def product_of_64_axes():
    """N(m, diag(10, 1, ...)) N(m, diag(1, 10, ...)) / N(0, 20 I): precision 1.05 on each axis, mean 1.1 m / 1.05."""
    centre = 0.5 * torch.ones(D64)
    laws = ((centre, WIDE), (centre, NARROW), (torch.zeros(D64), torch.full((D64,), 20.0)))
    path = LinearPath()

    def scores(x: Tensor, t: float) -> Tensor:
        return torch.stack([(t * mean - x) / noised(variance, t, path) for mean, variance in laws])

    return of_members(scores, WEIGHTS), path, 0.5 * 1.1 / 1.05, 1 / 1.05


def test_in_64_dimensions_tempered_weights_reach_the_exact_product_and_the_planar_clip_does_not() -> None:
    """The raw rate grows with the dimension: a bound of 15 gives all particles one weight and leaves the naive diffusion."""
    composed, path, mean, variance = product_of_64_axes()
    found = {}
    for name, settings in {
        "tempered": Settings(num_steps=100, resample_below=0.5, ess_floor=0.5, edge=1e-3, last_noise=False, last_weight=False),
        "clipped": Settings(num_steps=100, clip=15.0, edge=1e-3, last_noise=False),
    }.items():
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(100, 24, D64, generator=generator)
        swarm, trace = feynman_kac(composed, path, x, settings, generator)
        found[name] = (pick(swarm, generator), trace)
    exact, trace = found["tempered"]
    assert exact.mean().item() == pytest.approx(mean, abs=0.04)
    assert exact.var(0).mean().item() == pytest.approx(variance, rel=0.05)
    assert trace.tempered > 0.98
    assert found["clipped"][1].clipped > 0.4
    assert found["clipped"][0].var(0).mean().item() < 0.93 * variance


def test_tempering_keeps_the_floor_and_leaves_mild_weights_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    gained = torch.cat([torch.randn(50, 16, generator=generator) * 100, torch.randn(50, 16, generator=generator) * 0.01]).double()
    power = temper(torch.zeros(100, 16, dtype=torch.float64), gained, 8.0)
    sizes = ess(power * gained)
    assert (power[50:] == 1).all()
    assert (power[:50] < 1).all()
    assert torch.allclose(sizes[:50], torch.full((50,), 8.0, dtype=torch.float64), atol=1e-3)


def test_a_swarm_with_wild_weights_keeps_more_ancestors_when_tempered() -> None:
    def composed(x: Tensor, t: float):
        found = gaussians(1.1)(x, t)
        return found._replace(gap=1e4 * found.gap)

    traces = []
    for floor in (0.0, 0.5):
        x, generator = swarms(50, 16)
        settings = Settings(num_steps=10, resample_below=0.5, ess_floor=floor)
        traces.append(feynman_kac(composed, VP, x, settings, generator)[1])
    wild, tempered = traces
    assert wild.distinct_ancestors < 1.2 < 2 < tempered.distinct_ancestors
    assert min(wild.ess) < 2 < 7.9 < min(tempered.ess)
    assert tempered.tempered < 0.5 < wild.tempered == 1
