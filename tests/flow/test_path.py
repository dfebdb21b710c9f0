import pytest
import torch
from torch import Tensor

from compbench.flow.path import (
    Coefficients,
    LinearPath,
    VariancePreservingPath,
    denoised_to_velocity,
    diffusion,
    logit_normal,
    noise_side,
    per_sample,
    point,
    score_to_denoised,
    score_to_velocity,
    target_velocity,
    times_around,
    velocity_to_denoised,
    velocity_to_score,
)


class TrigonometricPath:
    """alpha = sin(pi t / 2), sigma = cos(pi t / 2): a path that is not linear."""

    def at(self, t: Tensor) -> Coefficients:
        half = torch.pi / 2
        return Coefficients((half * t).sin(), (half * t).cos(), half * (half * t).cos(), -half * (half * t).sin())


PATHS = [LinearPath(), TrigonometricPath(), VariancePreservingPath()]
MEAN, VARIANCE = 3.0, 0.25


def gaussian_truth(path, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Velocity, score and denoiser for x1 ~ N(MEAN, VARIANCE), from joint Gaussians."""
    alpha, sigma, alpha_rate, sigma_rate = path.at(t).per_sample(x_t)
    spread = alpha**2 * VARIANCE + sigma**2
    residual = (x_t - alpha * MEAN) / spread
    denoised = MEAN + alpha * VARIANCE * residual
    noise = sigma * residual
    return alpha_rate * denoised + sigma_rate * noise, -residual, denoised


@pytest.fixture
def at_some_times() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 2, 3, generator=generator, dtype=torch.float64)
    return x, torch.linspace(0.1, 0.9, 7, dtype=torch.float64)


def test_linear_path_starts_at_noise_and_ends_at_data() -> None:
    x0, x1 = torch.randn(2, 4, 3)
    assert torch.equal(point(LinearPath(), x0, x1, torch.zeros(4)), x0)
    assert torch.equal(point(LinearPath(), x0, x1, torch.ones(4)), x1)


def test_linear_path_has_constant_velocity() -> None:
    x0, x1 = torch.randn(2, 4, 3)
    assert torch.equal(target_velocity(LinearPath(), x0, x1, torch.rand(4)), x1 - x0)


def test_target_velocity_is_the_derivative_of_the_point() -> None:
    path, t, step = TrigonometricPath(), torch.full((4,), 0.3, dtype=torch.float64), 1e-6
    x0, x1 = torch.randn(2, 4, 3, dtype=torch.float64)
    slope = (point(path, x0, x1, t + step) - point(path, x0, x1, t - step)) / (2 * step)
    torch.testing.assert_close(target_velocity(path, x0, x1, t), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_conversions_agree_with_a_gaussian(path, at_some_times) -> None:
    x_t, t = at_some_times
    velocity, score, denoised = gaussian_truth(path, x_t, t)
    torch.testing.assert_close(velocity_to_score(path, velocity, x_t, t), score)
    torch.testing.assert_close(velocity_to_denoised(path, velocity, x_t, t), denoised)
    torch.testing.assert_close(score_to_velocity(path, score, x_t, t), velocity)
    torch.testing.assert_close(score_to_denoised(path, score, x_t, t), denoised)
    torch.testing.assert_close(denoised_to_velocity(path, denoised, x_t, t), velocity)


def test_velocity_to_score_holds_at_pure_noise() -> None:
    x0 = torch.randn(5, 2)
    score = velocity_to_score(LinearPath(), torch.randn(5, 2), x0, torch.zeros(5))
    assert torch.equal(score, -x0)  # p_0 is the standard normal whatever the data


def test_per_sample_broadcasts_over_all_axes_of_a_sample() -> None:
    assert per_sample(torch.rand(4), torch.rand(4, 3, 8, 8)).shape == (4, 1, 1, 1)


def test_half_of_the_noise_side_times_are_below_a_quarter() -> None:
    t = noise_side(20_000, torch.Generator().manual_seed(0))
    assert (t < 0.25).float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert 0 <= t.min() <= t.max() < 1


def test_logit_normal_has_median_one_half() -> None:
    t = logit_normal(20_000, torch.Generator().manual_seed(0))
    assert t.min() > 0
    assert t.max() < 1
    assert abs(float(t.median()) - 0.5) < 0.01
    assert abs(float((t < torch.sigmoid(torch.tensor(1.0))).float().mean()) - 0.8413) < 0.01  # one sigma of z


def test_logit_normal_times_lie_around_the_location_that_is_set_and_only_there() -> None:
    plain = logit_normal(1000, torch.Generator().manual_seed(0))
    with times_around(-0.8):
        moved = logit_normal(1000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(moved.logit(), plain.logit() - 0.8, rtol=0, atol=1e-3)
    assert torch.equal(logit_normal(1000, torch.Generator().manual_seed(0)), plain)


def test_the_variance_preserving_path_has_the_papers_coefficients() -> None:
    """alpha = exp(-(0.1 tau + 9.95 tau^2) / 2), 0.0066 at the noise; sigma stays right where 1 - alpha^2 cancels."""
    at = VariancePreservingPath().at(torch.tensor([0.0, 0.5, 1 - 1e-5]))
    assert at.alpha.tolist() == pytest.approx([0.006571, 0.281183, 1.0], abs=2e-6)
    assert at.sigma[2].item() == pytest.approx(1.0005e-3, rel=1e-3)
    assert torch.allclose(at.alpha**2 + at.sigma**2, torch.ones(3))


def test_the_variance_preserving_diffusion_is_beta() -> None:
    t = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    beta = 0.1 + 19.9 * (1 - t)
    found = diffusion(VariancePreservingPath(), t)
    assert torch.allclose(found.drift, beta / 2)
    assert torch.allclose(found.squared, beta)


@pytest.mark.parametrize("path", PATHS)
def test_the_diffusion_has_the_paths_marginals(path) -> None:
    """Fokker-Planck for a Gaussian in tau = 1 - t: d var / dtau = -2 f var + g^2, and d mean / dtau = -f mean."""
    t = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    at, found = path.at(t), diffusion(path, t)
    spread = at.alpha**2 * VARIANCE + at.sigma**2
    rate = 2 * at.alpha * at.alpha_rate * VARIANCE + 2 * at.sigma * at.sigma_rate  # d var / dt
    assert torch.allclose(-rate, -2 * found.drift * spread + found.squared)
