import numpy
import pytest
import torch

from compbench.api.factors import NULL
from compbench.data.gaussian_oracle import SourceOracle
from compbench.data.gaussians import base_composition, gaussian, mixed, product_of_gaussians, quadrature, uniform_over
from compbench.system.errors import CompbenchError
from compbench.tasks.gaussian import GaussianSettings, MixtureSettings, distributions

CPU = torch.device("cpu")


def parts(name: str, settings=None):
    found = distributions(name, settings or MixtureSettings())
    return found[1, 0], found[0, 1], found[0, 0]


TARGETS = {
    "gmm-id": ((1.4859, 2.4764), ((2.6403, 0.0704), (0.0704, 0.4773))),
    "gmm-ood": ((-3.75, 3.75), ((0.586, -0.414), (-0.414, 0.586))),
}
"""Moments of the mixture targets by an independent quadrature (protocol, section 1.1)."""


@pytest.mark.parametrize("base_variance", [10.0, 20.0, 1.0, 1.1])
def test_the_product_of_gaussians_has_theorem_1s_covariance(base_variance: float) -> None:
    sources = [gaussian((10, 1)), gaussian((1, 10)), gaussian((base_variance, base_variance))]
    expected = 1 / (1 / 10 + 1 - 1 / base_variance)
    assert product_of_gaussians(sources, (1, 1, -1)).variances.flatten().tolist() == pytest.approx([expected] * 2)


def test_a_product_that_is_no_distribution_is_refused_with_theorem_1() -> None:
    with pytest.raises(CompbenchError, match=r"theorem 1 .* \(-0\.9, -0\.9\), which must be positive"):
        product_of_gaussians([gaussian((10, 1)), gaussian((1, 10)), gaussian((0.5, 0.5))], (1, 1, -1))


@pytest.mark.parametrize("name", TARGETS)
def test_quadrature_has_the_targets_moments(name: str) -> None:
    mean, covariance = TARGETS[name]
    found = quadrature(*parts(name)).moments()
    assert found.mean.tolist() == pytest.approx(mean, abs=6e-5)
    assert found.covariance.flatten().tolist() == pytest.approx([*covariance[0], *covariance[1]], abs=6e-4)


@pytest.mark.parametrize("name", TARGETS)
def test_rejection_draws_from_the_target(name: str) -> None:
    mean, covariance = (numpy.array(part) for part in TARGETS[name])
    points = base_composition(*parts(name), 40_000, torch.Generator().manual_seed(0)).numpy()
    error = numpy.sqrt(numpy.diag(covariance) / 40_000)
    assert (abs(points.mean(0) - mean) < 4 * error).all()
    assert numpy.cov(points.T) == pytest.approx(covariance, rel=0.05, abs=0.02)


def test_the_text_s_means_give_the_text_s_target() -> None:
    found = quadrature(*parts("gmm-ood", MixtureSettings(means="paper"))).moments()
    assert found.mean.tolist() == pytest.approx([-2.0024, 3.3306], abs=1e-3)


def test_scores_are_gradients_of_log_densities() -> None:
    law = uniform_over([(0, 0), (2, 1), (-1, 3)], (0, 1, 2), 0.5)
    x = torch.randn(20, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(law.log_density(x).sum(), x)
    assert torch.allclose(law.score(x), gradient)


def test_noising_a_mixture_adds_variances() -> None:
    found = uniform_over([(0, 0), (2, 1)], (0, 1), 0.5).noised(0.5, 0.1)
    assert found.variances.unique().tolist() == pytest.approx([0.25 * 0.5 + 0.01])
    assert found.means.tolist() == [[0, 0], [1, 0.5]]


ORACLES = {
    "gauss2d-nonfact-id": GaussianSettings(base_variance=20.0),
    "gmm-id": MixtureSettings(),
    "gmm-ood": MixtureSettings(),
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("alpha", [0.0066, 0.6, 1.0])
def test_the_composed_oracle_is_the_sum_of_its_parts(name: str, alpha: float) -> None:
    oracle = SourceOracle(distributions(name, ORACLES[name]), CPU)
    sigma = (1 - alpha**2) ** 0.5
    members = [(1.0, (1, 0)), (1.0, (0, 1)), (-1.0, (0, 0))]
    x = 3 * torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    score, gap = oracle.composed(members)(x, alpha, sigma)
    each = [(w, oracle.score(x, alpha, sigma, cell)) for w, cell in members]
    assert torch.allclose(score, sum(w * s for w, s in each))
    assert torch.allclose(gap, score.square().sum(1) - sum(w * s.square().sum(1) for w, s in each), atol=1e-9)


@pytest.mark.parametrize("name", ORACLES)
def test_float32_scores_stay_finite_far_from_every_component(name: str) -> None:
    oracle = SourceOracle(distributions(name, ORACLES[name]), CPU)
    members = [(1.0, (1, 0)), (1.0, (0, 1)), (-1.0, (0, 0))]
    score, gap = oracle.composed(members)(torch.tensor([[300.0, -200.0], [0.0, 0.0]]), 1.0, 1e-3)
    assert score.isfinite().all()
    assert gap.isfinite().all()


def test_the_oracle_of_an_open_factor_is_the_mixture_of_what_is_left() -> None:
    oracle = SourceOracle(distributions("gmm-id", MixtureSettings()), CPU)
    x = torch.randn(9, 2, dtype=torch.float64)
    half = mixed([oracle.sources[0, 0], oracle.sources[0, 1]])
    assert torch.allclose(oracle.law((0, NULL)).log_density(x), half.log_density(x))


def test_the_oracle_knows_the_held_out_gaussian_and_mixture() -> None:
    gaussians = SourceOracle(distributions("gauss2d-nonfact-id", GaussianSettings(base_variance=20.0)), CPU)
    assert gaussians.law((1, 1)).variances.flatten().tolist() == pytest.approx([20 / 21] * 2)
    mixtures = SourceOracle(distributions("gmm-id", MixtureSettings()), CPU)
    x = torch.tensor([[1.0, 2.0], [0.5, 3.0]], dtype=torch.float64)
    step = torch.tensor([[1e-5, 0.0]], dtype=torch.float64)
    law = mixtures.law((1, 1)).noised(0.8, 0.6)
    slope = (law.log_density(x + step) - law.log_density(x - step)) / 2e-5
    assert torch.allclose(mixtures.score(x, 0.8, 0.6, (1, 1))[:, 0], slope, atol=1e-5)
