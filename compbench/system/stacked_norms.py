"""Group norms of stacked networks (`torch.vmap`) whose images lie channels-last: before torch 2.14 a CPU refuses them.

`F.group_norm` asks there how its images lie, which it cannot be told of stacked ones ("NYI: querying is_contiguous inside of
vmap").  Copied to the contiguous layout first, they are normed alike.  Silos' networks are trained channels-last, so methods
that ask peers or teachers side by side ended in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


@functools.cache
def accept_stacked_norms() -> None:
    """Let `F.group_norm` take stacked images in any layout from now on, where this process's torch does not by itself."""
    if not takes_stacked(F.group_norm):
        F.group_norm = contiguous_where_stacked(F.group_norm)


def takes_stacked(norm: Callable[..., Tensor]) -> bool:
    """Whether a group norm takes two stacked images, (2, 1, 3, 2, 2), that lie channels-last."""
    images = torch.zeros(2, 1, 2, 2, 3).movedim(-1, 2)
    try:
        torch.vmap(lambda image: norm(image, 1))(images)
    except RuntimeError:
        return False
    return True


def contiguous_where_stacked(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same norm, which copies stacked images to the contiguous layout first."""

    @functools.wraps(norm)
    def normed(input: Tensor, *rest: Any, **named: Any) -> Tensor:
        stacked = not torch.compiler.is_compiling() and torch._C._functorch.is_batchedtensor(input)
        return norm(input.contiguous() if stacked else input, *rest, **named)

    return normed
