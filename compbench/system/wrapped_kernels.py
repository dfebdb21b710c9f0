"""Torch's kernels on a CPU, wrapped in ours, where this torch allows it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload

CAN_WRAP = hasattr(torch.library, "get_kernel")
"""True if this torch gives access to its kernel, so that our kernel can call it."""

Kernel = Callable[..., Any]
"""A kernel of torch's; it takes the dispatch keys before its arguments."""


def wrapped(ways: Mapping[OpOverload, Kernel]) -> torch.library.Library:
    """Let operators on this process's CPU go through `way(torch's own kernel, keys, *arguments)` from now on.

    Returns:
        what holds the wrapped kernels: torch forgets them with it.
    """
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*verriding a previously registered kernel")
        for operator, way in ways.items():
            library.impl(operator, functools.partial(way, torchs_own(operator)), "CPU", with_keyset=True)  # type: ignore[no-untyped-call]
    return library


@functools.cache
def torchs_own(operator: OpOverload) -> Kernel:
    """Torch's kernel of an operator on a CPU, as it is before it is wrapped."""
    kernel: Kernel = torch.library.get_kernel(operator, "CPU").call_boxed
    return kernel
