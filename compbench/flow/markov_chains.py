"""Annealed Markov chains: at each noise level a chain that leaves the composition's density invariant.

    p_t(x) ~ prod_a p_a,t(x)^w_a,    S = grad log p_t = sum_a w_a s_a

    Langevin     x' = x + eta S(x) + sqrt(2 eta) xi
    Hamiltonian  v = gamma v + sqrt(1 - gamma^2) xi, then leapfrog steps of length sqrt(2 eta)
    adjusted     accept with min(1, p_t(x') k(x' -> x) / (p_t(x) k(x -> x'))), each chain independently

p_t is the product of the noised members, not the noised product, so following S alone does not sample the product.  Du et al.
2023 (Reduce, Reuse, Recycle), section 4.  log p_t(x') - log p_t(x) is exact if densities are known, else the line integral
of S (Sjoberg et al. 2023, arXiv 2307.14012, equation 9).  The host does not wait for the device before the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from compbench.flow.path import GaussianPath, per_sample
from compbench.flow.scores import Members, Pilots
from compbench.flow.smc import ComposedScore, given
from compbench.flow.solver import Known
from compbench.flow.swarms import Level, levels
from compbench.flow.transitions import log_density_of
from compbench.system.errors import CompbenchError

Kernel = Literal["ula", "uhmc", "mala", "hmc"]

NUM_PILOTS = 32
"""Smallest number of pilot points, which run ahead of the chains to find each level's scale."""

PointScore = Callable[[Tensor], Tensor]
"""J points of each chain, (N, J, *D), -> S there."""


class Settings(NamedTuple):
    """How chains are annealed.

    Attributes:
        kernel: Langevin or Hamiltonian moves, adjusted (mala, hmc) or not (ula, uhmc).
        num_levels: noise levels from t = 0 to 1, evenly spaced.
        num_inner: moves of a chain at each level.
        step_size: eta divided by the level's scale d / E|S|^2 (for a Gaussian, the harmonic mean of its variances), in two
            dimensions; in more dimensions adjusted kernels use a smaller ratio (`share_of_scale`).
        num_leapfrog: leapfrog steps of a Hamiltonian move; at step_size 0.5, 2 pi of them would return to the start.
        damping: gamma, the share of the momentum that a Hamiltonian move keeps.
        line_points: number of points of the line integral's trapezoids, including both ends.
        smallest_sigma: levels with less noise have no chain.
        edge: times stay this far from 0 and 1.
    """

    kernel: Kernel = "mala"
    num_levels: int = 20
    num_inner: int = 4
    step_size: float = 0.5
    num_leapfrog: int = 2
    damping: float = 0.5
    line_points: int = 2
    smallest_sigma: float = 0.0
    edge: float = 1e-5

    @property
    def adjusted(self) -> bool:
        return self.kernel in ("mala", "hmc")


class Target(NamedTuple):
    """The target of a chain.

    Attributes:
        score: S at points (N, J, *D).
        log_density: log p_t up to a constant, (N, *D) -> float64 (N,); None if only S is known.
        line_points: number of points of the line integral that replaces an unknown log density.
        free: which entries move, bool (N, *D); None for all.
        signs: +-1, (N, *D), multiplied with the noise of every move: the noise stays standard normal, and chains whose signs come
            from the same x0 are paired.
    """

    score: PointScore
    log_density: Callable[[Tensor], Tensor] | None = None
    line_points: int = 2
    free: Tensor | None = None
    signs: Tensor | None = None


class Chain(NamedTuple):
    """N chains: their positions, S there, and their momentum, all (N, *D); the share of accepted moves of each, (N,)."""

    x: Tensor
    score: Tensor
    momentum: Tensor
    accepted: Tensor


class Annealed(NamedTuple):
    """Samples (B, *D), and the share of accepted moves at each level that had a chain (empty for unadjusted kernels)."""

    x: Tensor
    acceptance: tuple[float, ...]


class LineIntegral(NamedTuple):
    """log p(end) - log p(start), float64 (N,), and S at the end, (N, *D)."""

    value: Tensor
    score: Tensor


def line_integral(score: PointScore, start: Tensor, end: Tensor, score_start: Tensor, num_points: int) -> LineIntegral:
    """int_0^1 S(start + u (end - start)) . (end - start) du by trapezoids, exact for linear S; all points in one batch.

    Args:
        score: S.
        start, end: ends of the lines, (N, *D).
        score_start: S at the start, which a chain knows.
        num_points: number of ends of the trapezoids, 2 or more.
    """
    along = end - start
    u = torch.arange(1, num_points, device=start.device, dtype=start.dtype) / (num_points - 1)
    points = start[:, None] + u.view(1, -1, *[1] * (start.ndim - 1)) * along[:, None]  # (N, J, *D)
    found = score(points)
    inner = found[:, :-1].sum(1)
    mean = ((score_start + found[:, -1]) / 2 + inner) / (num_points - 1)
    return LineIntegral(_dot(mean, along), found[:, -1])


