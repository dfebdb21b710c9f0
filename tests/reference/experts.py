"""Networks asked one after the other: what the stacked call of `compbench.flow.experts` is tested and timed against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def loop(nets: Sequence[nn.Module], x_t: Tensor, t: Tensor, conditions: Tensor, *, own_points: bool = False) -> Tensor:
    """v_a(x_t, t | c_a) of each network, (n, K, B, *D); arguments as of `Experts.forward`."""
    points = x_t if own_points else x_t.expand(len(nets), *x_t.shape)
    return torch.stack([net.stacked(x, t, asked) for net, x, asked in zip(nets, points, conditions, strict=True)])
