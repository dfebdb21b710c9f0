"""Compositions: prod_i p(x | c_i)^w_i as a weighted sum of velocities, all conditions in one batched forward.

    v(x, t) = sum_i w_i v(x, t | c_i)

Guidance, slice-CFG and composition around NULL are all lists of (weight, condition).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from compbench.api.factors import NULL, Weighted
from compbench.flow.memory import in_parts, rows_at_once

if TYPE_CHECKING:
    from compbench.api.interfaces import Problem

ConditionalVelocity = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x (B, *D), t (B,), condition (B, F)) -> velocity (B, *D)."""

GuidanceWeight = Annotated[float, Field(ge=0, le=20)] | Literal["task"]
"""Type of a method's setting: "task" means the task's weight for all composed rows; a number replaces it."""


class Guidance(NamedTuple):
    """The guidance weight of a task's composed samples, which is the same for all methods that compose.

    Attributes:
        weight: w of the holdout's factors (of all factors if nothing is held out); w of the others is 1.
        factors: which factors have this weight, (F,).
    """

    weight: float
    factors: tuple[bool, ...]

    @classmethod
    def of(cls, problem: Problem) -> Guidance:
        """The guidance of a task."""
        return cls(
            problem.guidance_weight, tuple(not problem.composed or k in problem.composed for k in range(len(problem.space)))
        )

    def weights(
        self, own: GuidanceWeight = "task", *, other: float = 1.0, notes: dict[str, object] | None = None
    ) -> tuple[float, ...]:
        """w_k of every factor, (F,).

        Args:
            own: a method's setting; a number replaces the task's weight.
            other: w of the factors that are not in the holdout.
            notes: the context's notes; the weight is added to them, so that the record has it.
        """
        weight = self.weight if own == "task" else own
        if notes is not None:
            notes["guidance_weight"] = weight
        return tuple(weight if held else other for held in self.factors)


def guide(v_null: Tensor, v_cond: Tensor, guidance_weight: float) -> Tensor:
    """v_null + w (v_cond - v_null): w = 0 ignores the condition, 1 is plain conditional.  Ho & Salimans 2022.

    Args:
        v_null, v_cond: velocities without and with the condition, (B, *D).
        guidance_weight: w.

    Returns:
        guided velocity, (B, *D).
    """
    return torch.lerp(v_null, v_cond, guidance_weight)  # exact at 0 and at 1


def compose(velocity: ConditionalVelocity, x: Tensor, t: Tensor, composition: Sequence[Weighted]) -> Tensor:
    """sum_i w_i v(x, t | c_i), evaluated as one batch of K B rows.

    If the velocity has a method `stacked(x, t, conditions (K, B, F)) -> (K, B, *D)`, like `VelocityNet`, that method is called;
    it may share work between the conditions.

    Args:
        velocity: conditional velocity.
        x: points, (B, *D).
        t: times, (B,).
        composition: K weights and conditions (B, F).

    Returns:
        composed velocity, (B, *D).
    """
    conditions = torch.stack([member.condition for member in composition])  # (K, B, F)
    velocities = stacked(velocity, x, t, conditions)  # (K, B, *D)
    total = composition[0].weight * velocities[0]
    for member, member_velocity in zip(composition[1:], velocities[1:], strict=True):
        total = total.add(member_velocity, alpha=member.weight)
    return total


def stacked(velocity: ConditionalVelocity, x: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
    """v(x, t | c_k) for K conditions in one forward pass, or in as few as a GPU's memory allows.

    Args:
        velocity: conditional velocity.
        x: points, (B, *D).
        t: times, (B,).
        conditions: (K, B, F).

    Returns:
        velocities, (K, B, *D).
    """

    def together(x: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        if hasattr(velocity, "stacked"):
            return velocity.stacked(x, t, conditions)
        count = len(conditions)
        rows = velocity(x.repeat(count, *[1] * (x.ndim - 1)), t.repeat(count), conditions.flatten(0, 1))  # (K B, *D)
        return rows.unflatten(0, (count, len(x)))

    return in_parts(together, rows_at_once(velocity, len(conditions)), x, t, conditions, dim=1)


def around_null(condition: Tensor, weights: Sequence[float]) -> list[Weighted]:
    """v(NULL) + sum_k w_k (v(c_k) - v(NULL)), one factor active in each c_k, as a composition of F + 1 members.

    Slice-CFG (factored velocity fields, section 5); composition of marginals (DCFM, equation 5).

    Args:
        condition: (B, F); a factor that is NULL in a row adds nothing there.
        weights: w_k, one for each factor.

    Returns:
        (1 - sum_k w_k, all NULL), then (w_k, factor k alone).
    """
    everything_open = torch.full_like(condition, NULL)
    members = [Weighted(1 - sum(weights), everything_open)]
    for k, weight in enumerate(weights):
        alone = everything_open.clone()
        alone[:, k] = condition[:, k]
        members.append(Weighted(weight, alone))
    return members