def langevin(target: Target, chain: Chain, eta: Tensor | float, generator: Generator, *, adjusted: bool) -> Chain:
    """One move of every chain: x' = x + eta S + sqrt(2 eta) xi; one evaluation, and one for each inner point of the integral.

    The proposal's variance is 2 eta, so that log k(x -> x') = -|x' - x - eta S(x)|^2 / (4 eta).
    """
    noise = _noise(target, chain.x, generator)
    proposal = chain.x + eta * _free(target, chain.score) + (2 * eta) ** 0.5 * noise
    if not adjusted:
        return chain._replace(x=proposal, score=_at(target.score, proposal))
    log_ratio, score = _compared(target, chain, proposal)
    back = chain.x - proposal - eta * _free(target, score)
    log_kernels = noise.double().square().flatten(1).sum(1) / 2 - back.double().square().flatten(1).sum(1) / (4 * eta)
    return _accept(chain, chain._replace(x=proposal, score=score), log_ratio + log_kernels, chain.momentum, generator)


def hamiltonian(
    target: Target, chain: Chain, eta: Tensor | float, generator: Generator, *, num_leapfrog: int, damping: float, adjusted: bool
) -> Chain:
    """One move of every chain: leapfrog steps of length sqrt(2 eta) with unit mass, each with one evaluation.

    A rejected move reverses the momentum (Horowitz 1991).  Without densities, the line integral uses the leapfrog points, whose
    scores are known already, or a straight line if more points are requested.
    """
    length = (2 * eta) ** 0.5
    momentum = damping * chain.momentum + (1 - damping**2) ** 0.5 * _noise(target, chain.x, generator)
    x, score, v = chain.x, chain.score, momentum
    log_ratio = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for _ in range(num_leapfrog):
        v = v + length / 2 * _free(target, score)
        ahead = x + length * v
        following = _at(target.score, ahead)
        log_ratio = log_ratio + _dot((score + following) / 2, ahead - x)
        x, score = ahead, following
        v = v + length / 2 * _free(target, score)
    moved = Chain(x, score, v, chain.accepted)
    if not adjusted:
        return moved
    if target.log_density is not None:
        log_ratio = target.log_density(x) - target.log_density(chain.x)
    elif target.line_points > 2:
        log_ratio = line_integral(target.score, chain.x, x, chain.score, target.line_points).value
    kinetic = (v.double().square() - momentum.double().square()).flatten(1).sum(1) / 2
    return _accept(chain, moved, log_ratio - kinetic, -momentum, generator)


def anneal(
    members: Members,
    path: GaussianPath,
    x0: Tensor,
    settings: Settings,
    generator: Generator,
    *,
    pilots: Pilots,
    known: Known | None = None,
) -> Annealed:
    """Chains from noise to data: a deterministic step (DDIM) to each level, then `num_inner` moves there.

    The moves' lengths come from pilot points that are independent of the chains, so a chain depends only on its own noise.
    Chains forget their start; only the signs of x0 remain, because they multiply all of a chain's noise.

    Args:
        members: the composition.
        path: the path that the scores belong to.
        x0: noise, (B, *D).
        settings: levels, kernel, step.
        generator: on x0's device.
        pilots: the composition at the pilot points.
        known: given entries; they stay on their path, and the scores are conditioned on them (`smc.given`).

    Returns:
        samples and acceptance.

    Raises:
        CompbenchError: points are not finite, or an adjusted kernel accepted nothing.
    """
    table = levels(path, settings.num_levels, settings.edge)
    composed = members.composed if known is None else given(members.composed, path, known.with_particles())
    scales, share = _scales(pilots, x0, table, generator), share_of_scale(settings, x0[0].numel())
    x, rates, signs = x0, [], torch.where(x0 < 0, -1.0, 1.0)
    score = composed(x[:, None], table[0].time).score[:, 0]
    for number, (before, level) in enumerate(pairwise(table)):
        x = _denoised_step(x, score, before, level)
        if known is not None:
            last = number + 2 == len(table)
            x = known.on_path(x, x0, 1.0 if last else level.alpha, 0.0 if last else level.sigma)
        target = _target(members, composed, level.time, settings, known)._replace(signs=signs)
        score = _at(target.score, x)
        if level.sigma < settings.smallest_sigma:
            continue
        chain = _moved(target, x, score, share * scales[number], settings, generator)
        x, score = chain.x, chain.score
        rates.append(chain.accepted.mean())
    if not bool(x.isfinite().all()):
        raise CompbenchError(f"the chains diverged: points are not finite; lower step_size ({settings.step_size:g}).")
    if not (settings.adjusted and settings.num_inner and rates):
        return Annealed(x, ())
    acceptance = tuple(torch.stack(rates).tolist())
    if max(acceptance) == 0:
        raise CompbenchError(
            f"{settings.kernel} accepted none of its moves: the chains stand still; lower step_size ({settings.step_size:g})."
        )
    return Annealed(x, acceptance)


