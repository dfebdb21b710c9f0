"""Steps with weights against closed forms: transition densities, exact densities, and the control that evens weights out."""

from itertools import pairwise

import pytest
import torch
from support.seldom import seldom
from torch import Tensor

from compbench.flow.control import bases, coefficients, controlled_step, least_swarms
from compbench.flow.path import LinearPath, VariancePreservingPath
from compbench.flow.scores import Members
from compbench.flow.smc import Swarm, pick, schedule, weight_rate
from compbench.flow.swarms import Stepped, follow, levels, start_swarm
from compbench.flow.transitions import kernel, log_density_of, transition_step
from compbench.system.errors import CompbenchError

PATH = VariancePreservingPath()
EDGE = 1e-5
WEIGHTS = (1.0, 1.0, -1.0)


def variances(base: float, t: float) -> Tensor:
    """Of N(0, diag(10, 1)), N(0, diag(1, 10)) and N(0, base I) at t, (3, 2)."""
    at = PATH.at(torch.tensor(t, dtype=torch.float64))
    laws = torch.tensor([[10.0, 1.0], [1.0, 10.0], [base, base]], dtype=torch.float64)
    return at.alpha**2 * laws + at.sigma**2


def members(base: float, *, exact: bool = False) -> Members:
    def scores(x: Tensor, t: float) -> Tensor:
        return -x / variances(base, t)[:, None].to(x.dtype)

    def log_densities(x: Tensor, t: float) -> Tensor:
        return -(x.double().square() / variances(base, t)[:, None]).sum(-1) / 2

    found = Members.of(scores, WEIGHTS)
    return found._replace(log_densities=log_densities) if exact else found


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(step, num_steps: int, count: int, num_particles: int, *, resample_below: float = 0.5):
    own = generator(4)
    swarm = start_swarm(torch.randn(count, 2, generator=own), num_particles, own)
    return follow(swarm, step, num_steps, own, resample_below=resample_below)


@pytest.mark.parametrize("path", [PATH, LinearPath()])
def test_a_kernel_keeps_standard_normal_data_standard_normal(path) -> None:
    """Data N(0, I): x_t ~ N(0, V I) with score -x / V goes to exactly N(0, V' I)."""
    table = levels(path, 7, 1e-3)
    for before, after in pairwise(table):
        pull, variance = kernel(before, after)
        spread, wanted = (level.alpha**2 + level.sigma**2 for level in (before, after))
        slope = after.alpha / before.alpha - pull / spread
        assert slope**2 * spread + variance == pytest.approx(wanted)


def test_fine_transition_weights_are_feynman_kacs() -> None:
    """dlog w / dt of one step of 1e-4 against g^2 / 2 times the gap."""
    composition, steps = members(20.0), 10_000
    x = torch.randn(50, 3, 2, generator=generator())
    step = transition_step(composition.composed, PATH, steps, EDGE, generator())
    number = 6000
    rate = step(Swarm(x, torch.zeros(50, 3), torch.zeros(50, 3)), number).log_weight * steps
    at = schedule(PATH, steps, EDGE)[number]
    assert torch.allclose(rate, weight_rate(composition.composed(x, at.time), at, 0.0, 2), rtol=2e-2, atol=1e-4)


@pytest.mark.parametrize("num_steps", seldom([5, 50], but=[5]))
@pytest.mark.parametrize(("base", "variance"), [(20.0, 20 / 21), (1.1, 110 / 21)])
def test_exact_densities_give_the_composition_at_any_number_of_steps(base: float, variance: float, num_steps: int) -> None:
    """Theorem 1 of Catastrophic Compositional Generation; five steps are far too few for rates."""
    composition = members(base, exact=True)
    step = transition_step(composition.composed, PATH, num_steps, EDGE, generator(1), log_density=log_density_of(composition))
    swarm, _ = drawn(step, num_steps, 2000, 32)
    assert pick(swarm, generator(2)).var(0).tolist() == pytest.approx([variance] * 2, rel=0.1)


def test_kernel_weights_approach_the_composition_as_particles_grow() -> None:
    """gauss2d-nonfact-ood: 8.56 without weights, 110 / 21 with all of them."""
    found = []
    for num_particles in (1, 4, 32):
        step = transition_step(members(1.1).composed, PATH, 100, EDGE, generator(1))
        swarm, _ = drawn(step, 100, 2000, num_particles)
        found.append(pick(swarm, generator(2)).var().item())
    assert found[0] > found[1] > found[2]
    assert found[2] == pytest.approx(110 / 21, rel=0.1)


@pytest.mark.parametrize(("num_steps", "left"), [(10, 0.1103), (20, 0.0525), (40, 0.0256)])
def test_the_last_step_leaves_the_kernels_noise_or_none(num_steps: int, left: float) -> None:
    """On the linear path, from t = 1 - 1 / n to 1 - 1e-3: 0.0525 is 6.7 grey levels of a picture in [-1, 1]."""
    x = torch.zeros(1, 20_000, 1)
    swarm = Swarm(x, torch.zeros(x.shape[:2]), torch.zeros(x.shape[:2]))
    alone = Members.of(lambda x, t: -x[None], (1.0,))
    for last_noise, wanted in ((True, left), (False, 0.0)):
        step = transition_step(alone.composed, LinearPath(), num_steps, 1e-3, generator(), last_noise=last_noise)
        assert step(swarm, num_steps - 1).x.std().item() == pytest.approx(wanted, rel=0.02)
        assert step(swarm, num_steps - 2).x.std() > 0.02


