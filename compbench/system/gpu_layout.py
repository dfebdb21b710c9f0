"""Keep images in channels-last layout through a network on a GPU, where torch's own functions lose it.

Convolutions on a GPU are fast on channels-last images.  On a GPU, torch's group norm writes channels-first images, so every
convolution after the first one copies its input; and nearest-neighbour upsampling is a gather whose gradient is a scattered sum.
In the context `layout_kept`, images on a GPU use these functions instead:

    norm        y = gamma (x - mean_g) / sqrt(var_g + eps) + beta, statistics in fp32 over the unflattened channels, in x's layout
    upsampling  by two: a view of the channels-last image with each row and column repeated, whose gradient is a plain sum

Transposed convolutions are the exception: they get contiguous images and weights.  For channels-last ones torch's compiler
expects contiguous gradients, but the GPU returns another layout, and the compiled fit ends with an error (PyTorch issue 171622).

Results are the same up to the order of sums.  Nothing changes on a CPU, nor for tensors that are not images.

A norm returns fp32, as torch's does under autocast.  With `narrow` it returns its input's type, bf16 under autocast, with
statistics in fp32.  Whether that is faster was not measured on a GPU, so the harness does not use it (`experiments/gpu/ways.py`
does).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


@contextlib.contextmanager
def layout_kept(*, narrow: bool = False) -> Iterator[None]:
    """Let norms, upsampling and transposed convolutions of `torch.nn.functional` use the best layout of images on a GPU.

    All functions are restored at the end.

    Args:
        narrow: norms return the type of their input instead of fp32.
    """
    before = F.group_norm, F.interpolate, F.conv_transpose2d
    F.group_norm, F.interpolate = _norm_or(F.group_norm, narrow), _doubling_or(F.interpolate)
    F.conv_transpose2d = _of_contiguous(F.conv_transpose2d)
    try:
        yield
    finally:
        F.group_norm, F.interpolate, F.conv_transpose2d = before


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, *, narrow: bool = False
) -> Tensor:
    """Group norm in the layout of its input.

    Args:
        x: images, (B, C, H, W).
        num_groups: G, which divides C.
        weight, bias: gamma and beta, (C,), or None.
        eps: added to the variance.
        narrow: round the result to x's type.

    Returns:
        (B, C, H, W), fp32 or x's type.
    """
    y = x.float().view(len(x), num_groups, -1, *x.shape[2:])  # (B, G, C / G, H, W)
    var, mean = torch.var_mean(y, dim=(2, 3, 4), correction=0, keepdim=True)
    y = ((y - mean) * torch.rsqrt(var + eps)).flatten(1, 2)
    if weight is not None:
        y = y * weight[:, None, None]
    y = y if bias is None else y + bias[:, None, None]
    return y.to(x.dtype) if narrow else y


def doubled(x: Tensor) -> Tensor:
    """Nearest-neighbour upsampling by two: (B, C, H, W) -> (B, C, 2 H, 2 W), channels-last."""
    batch, channels, height, width = x.shape
    rows = x.permute(0, 2, 3, 1)[:, :, None, :, None, :].expand(batch, height, 2, width, 2, channels)
    return rows.reshape(batch, 2 * height, 2 * width, channels).permute(0, 3, 1, 2)


def _is_image_on_a_gpu(x: Tensor) -> bool:
    return x.device.type == "cuda" and x.ndim == 4


def _norm_or(plain: Callable[..., Tensor], narrow: bool) -> Callable[..., Tensor]:
    @functools.wraps(plain)
    def normed(
        input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        if _is_image_on_a_gpu(input):
            return group_norm(input, num_groups, weight, bias, eps, narrow=narrow)
        return plain(input, num_groups, weight, bias, eps)

    return normed


def _doubling_or(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(plain)
    def upsampled(input: Tensor, size: Sequence[int] | None = None, *rest: object, **named: object) -> Tensor:
        twice = size is not None and _is_image_on_a_gpu(input) and tuple(size) == (2 * input.shape[2], 2 * input.shape[3])
        return doubled(input) if twice and not rest and not named else plain(input, size, *rest, **named)

    return upsampled


def _of_contiguous(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(plain)
    def convolved(input: Tensor, weight: Tensor, *rest: object, **named: object) -> Tensor:
        if _is_image_on_a_gpu(input):
            return plain(input.contiguous(), weight.contiguous(), *rest, **named)
        return plain(input, weight, *rest, **named)

    return convolved
