"""Compositions prod_a p_a^w_a through their members' scores s_a, all in one batched forward; S = sum_a w_a s_a.

The scores come from noise networks of a few sources, from velocity networks on the linear path, or from a task's oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from compbench.api.factors import NULL, Weighted
from compbench.flow.compose import around_null, stacked
from compbench.flow.noise import NoiseNet
from compbench.flow.path import GaussianPath, LinearPath, velocity_to_score
from compbench.flow.smc import Composed, ComposedScore
from compbench.flow.transfer import numbers
from compbench.system.devices import on_gpu

MemberValues = Callable[[Tensor, float], Tensor]
"""(x (N, *D), t) -> a value, or a vector, of each member at each point: (C, N) or (C, N, *D)."""


class Oracle(Protocol):
    """A task's analytic truth."""

    def composed(
        self, members: Sequence[tuple[float, tuple[int, ...]]]
    ) -> Callable[[Tensor, float, float], tuple[Tensor, Tensor]]:
        """For (weight, combination) members: (x (N, D), alpha, sigma) -> composed score (N, D) and gap (N,).

        Raises:
            CompbenchError: the composition is not integrable.
        """
        ...

    def members(self, combinations: Sequence[tuple[int, ...]]) -> Callable[[Tensor, float, float], Tensor]:
        """For C combinations: (x (N, D), alpha, sigma) -> scores (C, N, D)."""
        ...

    def log_densities(self, combinations: Sequence[tuple[int, ...]]) -> Callable[[Tensor, float, float], Tensor]:
        """For C combinations: (x (N, D), alpha, sigma) -> log densities, float64 (C, N)."""
        ...

    def divergences(self, combinations: Sequence[tuple[int, ...]]) -> Callable[[Tensor, float, float], Tensor]:
        """For C combinations: (x (N, D), alpha, sigma) -> divergences of the scores, (C, N)."""
        ...


class Members(NamedTuple):
    """A composition as functions of its C members at N = B K points: B requests, each with K particles side by side.

    Attributes:
        weights: w_a.
        scores: (x (N, *D), t) -> s_a, (C, N, *D).
        composed: S and its gap; from `scores`, or by a faster function.
        log_densities: (x (N, *D), t) -> log p_a, float64 (C, N); None if only scores are known.
        divergences: (x (N, *D), t) -> div s_a, (C, N); None if they must be estimated.
    """

    weights: tuple[float, ...]
    scores: MemberValues
    composed: ComposedScore
    log_densities: MemberValues | None = None
    divergences: MemberValues | None = None

    @classmethod
    def of(cls, scores: MemberValues, weights: Sequence[float]) -> Members:
        """A composition of which only the scores are known."""
        return cls(tuple(weights), scores, of_members(scores, weights))


class Pilots(NamedTuple):
    """A composition for a sampler's pilot points, which belong to no particular request.

    Attributes:
        members: composition of `rows` requests.
        rows: number of requests; 1 if all requests are equal, so that the pilots are particles of one row.
    """

    members: Members
    rows: int


def around_base(condition: Tensor, base: Sequence[int], weights: Sequence[float]) -> list[Weighted]:
    """prod_k (p(x | base with c_k) / p(x | base))^w_k p(x | base): perturbations of single factors around the base.

    Catastrophic Compositional Generation, equation 7, for w_k = 1.  A factor at its base value, or left open, adds nothing.

    Args:
        condition: (B, F).
        base: the base combination.
        weights: w_k of each perturbation.

    Returns:
        (1 - sum_k w_k, base), then (w_k, base with factor k as requested).
    """
    still = numbers(tuple(base), condition.device, torch.long).expand_as(condition)
    members = [Weighted(1 - sum(weights), still)]
    for k, weight in enumerate(weights):
        moved = still.clone()
        moved[:, k] = torch.where(condition[:, k] == NULL, still[:, k], condition[:, k])
        members.append(Weighted(weight, moved))
    return members


def composition(condition: Tensor, base: Sequence[int], weights: Sequence[float]) -> list[Weighted]:
    """The composition around the base if the task has one, otherwise around NULL."""
    return around_base(condition, base, weights) if base else around_null(condition, weights)


def like_conditions(condition: Tensor) -> list[Tensor]:
    """Rows grouped by equal conditions, a LongTensor of positions for each group, for samplers of few sources."""
    _, group = condition.unique(dim=0, return_inverse=True)
    return [(group == index).nonzero()[:, 0] for index in range(int(group.max()) + 1)]