def test_the_last_steps_weight_is_the_same_without_its_noise() -> None:
    composition, x = members(20.0), torch.randn(5, 4, 2, generator=generator())
    swarm = Swarm(x, torch.zeros(5, 4), torch.zeros(5, 4))
    drawn, mean = (
        transition_step(composition.composed, PATH, 10, EDGE, generator(), last_noise=last_noise)(swarm, 9)
        for last_noise in (True, False)
    )
    assert torch.equal(drawn.log_weight, mean.log_weight)
    assert not torch.equal(drawn.x, mean.x)


def test_one_member_has_even_weights() -> None:
    alone = Members.of(lambda x, t: -x[None] / variances(10.0, t)[0].to(x.dtype), (1.0,))
    swarm, trace = drawn(transition_step(alone.composed, PATH, 20, EDGE, generator()), 20, 10, 8)
    assert swarm.log_weights.abs().max() < 1e-4
    assert min(trace.ess) == pytest.approx(8, abs=1e-6)
    assert trace.distinct_ancestors == 8


def test_bases_move_what_the_composition_does_not_notice() -> None:
    """E_p[div b + b . S] = 0 under the composition p (Stein), for every basis."""
    composition, t = members(20.0), 0.8
    precision = (torch.tensor(WEIGHTS, dtype=torch.float64)[:, None] / variances(20.0, t)).sum(0)
    x = torch.randn(200_000, 2, generator=generator(), dtype=torch.float64) / precision.sqrt()
    gains = bases(composition, x, t, generator()).gains
    assert gains.mean(1).abs().max() < 0.03
    assert gains.std(1).min() > 0.1


def test_estimated_divergences_are_the_exact_ones_for_axis_aligned_gaussians() -> None:
    """A diagonal Jacobian needs one probe of +-1."""
    x = torch.randn(7, 2, generator=generator(), dtype=torch.float64)
    exact = members(20.0)._replace(divergences=lambda y, t: -(1 / variances(20.0, t)).sum(1)[:, None].expand(3, len(y)))
    assert torch.allclose(bases(members(20.0), x, 0.6, generator()).gains, bases(exact, x, 0.6, generator()).gains)


def test_coefficients_cancel_a_rate_that_the_bases_span() -> None:
    gains = torch.randn(3, 2, 100, generator=generator(), dtype=torch.float64)
    rate = 5.0 + 2 * gains[:, 0] - 3 * gains[:, 1]
    theta = coefficients(gains, rate, torch.full((3, 100), 0.01), 1e-9)
    assert torch.allclose(theta, torch.tensor([-2.0, 3.0], dtype=torch.float64).expand(3, 2), atol=1e-6)


@pytest.mark.parametrize("pilots", [0, 16])
@pytest.mark.parametrize(("base", "variance"), seldom([(20.0, 20 / 21), (1.1, 110 / 21)], but=[(1.1, 110 / 21)]))
def test_a_controlled_swarm_of_gaussians_has_even_weights_and_the_right_law(base: float, variance: float, pilots: int) -> None:
    """Rates and gains of Gaussians are quadratics: three bases cancel them, and one particle in sixteen would do."""
    step = controlled_step(
        members(base), None, PATH, 100, generator(1), edge=EDGE, num_pilots=pilots, ridge=1e-6, last_noise=True
    )
    swarm, trace = drawn(step, 100, 1500, 16, resample_below=0)
    assert trace.ess[-1] > 15.5
    assert swarm.x[:, 0].var(0).tolist() == pytest.approx([variance] * 2, rel=0.1)


@pytest.mark.parametrize("missing", [0, 1])
def test_swarms_with_too_few_particles_for_a_common_control_have_none(missing: int) -> None:
    """Its weights are then those of the summed scores alone."""
    composition, count = members(20.0), least_swarms(4, 4) - missing
    x = torch.randn(count, 4, 2, generator=generator())
    swarm = Swarm(x, torch.zeros(count, 4, dtype=torch.float64), torch.zeros(count, 4))
    step = controlled_step(composition, None, PATH, 10, generator(), edge=EDGE, num_pilots=0, ridge=1e-3, last_noise=True)
    at = schedule(PATH, 10, EDGE)[5]
    plain = composition.composed(x, at.time).gap * at.squared / 2 / 10
    assert torch.allclose(step(swarm, 5).log_weight, plain.double(), rtol=1e-4) == bool(missing)


def test_pilots_decide_alone() -> None:
    """Other noise in the first swarms leaves those after them as they were."""

    def end(x0: Tensor) -> Tensor:
        own = generator(3)
        step = controlled_step(members(20.0), None, PATH, 10, own, edge=EDGE, num_pilots=8, ridge=1e-3, last_noise=True)
        return follow(start_swarm(x0, 4, own), step, 10, own, resample_below=0.5)[0].x

    x0 = torch.randn(40, 2, generator=generator())
    first, second = end(x0), end(torch.cat([-x0[:10], x0[10:]]))
    assert torch.equal(first[10:], second[10:])
    assert not torch.equal(first[:10], second[:10])


@pytest.mark.parametrize("ess_floor", [0.0, 0.5])
def test_uneven_swarms_are_resampled_with_and_without_tempering(ess_floor: float) -> None:
    """Tempered weights end at the ESS that triggers resampling; no power leaves less than that, up to rounding."""
    own = generator(2)

    def step(swarm: Swarm, number: int) -> Stepped:
        return Stepped(swarm.x, 2 * torch.randn(swarm.log_weights.shape, generator=own))

    _, trace = follow(start_swarm(torch.zeros(50, 1), 16, own), step, 10, own, resample_below=0.5, ess_floor=ess_floor)
    assert trace.distinct_ancestors < 8
    assert min(trace.ess) >= 16 * ess_floor - 1e-6


def test_a_sampler_that_diverges_says_so() -> None:
    with pytest.raises(CompbenchError, match="diverged.*more steps"):
        drawn(lambda swarm, number: Stepped(swarm.x / 0, swarm.log_weights), 2, 3, 4)
