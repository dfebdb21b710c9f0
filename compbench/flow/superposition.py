"""Superposed models: densities that are followed along a sample's own path, and mixing weights that come from them.

    dlog p_a = s_a . dx - (f d + f x . s_a + g^2 / 2 |s_a|^2) dt        along dx = (f x + g^2 sum_a kappa_a s_a) dt + g dW

holds for each member a, whatever moves x, without a divergence (Ito; theorem 1 of Skreta et al. 2024, SuperDiff, arXiv
2412.17762).  OR: kappa = softmax(T log p_a + l_a), a mixture's score.  AND: kappa that keeps all log p_a equal, a surface and
not a product.

Where entries are given, sum_a kappa_a s_a leads the others towards them as `smc.given` says, with kappa held; whatever moves x,
each log p_a goes on to be followed by its own score.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from compbench.flow.scores import MemberValues
from compbench.flow.smc import LARGEST_KICK, Coefficient, Composed, ComposedScore


def either(log_densities: Tensor, log_prior: Tensor, temperature: float = 1.0) -> Tensor:
    """kappa of OR over the first axis: softmax(T log p_a + l_a); at T = 1 with l the log shares, the mixture's own."""
    return (temperature * log_densities + log_prior).softmax(0)


def all_equal(
    scores: Tensor, log_densities: Tensor, active: Tensor, at: Coefficient, dt: float, noise: Tensor, ridge: float
) -> Tensor:
    """kappa of AND: sum_a kappa_a = 1 and the step to come leaves all active log p_a alike, as nearly as `ridge` lets it.

    With D_a = log p_a after the step, linear in kappa, it has least sum_a (D_a - mean D)^2 + ridge |kappa - 1 / C|^2: where
    scores agree any kappa does, and even shares are taken.

    Args:
        scores: s_a, (C, N, *D).
        log_densities: log p_a so far, (C, N).
        active: which members count for each point, bool (C, N), one at least.
        at: the schedule.
        dt: the step.
        noise: standard normal noise of the step, (N, *D).
        ridge: in squared nats.

    Returns:
        (C, N), 0 where not active.
    """
    flat, kick = scores.flatten(2).double().transpose(0, 1), min(at.squared * dt, LARGEST_KICK)  # (N, C, d)
    on = active.double().T  # (N, C)
    even = on / on.sum(1, keepdim=True)
    centre = torch.diag_embed(on) - on[:, :, None] * even[:, None]  # (N, C, C): takes the active mean away
    gram = (at.squared * dt + kick) / 2 * flat @ flat.mT
    own = kick**0.5 * (flat @ noise.flatten(1).double()[..., None])[..., 0] - at.squared * dt / 2 * flat.square().sum(-1)
    off = gram @ even[..., None] + (own + log_densities.double().T)[..., None]  # (N, C, 1): D_a at even shares
    lever = centre @ gram @ centre
    normal = lever.mT @ lever
    eye = torch.eye(len(scores), dtype=torch.float64, device=scores.device)
    found = torch.linalg.solve_ex(normal + ridge * eye, -lever.mT @ (centre @ off)).result  # waits for nothing
    return (even + (centre @ found)[..., 0]).T.to(scores.dtype)


class Superposed(NamedTuple):
    """Points after a step, (N, *D), and what it adds to each log p_a, (C, N), up to what all members share."""

    x: Tensor
    gained: Tensor


def superposed_step(x: Tensor, scores: Tensor, kappa: Tensor, at: Coefficient, dt: float, noise: Tensor | None) -> Superposed:
    """Euler-Maruyama's step of sum_a kappa_a s_a, and what it adds to each log p_a.

    Args:
        x: points, (N, *D).
        scores: s_a, (C, N, *D).
        kappa: (C, N).
        at: the schedule at the left end.
        dt: step.
        noise: standard normal, (N, *D); None follows the probability flow.
    """
    kick = 0.0 if noise is None else min(at.squared * dt, LARGEST_KICK)
    total = torch.einsum("cn,cn...->n...", kappa, scores)
    moved = x * (1 + at.drift * dt) + (at.squared * dt + kick) / 2 * total
    moved = moved if noise is None else moved + kick**0.5 * noise
    along = (scores * (moved - x * (1 + at.drift * dt))).flatten(2).sum(-1)
    return Superposed(moved, along - at.squared * dt / 2 * scores.square().flatten(2).sum(-1))


def normal_noise(x: Tensor, generator: Generator) -> Tensor:
    """Standard normal numbers like x, on its device."""
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)


class Mixed(NamedTuple):
    """What moves a step of AND: members' scores (C, N, *D) and kappa (C, N); what leads them comes after the last member."""

    scores: Tensor
    kappa: Tensor


def mixed(
    members: MemberValues,
    mixing: Callable[[Tensor], Tensor],
    x: Tensor,
    t: float,
    led: Callable[[ComposedScore], ComposedScore] | None,
) -> Mixed:
    """The members' scores at x and their kappa; with `led`, S given entries less S as one member more, of weight 1.

    Args:
        members: (x (N, *D), t) -> scores (C, N, *D).
        mixing: scores -> kappa (C, N).
        x: points, (N, *D).
        t: their time.
        led: as in `follow_all`.
    """
    if led is None:
        scores = members(x, t)
        return Mixed(scores, mixing(scores))
    seen: list[Mixed] = []

    def composed(particles: Tensor, t: float) -> Composed:
        scores = members(particles[:, 0], t)
        seen.append(Mixed(scores.detach(), mixing(scores.detach())))
        total = torch.einsum("cn,cn...->n...", seen[-1].kappa, scores)[:, None]
        return Composed(total, total.new_zeros(total.shape[:2]))

    towards = led(composed)(x[:, None], t).score[:, 0]
    [(scores, kappa)] = seen
    lead = towards - torch.einsum("cn,cn...->n...", kappa, scores)
    return Mixed(torch.cat([scores, lead[None]]), torch.cat([kappa, torch.ones_like(kappa[:1])]))


def follow_all(
    members: MemberValues,
    active: Tensor,
    table: list[Coefficient],
    x: Tensor,
    generator: Generator,
    *,
    ridge: float,
    last_noise: bool,
    keep: Callable[[Tensor, int], Tensor],
    led: Callable[[ComposedScore], ComposedScore] | None = None,
) -> Tensor:
    """AND along all steps of a schedule: samples (N, *D).

    Args:
        members: (x (N, *D), t) -> scores (C, N, *D).
        active: which members count, bool (C, N).
        table: the schedule at the ends of the steps.
        x: noise.
        generator: on x's device.
        ridge: of `all_equal`.
        last_noise: whether the last step adds noise.
        keep: (points, number of the step) -> points, where entries are given.
        led: S -> S given these entries, both of one particle a point (N, 1, *D); None where none are given.
    """
    num_steps = len(table) - 1
    dt, densities = 1 / num_steps, torch.zeros(active.shape, dtype=torch.float64, device=x.device)
    for number in range(num_steps):
        at, noise = table[number], normal_noise(x, generator)
        mixing = partial(all_equal, log_densities=densities, active=active, at=at, dt=dt, noise=noise, ridge=ridge)
        found = mixed(members, mixing, x, at.time, led)
        last = number + 1 == num_steps and not last_noise
        x, gained = superposed_step(x, found.scores, found.kappa, at, dt, None if last else noise)
        kept = keep(x, number)
        put_back = (found.scores * (kept - x)).flatten(2).sum(-1)  # moves the densities as any other step does
        x, densities = kept, densities + (gained + put_back)[: len(densities)].double()
    return x
