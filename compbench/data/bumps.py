"""Grey images of one Gaussian bump, or of a stripe if a coordinate is open; and tables of examples as silos.

    g(u, v) = exp(-((u - x)^2 + (v - y)^2) / (2 sigma^2))

Forced rendering, section 2.  Bumps are bright on black, pixel centres lie at the integers, and nothing is clipped or normalised.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from compbench.api.context import Batch
from compbench.api.factors import NULL
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError


def bumps(condition: Tensor, *, size: int, sigma: float) -> Tensor:
    """Upright images g of positions; an open coordinate gives a stripe, which is constant along this coordinate.

    Args:
        condition: (x, y), integers or real numbers, (B, 2); NULL if open.
        size: N, pixels of a side.
        sigma: width of the bump in pixels.

    Returns:
        (B, N, N) in [0, 1], of the condition's type (float32 for integers); the first axis is v (y), the second u (x).
    """
    place = condition if condition.is_floating_point() else condition.float()
    pixels = torch.arange(size, device=place.device, dtype=place.dtype)
    profile = torch.exp(-((pixels - place[..., None]) ** 2) / (2 * sigma**2))  # (B, 2, N)
    profile = torch.where((place == NULL)[..., None], 1.0, profile)
    return profile[:, 1, :, None] * profile[:, 0, None, :]


def as_samples(upright: Tensor) -> Tensor:
    """Upright images (B, N, N) in [0, 1] as samples (B, 1, N, N) in [-1, 1]."""
    return 2 * upright[:, None] - 1


def as_upright(samples: Tensor) -> Tensor:
    """Samples (B, 1, N, N) back as upright images (B, N, N), not clipped."""
    return (samples[:, 0] + 1) / 2


def blank_level(condition: Tensor, *, size: int, sigma: float) -> float:
    """MSE of predicting pure background, mean g^2: pi sigma^2 / N^2 for bumps away from the border."""
    return bumps(condition.double(), size=size, sigma=sigma).square().mean().item()


def all_stripes(size: int) -> Tensor:
    """Conditions of the 2N stripes: each x with y open, then each y with x open; (2N, 2)."""
    place = torch.arange(size)
    open_ = torch.full_like(place, NULL)
    return torch.cat([torch.stack([place, open_], 1), torch.stack([open_, place], 1)])


class TableSilo:
    """A silo whose examples lie in one table on the device; a batch indexes it, without a loader."""

    def __init__(self, name: str, x1: Tensor, condition: Tensor) -> None:
        if not len(x1):
            raise CompbenchError(f"the table '{name}' has no training examples.")
        self.name, self.size, self.x1, self.condition = name, len(x1), x1, condition

    def batch(self, size: int, generator: Generator) -> Batch:
        chosen = send(torch.randint(self.size, (size,), generator=generator), self.x1.device)
        return Batch(self.x1[chosen], self.condition[chosen])