def of_members(members: MemberValues, weights: Sequence[float]) -> ComposedScore:
    """S and its gap |S|^2 - sum_a w_a |s_a|^2 from the members' scores."""

    def composed(x: Tensor, t: float) -> Composed:
        total, gap = total_and_gap(members(x.flatten(0, 1), t), weights)
        return Composed(total.view_as(x), gap.view(x.shape[:2]))

    return composed


def total_and_gap(scores: Tensor, weights: Sequence[float]) -> Composed:
    """S, (N, *D), and its gap, (N,), from scores (C, N, *D): (sum_a w_a - 1) |S|^2 - sum_a w_a |s_a - S|^2.

    In this form around S, the gap has no cancellation error near the data, where scores are large and differ little.
    """
    w = numbers(tuple(weights), scores.device, scores.dtype)
    total = torch.tensordot(w, scores, dims=1)  # (N, *D)
    apart = (scores - total).flatten(2).square().sum(-1)  # (C, N)
    excess = sum(weights) - 1
    return Composed(total, excess * total.flatten(1).square().sum(-1) - w @ apart)


def merged(members: Sequence[Weighted]) -> list[Weighted]:
    """Merge members with equal conditions, for requests that share one condition; members of weight 0 are left out."""
    weights: dict[tuple[int, ...], float] = {}
    for member in members:
        cell = tuple(member.condition[0].tolist())
        weights[cell] = weights.get(cell, 0.0) + member.weight
    first = members[0].condition
    return [Weighted(weight, first.new_tensor(cell).expand_as(first)) for cell, weight in weights.items() if weight]


def of_noise_net(net: NoiseNet, path: GaussianPath, members: Sequence[Weighted]) -> Members:
    """Members of a noise network, for requests that share their conditions: s_a = -eps_a / sigma."""
    sources = [net.position(tuple(member.condition[0].tolist())) for member in members]

    def scores(x: Tensor, t: float) -> Tensor:
        if on_gpu(x.device):
            return net.at_sources(x.flatten(1), t, sources).view(len(sources), *x.shape) / -sigma_at(path, t)
        sigma = float(path.at(torch.tensor(t, dtype=torch.float64)).sigma)
        return net.at_sources(x.flatten(1), t, sources).view(len(sources), *x.shape) / -sigma

    return Members.of(scores, [member.weight for member in members])


def sigma_at(path: GaussianPath, t: float) -> float:
    """sigma_t in float64, cached for the times used so far, because a GPU's kernels would wait for it at each step."""
    return _sigma(type(path), tuple(sorted(vars(path).items())), t)


@lru_cache(maxsize=4096)
def _sigma(kind: type[GaussianPath], arguments: tuple[tuple[str, float], ...], t: float) -> float:
    return float(kind(**dict(arguments)).at(torch.tensor(t, dtype=torch.float64)).sigma)


def of_velocity_net(net: Callable[..., Tensor], members: Sequence[Weighted]) -> Members:
    """Members of a velocity network on the linear path; each request has its own conditions, which its particles share."""
    path = LinearPath()
    conditions = torch.stack([member.condition for member in members])  # (C, B, F)

    def scores(x: Tensor, t: float) -> Tensor:
        times = x.new_full((len(x),), t)
        repeated = conditions.repeat_interleave(len(x) // conditions.shape[1], dim=1)  # (C, B K, F)
        velocities = stacked(net, x, times, repeated)
        return torch.stack([velocity_to_score(path, velocity.float(), x, times) for velocity in velocities])

    return Members.of(scores, [member.weight for member in members])


def of_oracle(oracle: Oracle, path: GaussianPath, members: Sequence[Weighted]) -> Members:
    """Members with a task's analytic scores, for requests that share conditions; densities and divergences are exact."""
    weights = tuple(member.weight for member in members)
    cells = [tuple(member.condition[0].tolist()) for member in members]
    truth = oracle.composed(list(zip(weights, cells, strict=True)))

    def at(t: float) -> tuple[float, float]:
        c = path.at(torch.tensor(t, dtype=torch.float64))
        return float(c.alpha), float(c.sigma)

    def composed(x: Tensor, t: float) -> Composed:
        score, gap = truth(x.flatten(0, 1).flatten(1), *at(t))
        return Composed(score.reshape(x.shape), gap.view(x.shape[:2]))

    each, densities, bends = oracle.members(cells), oracle.log_densities(cells), oracle.divergences(cells)
    return Members(
        weights,
        lambda x, t: each(x.flatten(1), *at(t)).view(len(cells), *x.shape),
        composed,
        lambda x, t: densities(x.flatten(1), *at(t)),
        lambda x, t: bends(x.flatten(1), *at(t)),
    )
