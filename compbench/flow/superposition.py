"""Superposed models: log densities are tracked along a sample's path, and mixing weights follow from them.

    dlog p_a = s_a . dx - (f d + f x . s_a + g^2 / 2 |s_a|^2) dt        along dx = (f x + g^2 sum_a kappa_a s_a) dt + g dW

holds for each member a and any drift of x, without a divergence, if the noise is g dW (Ito; theorem 1 of Skreta et al. 2024,
SuperDiff, arXiv 2412.17762).  With noise e dW it has the further term (e^2 - g^2) / 2 div s_a dt, which is left out in the few
steps with e < g: where a path's diffusion is infinite (`smc.LARGEST_KICK`), and in a last step without noise.

OR: kappa = softmax(T log p_a + l_a), a mixture's score.  AND: S = s_0 + g (sum_a kappa_a s_a - s_0), s_0 the unconditional score,
with kappa that keeps all log p_a equal; samples then lie on a surface and do not follow the product.

If entries are given, S is conditioned on them as in `smc.given`, with kappa held fixed; each log p_a is still tracked by its own
score.
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


class Asked(NamedTuple):
    """The request of AND at each point.

    Attributes:
        shares: kappa if all members are equal, (C, N); 0 for a member that is inactive at a point, and the others sum to 1.
        guidance: g, (N,); 1 leaves the unconditional score out.
    """

    shares: Tensor
    guidance: Tensor


def all_equal(
    scores: Tensor, log_densities: Tensor, asked: Asked, at: Coefficient, dt: float, noise: Tensor | None, ridge: float
) -> Tensor:
    """Coefficients of AND, S = s_0 + g (sum_a kappa_a s_a - s_0), that make log p_a of all active members equal after the step.

    D_a is log p_a after the step along S; it is linear in kappa.  kappa sums to 1 and minimises

        sum_a (D_a - mean D)^2 + ridge dt^2 |kappa - shares|^2

    so if scores agree, kappa equals the shares.  The effect of kappa on D shrinks with dt, and so does the ridge: the share of a
    gap that one step leaves does not depend on the number of steps, and the gap itself shrinks with more steps.

    Args:
        scores: s_0 and then s_a, (1 + C, N, *D).
        log_densities: log p_0 and log p_a so far, (1 + C, N).
        asked: shares (C, N) and g (N,).
        at: the schedule.
        dt: the step.
        noise: standard normal noise of the step, (N, *D); None if it follows the probability flow.
        ridge: in squared nats over squared time.

    Returns:
        1 - g, and then g kappa_a, (1 + C, N); 0 where a member is inactive.
    """
    kick = 0.0 if noise is None else min(at.squared * dt, LARGEST_KICK)
    origin, flat = scores.flatten(2).double().transpose(0, 1).split([1, len(scores) - 1], dim=1)  # (N, 1, d), (N, C, d)
    g, shares = asked.guidance.double(), asked.shares.double().T  # (N,), (N, C)
    on = (shares > 0).double()
    centre = torch.diag_embed(on) - on[:, :, None] * (on / on.sum(1, keepdim=True))[:, None]  # subtracts the active mean
    half = (at.squared * dt + kick) / 2
    gram = half * g[:, None, None] * flat @ flat.mT  # (N, C, C)
    still = half * (1 - g)[:, None] * (flat @ origin.mT)[..., 0]  # (N, C)
    own = -at.squared * dt / 2 * flat.square().sum(-1)
    if noise is not None:
        own = own + kick**0.5 * (flat @ noise.flatten(1).double()[..., None])[..., 0]
    off = gram @ shares[..., None] + (still + own + log_densities[1:].double().T)[..., None]  # (N, C, 1): D_a at the shares
    lever = centre @ gram @ centre
    normal = lever.mT @ lever
    eye = torch.eye(flat.shape[1], dtype=torch.float64, device=scores.device)
    whole = normal.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None] * (eye - centre)  # keeps the sum of kappa
    found = torch.linalg.solve_ex(normal + whole + ridge * dt**2 * eye, -lever.mT @ (centre @ off)).result  # no host sync
    kappa = shares + (centre @ found)[..., 0]  # (N, C)
    return torch.cat([(1 - g)[:, None], g[:, None] * kappa], dim=1).T.to(scores.dtype)


class Superposed(NamedTuple):
    """Points after a step, (N, *D), and the increment of each log p_a, (C, N), up to a common term."""

    x: Tensor
    gained: Tensor


def superposed_step(x: Tensor, scores: Tensor, kappa: Tensor, at: Coefficient, dt: float, noise: Tensor | None) -> Superposed:
    """An Euler-Maruyama step along sum_a kappa_a s_a, and the increment of each log p_a.

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
    """The terms of an AND step: scores (1 + C, N, *D) and their coefficients; the change of S by given entries comes last."""

    scores: Tensor
    kappa: Tensor


def mixed(
    members: MemberValues,
    mixing: Callable[[Tensor], Tensor],
    x: Tensor,
    t: float,
    led: Callable[[ComposedScore], ComposedScore] | None,
) -> Mixed:
    """The scores at x and their coefficients; with `led`, one more member of weight 1: S given entries minus S.

    Args:
        members: (x (N, *D), t) -> scores (1 + C, N, *D), the unconditional one first.
        mixing: scores -> coefficients (1 + C, N).
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
    asked: Asked,
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
        members: (x (N, *D), t) -> scores (1 + C, N, *D): the unconditional one, then those of the requested factors.
        asked: shares (C, N) and g (N,).
        table: the schedule at the ends of the steps.
        x: noise.
        generator: on x's device.
        ridge: of `all_equal`.
        last_noise: whether the last step adds noise.
        keep: (points, number of the step) -> points with the given entries restored, if there are any.
        led: S -> S conditioned on these entries, both for one particle per point (N, 1, *D); None without given entries.
    """
    num_steps = len(table) - 1
    count, points = asked.shares.shape
    dt, densities = 1 / num_steps, torch.zeros(1 + count, points, dtype=torch.float64, device=x.device)
    for number in range(num_steps):
        last = number + 1 == num_steps and not last_noise
        at, noise = table[number], None if last else normal_noise(x, generator)
        mixing = partial(all_equal, log_densities=densities, asked=asked, at=at, dt=dt, noise=noise, ridge=ridge)
        found = mixed(members, mixing, x, at.time, led)
        x, gained = superposed_step(x, found.scores, found.kappa, at, dt, noise)
        kept = keep(x, number)
        put_back = (found.scores * (kept - x)).flatten(2).sum(-1)  # this movement changes the densities too
        x, densities = kept, densities + (gained + put_back)[: len(densities)].double()
    return x
