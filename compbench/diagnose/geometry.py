"""The pull-back metric of a layer on the plane of two factors, and how factorised it is.

    g_ij = <dA/dc_i, dA/dc_j>,   volume = sqrt(g_00 g_11 - g_01^2)
    factorisation = 1 - mean |g_01| / mean(g_00 + g_11)

Forced rendering, section 3 and appendix A.  The form above is a ratio of means, as in the authors' repository, and lies in
[0.5, 1].  The mean of pointwise ratios follows the paper's text.  The normalised form, 1 - |g_01| / sqrt(g_00 g_11), lies in
[0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from compbench.flow.blocks import ResidualBlock, ResidualLayer

TAPPED = (nn.ReLU, nn.PReLU, nn.GELU, nn.SiLU, nn.TransformerEncoderLayer, ResidualBlock, ResidualLayer)
"""Types of modules whose outputs count as a layer's activations."""
POINTS_AT_ONCE = 49
"""Number of points whose tangents are kept at a time: an activation of 64 x 28 x 28 takes 0.2 MB per point."""

Layers = dict[str, Tensor]
"""Activations by layer, each (B, ...), in the order of evaluation."""


class Metric(NamedTuple):
    """g of each point, each (B,), float64."""

    g00: Tensor
    g01: Tensor
    g11: Tensor


class Factorisation(NamedTuple):
    """One layer's factorisation: ratio of means, mean of pointwise ratios, mean of normalised ratios; 1 is exactly factorised."""

    ratio: float
    pointwise: float
    normalised: float


def metric_of(tangent0: Tensor, tangent1: Tensor) -> Metric:
    """g from the activations' derivatives along both factors, each (B, ...)."""
    a, b = (tangent.flatten(1).double() for tangent in (tangent0, tangent1))
    return Metric(a.square().sum(1), (a * b).sum(1), b.square().sum(1))


def volume(metric: Metric) -> Tensor:
    """sqrt(g_00 g_11 - g_01^2), the area of the image of a unit square of conditions, (B,)."""
    return (metric.g00 * metric.g11 - metric.g01.square()).clamp(min=0).sqrt()


def factorisation(metric: Metric) -> Factorisation:
    """All three forms; points where the layer does not change count as factorised."""
    cross, trace = metric.g01.abs(), metric.g00 + metric.g11
    ratio = cross.mean() / (trace.mean() + 1e-9)
    pointwise = cross / trace.clamp(min=1e-300)
    normalised = cross / (metric.g00 * metric.g11).sqrt().clamp(min=1e-300)
    return Factorisation(1 - ratio.item(), 1 - pointwise.mean().item(), 1 - normalised.mean().item())


def metrics_by_jvp(
    layers: Callable[[Tensor], Layers], code: Tensor, tangents: Tensor, *, points_at_once: int = POINTS_AT_ONCE
) -> dict[str, Metric]:
    """Metric tensors of all layers at all points by forward-mode derivatives, many points and both factors at once.

    Args:
        layers: codes (B, E) -> activations.
        code: (B, E).
        tangents: d code / d c_k of both factors, (2, B, E).
        points_at_once: bounds the memory.
    """

    def along(own: Tensor, direction: Tensor) -> Layers:
        return torch.func.jvp(layers, (own,), (direction,))[1]

    parts: list[dict[str, Metric]] = []
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # fused attention has no forward mode
        for first in range(0, len(code), points_at_once):
            rows = slice(first, first + points_at_once)
            moved = torch.func.vmap(along, in_dims=(None, 0))(code[rows], tangents[:, rows])
            parts.append({name: metric_of(*tangent.detach()) for name, tangent in moved.items()})
    return {name: Metric(*(torch.cat(g) for g in zip(*(part[name] for part in parts), strict=True))) for name in parts[0]}


def metrics_by_differences(activations: Layers, sizes: tuple[int, int]) -> dict[str, Metric]:
    """Metric tensors from differences between neighbouring cells of the grid, one-sided at its border.

    Use it for models that take only integer conditions.

    Args:
        activations: by layer, (X * Y, ...), y fastest.
        sizes: (X, Y), at least two values each.
    """
    found = {}
    for name, values in activations.items():
        grid = values.detach().double().flatten(1).unflatten(0, sizes)  # (X, Y, P)
        along_x, along_y = torch.gradient(grid, dim=(0, 1))
        found[name] = metric_of(along_x.flatten(0, 1), along_y.flatten(0, 1))
    return found


@contextmanager
def tapped(model: nn.Module) -> Iterator[Callable[[int], Layers]]:
    """Record a model's activations while the block runs.

    Yields:
        a function from the number of examples B to the activations of the last forward whose first axis is B; for a module that
        ran several times, those of its last call.
    """
    recorded: Layers = {}
    handles = [
        module.register_forward_hook(lambda _, inputs, output, name=name: recorded.__setitem__(name, output))
        for name, module in model.named_modules()
        if isinstance(module, TAPPED)
    ]

    def activations(count: int) -> Layers:
        kept = {name: value for name, value in recorded.items() if len(value) == count}
        recorded.clear()
        return kept

    try:
        yield activations
    finally:
        for handle in handles:
            handle.remove()


def that_move(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The layers that depend on the condition; the first half of a velocity network does not."""
    return {name: metric for name, metric in metrics.items() if float((metric.g00 + metric.g11).max()) > 0}
