"""A control that keeps weights even: a drift b with few coefficients, chosen at each step to minimise the log-weights' variance.

    dx = (f x + g^2 S + b) dt + g dW,    dlog w = (G + div b + b . S) dt,    G = g^2 / 2 (|S|^2 - sum_a w_a |s_a|^2)

Any b is allowed, because the term div b + b . S corrects for it.  With b = sum_i theta_i b_i and h_i = div b_i + b_i . S the
coefficients of least variance solve Cov(h, h) theta = -Cov(h, G).  The b_i are the members' scores g^2 s_a and the drift x.
DriftLite (Ren et al. 2025, arXiv 2509.21655), variance-controlling guidance; the paper tilts one model, here p is a product.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from compbench.flow.path import GaussianPath
from compbench.flow.scores import Members, total_and_gap
from compbench.flow.smc import ComposedScore, Swarm, move, schedule
from compbench.flow.swarms import Step, Stepped

SMALLEST = 1e-12
"""A constant added to variances before dividing by them."""


NUDGE = 1e-3
"""Length of a probe's step, in units of the data; the difference along the probe is the derivative in Hutchinson's estimate.

The scores need fp32: a network in bf16 rounds them to three digits, and the difference would be mostly rounding."""


POINTS_PER_COEFFICIENT = 20
"""Smallest number of independent points per coefficient, if the particles that are weighted determine them.

