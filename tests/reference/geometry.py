"""Metric tensors one point and one factor after the other: what `metrics_by_jvp` is tested and timed against."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from compbench.diagnose.geometry import Layers, Metric, metric_of


def metrics_by_loop(layers: Callable[[Tensor], Layers], code: Tensor, tangents: Tensor) -> dict[str, Metric]:
    """Metric tensors of all layers, each (B,); arguments as of `metrics_by_jvp`."""
    points: list[dict[str, Metric]] = []
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # fused attention has no forward mode
        for row in range(len(code)):
            moved = [torch.func.jvp(layers, (code[row : row + 1],), (each[row : row + 1],))[1] for each in tangents]
            points.append({name: metric_of(moved[0][name].detach(), moved[1][name].detach()) for name in moved[0]})
    return {name: Metric(*(torch.cat(parts) for parts in zip(*(p[name] for p in points), strict=True))) for name in points[0]}
