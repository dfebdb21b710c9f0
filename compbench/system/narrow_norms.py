"""Group norms of bf16 images with few channels a group: torch's kernel is called in the layout that it is fast in.

    y = gamma (x - mean_g) / sqrt(var_g + eps) + beta,    x (N, C, H, W), a mean and a variance for each of G groups

Networks keep images channels-last, for their convolutions.  There torch's bf16 kernel goes through a group's C / G neighbours one
by one where they do not fill a vector register, which takes it several times as long as a copy to the contiguous layout, the same
kernel there and a copy back (`tests/benchmarks/test_narrow_norm_speed.py`).  Results differ by the order of the sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compbench.system.wrapped_kernels import CAN_WRAP, wrapped

VECTOR = 16
"""From this number of channels per group the channels-last kernel is fast without our help."""
MAP = 1024
"""From this number of pixels torch uses another channels-last kernel, which is fast for narrow groups too."""

Norm = Callable[..., tuple[Any, ...]]


@functools.cache
def lay_out_narrow_norms() -> torch.library.Library | None:
    """Let group norms on this process's CPU take the faster layout from now on.

    Returns:
        what holds the wrapped kernels, as torch forgets them with it; None where this torch lets no kernel be wrapped.
    """
    if not CAN_WRAP:
        return None
    aten = torch.ops.aten
    return wrapped({aten.native_group_norm.default: _forward, aten.native_group_norm_backward.default: _backward})


def is_narrow(x: Tensor, groups: int) -> bool:
    """Whether images (N, C, H, W) would go through torch's slow kernel."""
    return (
        x.dtype is torch.bfloat16
        and x.ndim == 4
        and x.shape[1] // groups < VECTOR
        and x.shape[2] * x.shape[3] < MAP
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _forward(kernel: Norm, keys: object, x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """(x, gamma, beta, N, C, HW, G, eps) -> y, means (N, G), inverse deviations (N, G)."""
    if not is_narrow(x, rest[5]):
        return kernel(keys, x, *rest)
    y, mean, inverse = kernel(keys, x.contiguous(), *rest)
    return _channels_last(y), mean, inverse


def _backward(kernel: Norm, keys: object, gradient: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    """(dy, x, means, inverse deviations, gamma, N, C, HW, G, which are asked for) -> dx, dgamma, dbeta."""
    if not is_narrow(x, rest[6]):
        return kernel(keys, gradient, x, *rest)
    towards_x, *towards_weights = kernel(keys, gradient.contiguous(), x.contiguous(), *rest)
    return (None if towards_x is None else _channels_last(towards_x), *towards_weights)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
