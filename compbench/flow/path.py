"""Probability paths between noise x0 (t = 0) and data x1 (t = 1); conversions between velocity, score and denoiser.

All Gaussian paths are x_t = alpha_t x1 + sigma_t x0 with x0 ~ N(0, I); time is (B,), samples are (B, *D).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor


class Coefficients(NamedTuple):
    """A Gaussian path at some times: alpha_t, sigma_t and their derivatives, all shaped like the times."""

    alpha: Tensor
    sigma: Tensor
    alpha_rate: Tensor
    sigma_rate: Tensor

    def per_sample(self, x: Tensor) -> Coefficients:
        """The same coefficients, reshaped from (B,) to broadcast against x (B, *D)."""
        return Coefficients(*(per_sample(part, x) for part in self))


class GaussianPath(Protocol):
    """x_t = alpha_t x1 + sigma_t x0, given by its coefficients."""

    def at(self, t: Tensor) -> Coefficients: ...


class LinearPath:
    """x_t = (1 - t) x0 + t x1, velocity x1 - x0.  Lipman et al. 2023 with sigma_min = 0; Liu et al. 2023."""

    def at(self, t: Tensor) -> Coefficients:
        """alpha_t = t, sigma_t = 1 - t."""
        one = torch.ones_like(t)
        return Coefficients(t, 1 - t, one, -one)


class VariancePreservingPath:
    """x_t = alpha_t x1 + sigma_t x0 with alpha_t^2 + sigma_t^2 = 1 and the linear schedule of DDPM.  Song et al. 2021.

    With tau = 1 - t and rise = beta_max - beta_min: beta = beta_min + rise tau,
    alpha = exp(-(beta_min tau + rise tau^2 / 2) / 2).

    Args:
        beta_min, beta_max: beta at the data and at the noise; 0.1 and 20 in composition papers.
    """

    def __init__(self, beta_min: float = 0.1, beta_max: float = 20.0) -> None:
        self.beta_min, self.beta_max = beta_min, beta_max

    def at(self, t: Tensor) -> Coefficients:
        """alpha' = beta alpha / 2, sigma' = -alpha alpha' / sigma; infinite at t = 1, where sigma is 0."""
        tau = 1 - t
        beta = self.beta_min + tau * (self.beta_max - self.beta_min)
        exponent = self.beta_min * tau + (self.beta_max - self.beta_min) / 2 * tau.square()  # -2 log alpha
        alpha = (-exponent / 2).exp()
        sigma = (-torch.expm1(-exponent)).sqrt()  # expm1: 1 - alpha^2 cancels near the data
        return Coefficients(alpha, sigma, beta / 2 * alpha, -beta / 2 * alpha.square() / sigma)


class Diffusion(NamedTuple):
    """A path as a diffusion: noising is dx = -f x dtau + g dW in tau = 1 - t; for the variance-preserving path f = beta / 2."""

    drift: Tensor
    squared: Tensor


def diffusion(path: GaussianPath, t: Tensor) -> Diffusion:
    """f = alpha' / alpha and g^2 = 2 sigma (f sigma - sigma'): the noising SDE that has the path's marginals.

    Args:
        path: a Gaussian path.
        t: times, any shape; f is infinite where alpha_t = 0.

    Returns:
        f and g^2, shaped like `t`.
    """
    c = path.at(t)
    drift = c.alpha_rate / c.alpha
    return Diffusion(drift, 2 * c.sigma * (drift * c.sigma - c.sigma_rate))


def per_sample(t: Tensor, x: Tensor) -> Tensor:
    """Times (B,) reshaped to (B, 1, ...) so that they broadcast against x (B, *D)."""
    return t.reshape(-1, *[1] * (x.ndim - 1))


def point(path: GaussianPath, x0: Tensor, x1: Tensor, t: Tensor) -> Tensor:
    """x_t = alpha_t x1 + sigma_t x0.

    Args:
        x0, x1: noise and data, (B, *D).
        t: times, (B,).

    Returns:
        points on the path, (B, *D).
    """
    c = path.at(t).per_sample(x1)
    return c.alpha * x1 + c.sigma * x0


def target_velocity(path: GaussianPath, x0: Tensor, x1: Tensor, t: Tensor) -> Tensor:
    """The conditional velocity alpha'_t x1 + sigma'_t x0 that flow matching regresses on, (B, *D)."""
    c = path.at(t).per_sample(x1)
    return c.alpha_rate * x1 + c.sigma_rate * x0


def velocity_to_denoised(path: GaussianPath, velocity: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """E[x1 | x_t] = (sigma v - sigma' x_t) / (sigma alpha' - alpha sigma'), (B, *D)."""
    c = path.at(t).per_sample(x_t)
    return (c.sigma * velocity - c.sigma_rate * x_t) / (c.sigma * c.alpha_rate - c.alpha * c.sigma_rate)


def denoised_to_velocity(path: GaussianPath, denoised: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """v = alpha' d + (sigma' / sigma) (x_t - alpha d), (B, *D); undefined where sigma_t = 0."""
    c = path.at(t).per_sample(x_t)
    return c.alpha_rate * denoised + c.sigma_rate / c.sigma * (x_t - c.alpha * denoised)


def velocity_to_score(path: GaussianPath, velocity: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """grad log p_t = (alpha v - alpha' x_t) / (sigma (sigma alpha' - alpha sigma')); undefined where sigma_t = 0."""
    c = path.at(t).per_sample(x_t)
    return (c.alpha * velocity - c.alpha_rate * x_t) / (c.sigma * (c.sigma * c.alpha_rate - c.alpha * c.sigma_rate))


def score_to_velocity(path: GaussianPath, score: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """v = (alpha' x_t + sigma (sigma alpha' - alpha sigma') s) / alpha, (B, *D); undefined where alpha_t = 0."""
    c = path.at(t).per_sample(x_t)
    return (c.alpha_rate * x_t + c.sigma * (c.sigma * c.alpha_rate - c.alpha * c.sigma_rate) * score) / c.alpha


def score_to_denoised(path: GaussianPath, score: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """E[x1 | x_t] = (x_t + sigma^2 s) / alpha (Tweedie), (B, *D); undefined where alpha_t = 0."""
    c = path.at(t).per_sample(x_t)
    return (x_t + c.sigma.square() * score) / c.alpha


def noise_side(count: int, generator: Generator) -> Tensor:
    """Times u^2, u uniform: half of them below 1/4, on the generator's device, (count,).

    The appearance of a factor's values is decided early, at high noise, where logit-normal times are rare.
    """
    return torch.rand(count, generator=generator, device=generator.device).square()


_location: ContextVar[float] = ContextVar("location of the logits of training times", default=0.0)


@contextlib.contextmanager
def times_around(location: float) -> Iterator[None]:
    """Let `logit_normal` draw around a location in this thread while the block runs; `train` uses the budget's location."""
    before = _location.set(location)
    try:
        yield
    finally:
        _location.reset(before)


def logit_normal(count: int, generator: Generator) -> Tensor:
    """Times 1 / (1 + exp(-z)), z ~ N(m, 1), on the generator's device, (count,).  Esser et al. 2024, section 3.1.

    The location m is 0, or what `times_around` sets.  Below 0, more times lie near the noise, where a condition decides most.
    """
    z, location = torch.randn(count, generator=generator, device=generator.device), _location.get()
    return (z + location).sigmoid() if location else z.sigmoid()
