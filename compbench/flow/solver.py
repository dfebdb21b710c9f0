"""Solvers of dx/dt = v(x, t) from noise (t = 0) to data (t = 1) in a fixed number of steps, without host syncs.

Nearly every method samples through this file, so an edit changes the identity of nearly every run; `compbench verify --equal`
proves that an edit changes no bit of the samples.  Put a new solver after `answer`; methods call it by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from compbench.api.interfaces import Request

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(x (B, *D), t (B,)) -> velocity (B, *D)."""

NUM_GRADIENTS, DAMPING, TINY = 5, 0.05, 1e-6
"""Constants of the regression on given entries: number of steps, damping divided by alpha_t (J grows with alpha_t), and the
smallest curvature."""


class Known(NamedTuple):
    """Given entries of a sample: x_t there is alpha_t known + sigma_t x0, whatever the solver computes (inpainting).

    Attributes:
        values: values of the entries, (B, *D).
        mask: which entries are given, bool (B, *D).
    """

    values: Tensor
    mask: Tensor

    @classmethod
    def of(cls, request: Request) -> Known | None:
        """The given entries of a request; None if there are none."""
        if request.known is None or request.known_mask is None:
            return None
        return cls(request.known, request.known_mask)

    def with_particles(self) -> Known:
        """The same entries for any number of particles of each sample, (B, 1, *D)."""
        return Known(self.values[:, None], self.mask[:, None])

    def on_path(self, x: Tensor, x0: Tensor, alpha: float, sigma: float) -> Tensor:
        """x_t with its given entries on their path, from noise x0; both (B, *D)."""
        return torch.where(self.mask, alpha * self.values + sigma * x0, x)


def answer(velocity: Velocity, request: Request, *, num_steps: int) -> Tensor:
    """Samples for a request: `euler` from its noise, around its given entries, (B, *D)."""
    return euler(velocity, request.x0, num_steps=num_steps, known=Known.of(request))


def euler(velocity: Velocity, x0: Tensor, *, num_steps: int, known: Known | None = None) -> Tensor:
    """x <- x + h v(x, t), h = 1 / num_steps; one evaluation per step.

    Args:
        velocity: dx/dt.
        x0: noise, (B, *D).
        num_steps: steps from t = 0 to t = 1.
        known: given entries; they move along (1 - t) x0 + t known.

    Returns:
        x at t = 1, (B, *D).
    """
    x, h = x0, 1 / num_steps
    for step in range(num_steps):
        if known is None:
            x = x + h * velocity(x, _times(x, step * h))
        else:
            t = (step + 1) / num_steps
            x = known.on_path(x + h * conditioned(velocity, x, step * h, known), x0, t, 1 - t)
    return x


def conditioned(velocity: Velocity, x: Tensor, t: float, known: Known) -> Tensor:
    """The velocity given some entries of x1, which move every other denoised entry as the network's own covariance says.

        E[x1 | x_t, known] = E[x1 | x_t] + J_k w,    J_kk w = known - E[x1 | x_t]_k,    J = d E[x1 | x_t] / d x_t

    On the linear path Cov[x1 | x_t] = (1 - t)^2 / t J, so this is the regression of all entries on the given ones, exact for
    Gaussian data (optimal posterior covariance, Peng et al. 2024).  Keeping given entries on their path is not enough: the noise
    of the other frames outweighs the one frame that shows a cube's position.  J is symmetric for an exact denoiser, and only
    nearly so for a network; a few damped conjugate-gradient steps solve for w, with one backward pass each.

    Args:
        velocity: of the linear path, differentiable in x.
        x: points, (B, *D).
        t: one time for all.
        known: given entries.

    Returns:
        velocity, (B, *D).
    """
    with torch.enable_grad():
        leaf = x.detach().requires_grad_(True)
        found = velocity(leaf, _times(x, t))
        denoised = leaf + (1 - t) * found
    return found.detach() + towards_known(denoised, leaf, t, known) / (1 - t)


def towards_known(denoised: Tensor, leaf: Tensor, alpha: float, known: Known) -> Tensor:
    """J_k w of `conditioned`: how far given entries move every denoised entry.

    Args:
        denoised: E[x1 | x_t], (B, *D), with its graph from `leaf`.
        leaf: x_t, (B, *D).
        alpha: the path's scale of x1 at this time, with which J grows.
        known: given entries.

    Returns:
        E[x1 | x_t, known] - E[x1 | x_t], (B, *D), without a graph.
    """

    def jacobian(vector: Tensor) -> Tensor:
        return torch.autograd.grad(denoised, leaf, vector, retain_graph=True)[0]

    def damped(vector: Tensor) -> Tensor:
        return torch.where(known.mask, jacobian(vector), 0.0) + DAMPING * max(alpha, 1 / 50) * vector

    missing = torch.where(known.mask, known.values - denoised.detach(), 0.0)
    return jacobian(_conjugate_gradients(damped, missing))


def _conjugate_gradients(product: Callable[[Tensor], Tensor], wanted: Tensor) -> Tensor:
    """w with product(w) = wanted, one problem per row, (B, *D); a row stops if its matrix is not positive."""
    solution, rest = torch.zeros_like(wanted), wanted
    direction, size = rest, _row_sum(rest.square())
    for _ in range(NUM_GRADIENTS):
        image = product(direction)
        curvature = _row_sum(direction * image)
        step = torch.where(curvature > TINY * size, size / curvature.clamp(min=TINY), 0.0)
        solution, rest = solution + step * direction, rest - step * image
        before, size = size, _row_sum(rest.square())
        direction = rest + size / before.clamp(min=TINY) * direction
    return solution


def _row_sum(x: Tensor) -> Tensor:
    """Sums over all axes except the first, (B, 1, ...)."""
    return x.sum(tuple(range(1, x.ndim)), keepdim=True)


def _times(x: Tensor, t: float) -> Tensor:
    """The time t for each sample, (B,); filled on the device."""
    return x.new_full((len(x),), t)
