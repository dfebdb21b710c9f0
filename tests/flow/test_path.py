import pytest
import torch
from torch import Tensor

from compbench.flow.path import (
    Coefficients,
    LinearPath,
    denoised_to_velocity,
    logit_normal,
    per_sample,
    point,
    score_to_denoised,
    score_to_velocity,
    target_velocity,
    velocity_to_denoised,
    velocity_to_score,
)


class TrigonometricPath:
    """alpha = sin(pi t / 2), sigma = cos(pi t / 2): a path that is not linear."""

    def at(self, t: Tensor) -> Coefficients:
        half = torch.pi / 2
        return Coefficients((half * t).sin(), (half * t).cos(), half * (half * t).cos(), -half * (half * t).sin())


PATHS = [LinearPath(), TrigonometricPath()]
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


def test_logit_normal_has_median_one_half() -> None:
    t = logit_normal(20_000, torch.Generator().manual_seed(0))
    assert t.min() > 0
    assert t.max() < 1
    assert abs(float(t.median()) - 0.5) < 0.01
    assert abs(float((t < torch.sigmoid(torch.tensor(1.0))).float().mean()) - 0.8413) < 0.01  # one sigma of z
