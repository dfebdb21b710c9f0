"""Composed scores for samplers that need more than their sum: S = sum_a w_a s_a and its gap |S|^2 - sum_a w_a |s_a|^2.

From noise networks of a few sources, from velocity networks on the linear path, and from a task's oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from compbench.factors import NULL, Weighted
from compbench.flow.compose import around_null, stacked
from compbench.flow.noise import NoiseNet
from compbench.flow.path import GaussianPath, LinearPath, velocity_to_score
from compbench.flow.smc import Composed, ComposedScore
from compbench.flow.transfer import numbers


class Oracle(Protocol):
    """A task's analytic truth."""

    def composed(
        self, members: Sequence[tuple[float, tuple[int, ...]]]
    ) -> Callable[[Tensor, float, float], tuple[Tensor, Tensor]]:
        """Of (weight, combination) members: (x (N, D), alpha, sigma) -> composed score (N, D) and gap (N,).

        Raises:
            CompbenchError: the composition is not integrable.
        """
        ...


def around_base(condition: Tensor, base: Sequence[int], weights: Sequence[float]) -> list[Weighted]:
    """prod_k (p(x | base with c_k) / p(x | base))^w_k p(x | base): perturbations of single factors around the base.

    Catastrophic Compositional Generation, equation 7, for w_k = 1.  A factor at its base value, or left open, adds nothing.

    Args:
        condition: (B, F).
        base: the base combination.
        weights: w_k of each perturbation.

    Returns:
        (1 - sum_k w_k, base), then (w_k, base with factor k as asked).
    """
    still = numbers(tuple(base), condition.device, torch.long).expand_as(condition)
    members = [Weighted(1 - sum(weights), still)]
    for k, weight in enumerate(weights):
        moved = still.clone()
        moved[:, k] = torch.where(condition[:, k] == NULL, still[:, k], condition[:, k])
        members.append(Weighted(weight, moved))
    return members


def composition(condition: Tensor, base: Sequence[int], weights: Sequence[float]) -> list[Weighted]:
    """Around the base where the task has one, around NULL otherwise."""
    return around_base(condition, base, weights) if base else around_null(condition, weights)


def like_conditions(condition: Tensor) -> list[Tensor]:
    """Rows of equal conditions, a LongTensor of positions each: samplers of few sources take them one group at a time."""
    _, group = condition.unique(dim=0, return_inverse=True)
    return [(group == index).nonzero()[:, 0] for index in range(int(group.max()) + 1)]


def of_members(members: Callable[[Tensor, float], Tensor], weights: Sequence[float]) -> ComposedScore:
    """S and gap from the members' scores: (x (N, *D), t) -> (C, N, *D)."""

    def composed(x: Tensor, t: float) -> Composed:
        scores = members(x.flatten(0, 1), t)  # (C, B K, *D)
        w = numbers(tuple(weights), scores.device, scores.dtype)
        total = torch.tensordot(w, scores, dims=1)  # (B K, *D)
        squares = scores.flatten(2).square().sum(-1)  # (C, B K)
        gap = total.flatten(1).square().sum(-1) - w @ squares
        return Composed(total.view_as(x), gap.view(x.shape[:2]))

    return composed


def of_noise_net(net: NoiseNet, path: GaussianPath, members: Sequence[Weighted]) -> ComposedScore:
    """Of a noise network, for requests that share their conditions: s_a = -eps_a / sigma."""
    sources = [net.position(tuple(member.condition[0].tolist())) for member in members]

    def scores(x: Tensor, t: float) -> Tensor:
        sigma = float(path.at(torch.tensor(t, dtype=torch.float64)).sigma)
        return net.at_sources(x.flatten(1), t, sources).view(len(sources), *x.shape) / -sigma

    return of_members(scores, [member.weight for member in members])


def of_velocity_net(net: Callable[..., Tensor], members: Sequence[Weighted]) -> ComposedScore:
    """Of a velocity network on the linear path; each request has conditions of its own, its particles share them."""
    path = LinearPath()
    conditions = torch.stack([member.condition for member in members])  # (C, B, F)

    def scores(x: Tensor, t: float) -> Tensor:
        times = x.new_full((len(x),), t)
        repeated = conditions.repeat_interleave(len(x) // conditions.shape[1], dim=1)  # (C, B K, F)
        velocities = stacked(net, x, times, repeated)
        return torch.stack([velocity_to_score(path, velocity.float(), x, times) for velocity in velocities])

    return of_members(scores, [member.weight for member in members])


def of_oracle(oracle: Oracle, path: GaussianPath, members: Sequence[Weighted]) -> ComposedScore:
    """Of a task's analytic scores, for requests that share their conditions."""
    truth = oracle.composed([(member.weight, tuple(member.condition[0].tolist())) for member in members])

    def composed(x: Tensor, t: float) -> Composed:
        c = path.at(torch.tensor(t, dtype=torch.float64))
        score, gap = truth(x.flatten(0, 1).flatten(1), float(c.alpha), float(c.sigma))
        return Composed(score.reshape(x.shape), gap.view(x.shape[:2]))

    return composed