A fit to few points explains much of G by chance, so weights look even and correct little.  On gmm-id with exact scores, 4
coefficients and K = 4, sliced W2 is 1.2 if each swarm has its own control, 0.45, 0.21, 0.14 and 0.08 if 5, 10, 20 and 40 swarms
share one, and 0.07 between two samples of the target.  Without control it is 0.07, so that is the choice if there are few."""


class Bases(NamedTuple):
    """The basis of a control at N points of d numbers.

    Attributes:
        drifts: b_i, (n, N, *D).
        gains: h_i = div b_i + b_i . S, (n, N).
        gap: |S|^2 - sum_a w_a |s_a|^2, (N,).
        score: S, (N, *D).
    """

    drifts: Tensor
    gains: Tensor
    gap: Tensor
    score: Tensor


def bases(members: Members, x: Tensor, t: float, generator: Generator) -> Bases:
    """Members' scores and x itself as drifts, with exact divergences or Hutchinson's estimate with one probe per point.

    Args:
        members: the composition, from networks in fp32 if divergences are estimated.
        x: points, (N, *D).
        t: time.
        generator: draws the probes, on x's device.
    """
    if members.divergences is not None:
        scores, bends = members.scores(x, t), members.divergences(x, t)  # (C, N, *D), (C, N)
    else:
        probe = torch.randint(2, x.shape, generator=generator, device=x.device, dtype=x.dtype) * 2 - 1
        pairs = torch.stack([x, x + NUDGE * probe], 1).flatten(0, 1)  # (2 N, *D): particles of one request stay together
        scores, nudged = members.scores(pairs, t).unflatten(1, (len(x), 2)).unbind(2)  # (C, N, *D) each
        along = (nudged - scores) / NUDGE
        bends = (along * probe).flatten(2).sum(-1)
    total, gap = total_and_gap(scores, members.weights)
    drifts = torch.cat([scores, x[None]])
    divergences = torch.cat([bends, torch.full_like(bends[:1], x[0].numel())])
    return Bases(drifts, divergences + (drifts * total).flatten(2).sum(-1), gap, total)


def coefficients(gains: Tensor, rate: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """theta of least Var(G + sum_i theta_i h_i), over bases scaled to variance 1 with `ridge` on the diagonal.

    Args:
        gains: h_i, (R, n, P): R controls, each from P points.
        rate: G, (R, P).
        weights: normalised weights of the points, (R, P).
        ridge: relative to the bases' variance.

    Returns:
        (R, n), float64.
    """
    h, g, w = gains.double(), rate.double(), weights.double()[:, None]
    h = h - (w * h).sum(-1, keepdim=True)
    g = g - (w[:, 0] * g).sum(-1, keepdim=True)
    size = (w * h.square()).sum(-1, keepdim=True).add(SMALLEST).sqrt()  # (R, n, 1)
    unit = h / size
    gram = (w * unit) @ unit.mT + ridge * torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
    found = torch.linalg.solve_ex(gram, -(w * unit) @ g[..., None]).result  # without checks, so the host does not wait
    return (found / size)[..., 0]


def controlled_step(
    members: Members,
    composed: ComposedScore | None,
    path: GaussianPath,
    num_steps: int,
    generator: Generator,
    *,
    edge: float,
    num_pilots: int,
    ridge: float,
    last_noise: bool,
) -> Step:
    """An Euler-Maruyama step with the control at its left end.

    Args:
        members: the composition, whose weights sum to one.
        composed: S if it is not the members' sum (because given entries guide it); None if it is.
        path: path of the scores.
        num_steps: number of even steps from noise to data.
        generator: draws noise and probes, on the swarm's device.
        edge: times stay this far from 0 and 1.
        num_pilots: the last `num_pilots` swarms are pilots, which determine all coefficients; 0: all swarms determine them
            together if there are at least `least_swarms` of them, and otherwise there is no control.
        ridge: as in `coefficients`.
        last_noise: whether the last step adds noise.
    """
    table = schedule(path, num_steps, edge)
    dt = 1 / num_steps

    def step(swarm: Swarm, number: int) -> Stepped:
        at, (count, num_particles) = table[number], swarm.log_weights.shape
        found = bases(members, swarm.x.flatten(0, 1), at.time, generator)
        gains = found.gains.view(-1, count, num_particles).transpose(0, 1)  # (B, n, K)
        rate = found.gap.view(count, num_particles) * (at.squared / 2)
        theta = _theta(gains, rate, swarm.log_weights, num_pilots, ridge)  # (1, n)
        each = theta.to(swarm.x.dtype).expand(count, -1).repeat_interleave(num_particles, 0)  # (B K, n)
        control = torch.einsum("kn,nk...->k...", each, found.drifts).view_as(swarm.x)
        score = found.score.view_as(swarm.x) if composed is None else composed(swarm.x, at.time).score
        noise = generator if last_noise or number + 1 < num_steps else None
        x = move(swarm.x, score, at, dt, noise).add(control, alpha=dt)
        return Stepped(x, (rate + torch.einsum("bn,bnk->bk", theta.expand(count, -1), gains.double())) * dt)

    return step


def least_swarms(num_coefficients: int, num_particles: int) -> int:
    """Smallest B with B (K - 1) >= 20 n, as a centred swarm of K particles has K - 1 independent points; for K = 1 as for 2."""
    return -(-POINTS_PER_COEFFICIENT * num_coefficients // max(num_particles - 1, 1))


def _theta(gains: Tensor, rate: Tensor, log_weights: Tensor, num_pilots: int, ridge: float) -> Tensor:
    """Common coefficients, (1, n), from the pooled pilots, or without pilots from all swarms."""
    if not num_pilots:
        return _within_swarms(gains, rate, log_weights.softmax(-1), ridge)
    own, theirs = gains[-num_pilots:], rate[-num_pilots:]
    pooled = log_weights[-num_pilots:].softmax(-1).flatten()[None] / num_pilots
    return coefficients(own.transpose(0, 1).flatten(1)[None], theirs.flatten()[None], pooled, ridge)


def _within_swarms(gains: Tensor, rate: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """Coefficients of least mean variance within the swarms, (1, n); 0 if the swarms have too few particles.

    Each swarm counts equally and is centred by its own weights, as differences between swarms, whose requests may have different
    compositions, do not change the weights within one.

    Args:
        gains: h_i, (B, n, K).
        rate: G, (B, K).
        weights: normalised in each swarm, float64 (B, K).
        ridge: as in `coefficients`.
    """
    count, size, num_particles = gains.shape
    if num_particles == 1 or count < least_swarms(size, num_particles):
        return weights.new_zeros(1, size)
    h, g = gains.double(), rate.double()
    h = h - (weights[:, None] * h).sum(-1, keepdim=True)
    g = g - (weights * g).sum(-1, keepdim=True)
    return coefficients(h.transpose(0, 1).flatten(1)[None], g.flatten()[None], weights.flatten()[None] / count, ridge)
