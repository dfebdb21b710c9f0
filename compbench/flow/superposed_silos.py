"""OR over silos in every part of a composition: the experts' own densities along a sample's path give their weights.

    S = sum_k w_k sum_a kappa_ak s_a(x_t, c_k),    kappa_.k = softmax(T log p_a(x_t | c_k) + l_ak)

The log densities are tracked along the path as in `superposition`, for any drift of the sample, without the divergence of the few
steps whose noise is reduced or absent.  If T = 1 and l is the log share of the data under c_k, the inner sum is the score of the
silos' mixture (SuperDiff, Skreta et al. 2024, OR).

If entries are given, S is conditioned on them as in `smc.given`; each expert's density is still tracked by its own score, also
along the movement that puts these entries back on their path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor, nn

from compbench.api.factors import NULL
from compbench.flow.path import LinearPath, velocity_to_score
from compbench.flow.smc import Coefficient, Composed, ComposedScore
from compbench.flow.superposition import either, normal_noise, superposed_step
from compbench.flow.transfer import numbers

if TYPE_CHECKING:
    from compbench.api.factors import Weighted
    from compbench.flow.experts import Experts

ExpertScores = Callable[[Tensor, float], Tensor]
"""(x (N, *D), t) -> s_a(x, c_k), (n, K, N, *D)."""


class SiloPrior(nn.Module):
    """l_a(c): the log of a silo's share of all data; minus infinity if the silo has not seen every value in c.

    Args:
        sizes: examples of each silo, (n,).
        knows: which silo has seen which value of which factor, bool (n, F, largest size).
    """

    def __init__(self, sizes: Tensor, knows: Tensor) -> None:
        super().__init__()
        self.shares: Tensor
        self.knows: Tensor
        self.register_buffer("shares", (sizes.double() / sizes.sum()).log().float())
        self.register_buffer("knows", knows)

    def forward(self, conditions: Tensor) -> Tensor:
        """(K, B, F) -> (n, K, B); if no silo has seen every value of a condition, all silos answer for it."""
        factors = torch.arange(conditions.shape[-1], device=conditions.device)
        able = (self.knows[:, factors, conditions.clamp(min=0)] | (conditions == NULL)).all(-1)  # (n, K, B)
        able = able | ~able.any(0)
        return torch.where(able, self.shares[:, None, None], -torch.inf)


def expert_scores(experts: Experts, members: Sequence[Weighted]) -> ExpertScores:
    """Scores of all experts, on the linear path, for every condition of a composition."""
    path, conditions = LinearPath(), torch.stack([member.condition for member in members])  # (K, B, F)

    def scores(x: Tensor, t: float) -> Tensor:
        times = x.new_full((len(x),), t)
        velocities = experts.everywhere(x, times, conditions).float()  # (n, K, B, *D)
        return torch.stack([torch.stack([velocity_to_score(path, one, x, times) for one in own]) for own in velocities])

    return scores


def follow_either(
    scores: ExpertScores,
    weights: Sequence[float],
    log_prior: Tensor,
    table: list[Coefficient],
    x: Tensor,
    generator: Generator,
    *,
    temperature: float,
    keep: Callable[[Tensor, int], Tensor],
    led: Callable[[ComposedScore], ComposedScore] | None = None,
) -> Tensor:
    """Take Euler-Maruyama steps along S, the last one without noise: samples (N, *D).

    Args:
        scores: scores of all experts.
        weights: w_k.
        log_prior: l_ak of each point, (n, K, N).
        table: the schedule at the ends of the steps.
        x: noise, (N, *D).
        generator: on x's device.
        temperature: T.
        keep: (points, number of the step) -> points with the given entries restored, if there are any.
        led: S -> S conditioned on these entries, both for one particle per request (N, 1, *D); None without given entries.
    """
    num_steps, own = len(table) - 1, numbers(tuple(weights), x.device, torch.float64)[:, None]  # (K, 1)
    densities = torch.zeros(log_prior.shape, dtype=torch.float64, device=x.device)
    for number in range(num_steps):
        kappa = (own * either(densities, log_prior, temperature)).to(x.dtype).flatten(0, 1)  # (n K, N)
        found = _found(scores, kappa, x, table[number].time, led)
        noise = normal_noise(x, generator) if number + 1 < num_steps else None
        x, gained = superposed_step(x, found.scores, found.shares, table[number], 1 / num_steps, noise)
        kept = keep(x, number)
        gained += (found.scores * (kept - x)).flatten(2).sum(-1)  # this movement changes the densities too
        x = kept
        if number:  # at the first left end x is pure noise, and f would only amplify the experts' errors
            densities = densities + gained[: len(kappa)].double().view_as(densities)
    return x


class _Found(NamedTuple):
    """Scores (C, N, *D) and shares (C, N) of a step: those of all experts, and last the change of S by given entries."""

    scores: Tensor
    shares: Tensor


def _found(
    scores: ExpertScores, kappa: Tensor, x: Tensor, t: float, led: Callable[[ComposedScore], ComposedScore] | None
) -> _Found:
    """The experts' scores at x with their shares kappa (n K, N); with `led`, one more member: S given entries minus S."""
    if led is None:
        return _Found(scores(x, t).flatten(0, 1), kappa)
    of_experts: list[Tensor] = []

    def composed(particles: Tensor, t: float) -> Composed:
        own = scores(particles[:, 0], t).flatten(0, 1)
        of_experts.append(own.detach())
        total = torch.einsum("cn,cn...->n...", kappa, own)[:, None]
        return Composed(total, total.new_zeros(total.shape[:2]))

    towards = led(composed)(x[:, None], t).score[:, 0]
    [own] = of_experts
    lead = towards - torch.einsum("cn,cn...->n...", kappa, own)
    return _Found(torch.cat([own, lead[None]]), torch.cat([kappa, torch.ones_like(kappa[:1])]))