def share_of_scale(settings: Settings, num_dimensions: int) -> float:
    """eta over the level's scale: step_size (2 / d)^p, p = 1/3 for mala, 1/2 for hmc, 0 for unadjusted kernels; d is at least 2.

    So acceptance does not depend on the dimension: with one common step, Langevin moves of a Gaussian in 784 dimensions are never
    accepted.  Roberts & Rosenthal 1998 (mala); Beskos et al. 2013 (hmc, whose step length goes with d^(-1/4)).
    """
    power = {"mala": 1 / 3, "hmc": 1 / 2}.get(settings.kernel, 0.0)
    return settings.step_size * (2 / max(num_dimensions, 2)) ** power


def num_evaluations(settings: Settings, path: GaussianPath) -> int:
    """Evaluations of the composition for one sample, without those of the pilots."""
    table = levels(path, settings.num_levels, settings.edge)
    langevin_move = settings.kernel in ("ula", "mala")
    inside = max(settings.line_points - 2, 0) if settings.adjusted else 0
    move = 1 + inside if langevin_move else settings.num_leapfrog + inside + (inside > 0)
    with_chain = sum(level.sigma >= settings.smallest_sigma for level in table[1:])
    return len(table) + with_chain * settings.num_inner * move


def _moved(target: Target, x: Tensor, score: Tensor, eta: Tensor, settings: Settings, generator: Generator) -> Chain:
    """`num_inner` moves at one level, starting with new momentum."""
    langevin_moves = settings.kernel in ("ula", "mala")
    momentum = torch.zeros_like(x) if langevin_moves else _noise(target, x, generator)
    chain = Chain(x, score, momentum, torch.zeros(len(x), device=x.device))
    for _ in range(settings.num_inner):
        if langevin_moves:
            chain = langevin(target, chain, eta, generator, adjusted=settings.adjusted)
        else:
            chain = hamiltonian(
                target,
                chain,
                eta,
                generator,
                num_leapfrog=settings.num_leapfrog,
                damping=settings.damping,
                adjusted=settings.adjusted,
            )
    return chain._replace(accepted=chain.accepted / max(settings.num_inner, 1))


def _target(members: Members, composed: ComposedScore, time: float, settings: Settings, known: Known | None) -> Target:
    whole = log_density_of(members)

    def log_density(x: Tensor) -> Tensor:
        assert whole is not None
        return whole(x[:, None], time)[:, 0]

    free = None if known is None else ~known.mask
    return Target(lambda x: composed(x, time).score, None if whole is None else log_density, settings.line_points, free)


def _scales(pilots: Pilots, x0: Tensor, table: list[Level], generator: Generator) -> list[Tensor]:
    """d / E|S|^2 at each level except the first, from pilots that follow S there; on the device, so that the host never waits."""
    each = -(-NUM_PILOTS // pilots.rows)
    x = torch.randn(pilots.rows, each, *x0.shape[1:], generator=generator, device=x0.device, dtype=x0.dtype)
    found, score = [], pilots.members.composed(x, table[0].time).score
    for before, level in pairwise(table):
        x = _denoised_step(x, score, before, level)
        score = pilots.members.composed(x, level.time).score
        found.append(1 / score.square().mean().clamp(min=1e-12))
    return found


def _denoised_step(x: Tensor, score: Tensor, before: Level, level: Level) -> Tensor:
    """alpha' E[x1 | x] + sigma' E[x0 | x], with S in place of the noised composition's score (DDIM; Song et al. 2021)."""
    ratio = level.alpha / before.alpha
    return ratio * (x + before.sigma**2 * score) - level.sigma * before.sigma * score


def _accept(old: Chain, new: Chain, log_ratio: Tensor, refused: Tensor, generator: Generator) -> Chain:
    """Accept each chain's new position with probability min(1, e^log_ratio), independently; a rejected move leaves the position
    and sets the momentum to `refused`.  A move that is not finite is rejected."""
    u = torch.rand(len(old.x), generator=generator, device=old.x.device, dtype=torch.float64)
    taken = u.log() < log_ratio.nan_to_num(nan=-math.inf)
    where = per_sample(taken, old.x)
    return Chain(
        torch.where(where, new.x, old.x),
        torch.where(where, new.score, old.score),
        torch.where(where, new.momentum, refused),
        old.accepted + taken,
    )


def _compared(target: Target, chain: Chain, x: Tensor) -> LineIntegral:
    """log p(x) - log p(chain.x), and S at x."""
    if target.log_density is None:
        return line_integral(target.score, chain.x, x, chain.score, target.line_points)
    return LineIntegral(target.log_density(x) - target.log_density(chain.x), _at(target.score, x))


def _at(score: PointScore, x: Tensor) -> Tensor:
    """S at one point of each chain, (N, *D)."""
    return score(x[:, None])[:, 0]


def _free(target: Target, x: Tensor) -> Tensor:
    """x with zeros at given entries."""
    return x if target.free is None else x * target.free


def _noise(target: Target, x: Tensor, generator: Generator) -> Tensor:
    noise = _free(target, torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype))
    return noise if target.signs is None else noise * target.signs


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products of rows, float64 (N,)."""
    return (a.double() * b.double()).flatten(1).sum(1)
