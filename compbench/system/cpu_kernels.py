"""Call torch's CPU kernels in a layout that they accept or are fast in: group norms of narrow and of stacked images.

    y = gamma (x - mean_g) / sqrt(var_g + eps) + beta,    x (N, C, H, W), a mean and a variance for each of G groups

Networks keep images channels-last, for their convolutions.

Narrow groups: in bf16, torch's channels-last kernel processes a group's C / G channels one by one if they do not fill a vector
register.  That takes several times as long as copying to the contiguous layout, the same kernel there and a copy back
(`tests/benchmarks/test_narrow_norm_speed.py`).  Results differ by the order of the sums.

Stacked networks (`torch.vmap`): before torch 2.14, `F.group_norm` on a CPU queries the layout of its images, which fails for
stacked images ("NYI: querying is_contiguous inside of vmap").  After a copy to the contiguous layout the result is the same.
Silos' networks are trained channels-last, so methods that evaluate peers or teachers side by side would end in that error.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn import functional as F

CAN_WRAP = hasattr(torch.library, "get_kernel")
"""True if this torch gives access to its kernel, so that our kernel can call it."""

Kernel = Callable[..., object]
"""A torch kernel, which takes the dispatch keys before its arguments."""
Norm = Callable[..., tuple[Tensor, ...]]
NormGradient = Callable[..., tuple[Tensor | None, ...]]

VECTOR = 16
"""From this number of channels per group on, torch's channels-last kernel is fast."""
MAP = 1024
"""From this number of pixels on, torch uses another channels-last kernel, which is fast for narrow groups too."""


def wrapped(ways: Mapping[OpOverload, Kernel]) -> torch.library.Library:
    """Route operators on this process's CPU through `way(torch's own kernel, keys, *arguments)` from now on.

    Returns:
        the library that holds the wrapped kernels; deleting it restores torch's kernels.
    """
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*verriding a previously registered kernel")
        for operator, way in ways.items():
            library.impl(operator, functools.partial(way, torchs_own(operator)), "CPU", with_keyset=True)  # type: ignore[no-untyped-call]
    return library


@functools.cache
def torchs_own(operator: OpOverload) -> Kernel:
    """Torch's kernel of an operator on a CPU, before it is wrapped."""
    kernel: Kernel = torch.library.get_kernel(operator, "CPU").call_boxed
    return kernel


@functools.cache
def lay_out_narrow_norms() -> torch.library.Library | None:
    """Let group norms on this process's CPU take the faster layout from now on.

    Returns:
        the library that holds the wrapped kernels, whose deletion restores torch's; None if this torch gives no access to them.
    """
    if not CAN_WRAP:
        return None
    aten = torch.ops.aten
    return wrapped({aten.native_group_norm.default: _forward, aten.native_group_norm_backward.default: _backward})


def is_narrow(x: Tensor, groups: int) -> bool:
    """Whether torch would use its slow kernel for images (N, C, H, W)."""
    return (
        x.dtype is torch.bfloat16
        and x.ndim == 4
        and x.shape[1] // groups < VECTOR
        and x.shape[2] * x.shape[3] < MAP
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _forward(
    kernel: Norm, keys: object, x: Tensor, *rest: *tuple[Tensor | None, Tensor | None, int, int, int, int, float]
) -> tuple[Tensor, ...]:
    """(x, gamma, beta, N, C, HW, G, eps) -> y, means (N, G), inverse deviations (N, G)."""
    if not is_narrow(x, rest[5]):
        return kernel(keys, x, *rest)
    y, mean, inverse = kernel(keys, x.contiguous(), *rest)
    return _channels_last(y), mean, inverse


def _backward(
    kernel: NormGradient,
    keys: object,
    gradient: Tensor,
    x: Tensor,
    *rest: *tuple[Tensor, Tensor, Tensor | None, int, int, int, int, Sequence[bool]],
) -> tuple[Tensor | None, ...]:
    """(dy, x, means, inverse deviations, gamma, N, C, HW, G, which gradients are requested) -> dx, dgamma, dbeta."""
    if not is_narrow(x, rest[6]):
        return kernel(keys, gradient, x, *rest)
    towards_x, *towards_weights = kernel(keys, gradient.contiguous(), x.contiguous(), *rest)
    return (None if towards_x is None else _channels_last(towards_x), *towards_weights)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@functools.cache
def accept_stacked_norms() -> None:
    """Let `F.group_norm` accept stacked images in any layout from now on, if this process's torch does not."""
    if not takes_stacked(F.group_norm):
        F.group_norm = contiguous_where_stacked(F.group_norm)


def takes_stacked(norm: Callable[..., Tensor]) -> bool:
    """Whether a group norm accepts two stacked images, (2, 1, 3, 2, 2), in channels-last layout."""
    images = torch.zeros(2, 1, 2, 2, 3).movedim(-1, 2)
    try:
        torch.vmap(lambda image: norm(image, 1))(images)
    except RuntimeError:
        return False
    return True


def contiguous_where_stacked(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same norm, applied after stacked images are copied to the contiguous layout."""

    @functools.wraps(norm)
    def normed(input: Tensor, *rest: object, **named: object) -> Tensor:
        stacked = not torch.compiler.is_compiling() and torch._C._functorch.is_batchedtensor(input)
        return norm(input.contiguous() if stacked else input, *rest, **named)

    return normed
