"""Local experts of silos of one shape, trained at the same time: all silos in one vectorised step.

    theta_a <- AdamW(theta_a, grad (L_FM + lambda L_CI)(theta_a, batch_a)),   a = 1 ... n

`silos.first_stage` trains the same weights, up to the order of sums, one silo after the other.  No method uses this module: it
keeps no checkpoints, it needs the batches of all silos in one place, and it is not known to be faster (on a CPU, two silos gain
nothing).  `experiments/gpu/throughput.py` measures both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from many import train_many
from torch import Generator, Tensor, nn

from compbench.flow.compose import stacked
from compbench.flow.independence import composed
from compbench.flow.masking import Masking, draw_masks, sub_conditions
from compbench.flow.path import LinearPath, point, target_velocity
from compbench.flow.score_models import on_device

if TYPE_CHECKING:
    from compbench.api.context import Context, Silo
    from compbench.api.interfaces import Budget


class PathBatch(NamedTuple):
    """Points x_t (B, *D) of the linear path at times t (B,), the path's velocity there, and which of the `sub_conditions` of its
    condition (B, F) each row is trained on, (B,)."""

    x_t: Tensor
    t: Tensor
    condition: Tensor
    velocity: Tensor
    kind: Tensor


class PathSilo:
    """A silo whose batches include all random draws of the loss of equations 8 and 6, in the loss's order.

    Args:
        silo: source of the examples.
        masking: p(m) of equation 7.
        generator: draws noise, times and masks, on the batches' device.
    """

    def __init__(self, silo: Silo, masking: Masking, generator: Generator) -> None:
        self.name, self.size = silo.name, silo.size
        self._silo, self._masking, self._generator = silo, masking, generator

    def batch(self, size: int, generator: Generator) -> PathBatch:
        """`size` examples, drawn by `generator`, each at a random time of its path."""
        (x1, condition), own = self._silo.batch(size, generator), self._generator
        x0 = torch.randn(x1.shape, generator=own, device=x1.device)
        t = torch.rand(len(x1), generator=own, device=x1.device)
        kind = draw_masks(len(t), condition.shape[1], self._masking, own)
        path = LinearPath()
        return PathBatch(point(path, x0, x1, t), t, condition, target_velocity(path, x0, x1, t), kind)


def path_loss(net: nn.Module, batch: PathBatch, weights: Tensor) -> Tensor:
    """L_FM for the sub-condition that each row is trained on: equation 8."""
    chosen = _chosen(sub_conditions(batch.condition), batch.kind)
    return (net(batch.x_t, batch.t, chosen).float() - batch.velocity).square().mean()


def independent_path_loss(net: nn.Module, batch: PathBatch, weights: Tensor) -> Tensor:
    """L_FM + lambda L_CI, lambda = weights[0]: equations 8, 6 and 10."""
    velocities = stacked(net, batch.x_t, batch.t, sub_conditions(batch.condition)).float()  # (F + 2, B, *D)
    penalty = (velocities[0] - composed(velocities)).square().mean()
    return (_chosen(velocities, batch.kind) - batch.velocity).square().mean() + weights[0] * penalty


def train_silos(
    nets: Sequence[nn.Module],
    silos: Sequence[Silo],
    budget: Budget,
    ctx: Context,
    *,
    masking: Masking,
    independence: float,
    generators: Sequence[Generator],
) -> None:
    """Fit one network per silo in place, all at the same time; each ends with its averaged weights, in eval mode.

    Args:
        nets: n networks of one architecture.
        silos: n silos of one shape.
        budget: budget of each silo.
        ctx: device, precision, progress, and whether to compile.
        masking: p(m).
        independence: lambda; 0 omits the penalty and its evaluations.
        generators: one per silo, on the CPU; they draw rows, and on a CPU noise too.  On a GPU each seeds another for noise.
    """
    drawing = [PathSilo(silo, masking, on_device(own, ctx.device)) for silo, own in zip(silos, generators, strict=True)]
    loss = independent_path_loss if independence else path_loss
    weights = torch.full((len(nets), 1), independence)
    train_many(nets, loss, drawing, budget, ctx, generators=generators, weights=weights)


def _chosen(options: Tensor, kind: Tensor) -> Tensor:
    """Row b of options[kind[b]]: (K, B, ...) and (B,) -> (B, ...)."""
    return options[kind, torch.arange(len(kind), device=kind.device)]
