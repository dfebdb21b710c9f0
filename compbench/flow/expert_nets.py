"""Velocity networks of a composition's members: one network for all sources of a perturbation task, or an expert per member.

    L = sum_k L_FM(v_k), for experts that share no weights

Around NULL an expert sees only one factor; around a base it sees only one source's data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from compbench.flow import scores
from compbench.flow.nets import VelocityNet
from compbench.flow.path import LinearPath, logit_normal, point, target_velocity
from compbench.system.condition_counts import experts_regressed

if TYPE_CHECKING:
    from compbench.api.context import Batch


class SourcesNet(nn.Module):
    """A velocity network of a perturbation task's sources, which are composed around the base."""

    def __init__(self, net: VelocityNet, base: tuple[int, ...]) -> None:
        super().__init__()
        self.net, self.base = net, base
        self.sample_steps, self.guidance = net.sample_steps, net.guidance
        self.numbers_per_row = net.numbers_per_row

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """v(x_t, t | c) at points (B, *D), times (B,) and sources (B, F), (B, *D)."""
        return self.net(x_t, t, condition)

    def stacked(self, x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        """v(x_t, t | c_k) of K sources, (K, B, F) -> (K, B, *D)."""
        return self.net.stacked(x_t, t, conditions)


class MarginalExperts(nn.Module):
    """One velocity network for each member of a composition.

    Around NULL the first expert sees no factor and the k-th only factor k.  Around a base the first learns the base's data and
    the k-th the data of factor k's perturbation.
    """

    def __init__(self, nets: list[VelocityNet], base: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.nets, self.base = nn.ModuleList(nets), base
        self.sample_steps, self.guidance = nets[0].sample_steps, nets[0].guidance
        self.numbers_per_row = nets[0].numbers_per_row

    def stacked(self, x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        """v_k(x_t, t | c_k) of each expert, (F + 1, B, F) -> (F + 1, B, *D); at the base, the first expert answers for all."""
        velocities = torch.stack([net(x_t, t, condition) for net, condition in zip(self.nets, conditions, strict=True)])
        if not self.base:
            return velocities
        still = (conditions == conditions.new_tensor(self.base)).all(-1)  # (F + 1, B)
        return torch.where(still.view(*still.shape, *[1] * (x_t.ndim - 1)), velocities[:1], velocities)

    def forward(self, points: Sequence[Tensor], times: Sequence[Tensor], conditions: Sequence[Tensor]) -> list[Tensor]:
        """v_k(x_t, t | c) of each expert at its own points (B, *D), times (B,) and conditions (B, F), (B, *D) each."""
        asked = zip(self.nets, points, times, conditions, strict=True)
        return [net(x_t, t, condition) for net, x_t, t, condition in asked]


def experts_loss(
    experts: Callable[..., Sequence[Tensor]], batch: Batch, generator: Generator, *, base: tuple[int, ...] = ()
) -> Tensor:
    """The sum of the `flow_matching_loss` of F + 1 experts; each term depends on the weights of one expert only.

    Args:
        experts: as in `MarginalExperts`.
        batch: whole conditions (B, F), of which the first expert sees no factor and the k-th only factor k.
        generator: draws each expert's noise and times in turn.
        base: if there is a base, each expert learns only from the rows of its own source.
    """
    experts_regressed(batch.condition, base)
    path, x1 = LinearPath(), batch.x1
    members = scores.composition(batch.condition, base, [1.0] * batch.condition.shape[1])
    drawn = [(torch.randn(x1.shape, generator=generator, device=x1.device), logit_normal(len(x1), generator)) for _ in members]
    velocities = experts(
        [point(path, x0, x1, t) for x0, t in drawn], [t for _, t in drawn], [member.condition for member in members]
    )
    total = x1.new_zeros(())
    for k, (velocity, (x0, t)) in enumerate(zip(velocities, drawn, strict=True)):
        error = (velocity.float() - target_velocity(path, x0, x1, t)).square()
        if base:
            own = source_rows(batch.condition, base, k)
            total = total + (error.flatten(1).mean(1) * own).sum() / own.sum().clamp(min=1)
        else:
            total = total + error.mean()
    return total


def source_rows(condition: Tensor, base: tuple[int, ...], member: int) -> Tensor:
    """Which rows of (B, F) belong to the base (member 0), or to the perturbation of only factor `member` - 1: bool (B,)."""
    moved = condition != condition.new_tensor(base)  # (B, F)
    if member == 0:
        return ~moved.any(1)
    return moved[:, member - 1] & (moved.sum(1) == 1)
