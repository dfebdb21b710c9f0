"""Copy numbers from the host to a device without making a loop wait."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # tasks import this module, and the parent process, which knows tasks, has no torch
    import torch
    from torch import Tensor


def send(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; a copy from the CPU to a GPU goes through pinned memory, so the host does not wait for it."""
    if device.type == "cuda" and x.device.type == "cpu":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


@lru_cache(maxsize=4096)
def numbers(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """`torch.tensor(values)` on a device, copied at the first call and then cached.  Do not write to the result."""
    import torch

    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)
