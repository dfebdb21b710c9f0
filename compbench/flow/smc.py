"""Feynman-Kac correction: a swarm of particles follows the composed score, weighted and resampled towards prod_a p_a^w_a.

p_a are the marginals of dx = (f x + g^2 s_a) dt + g dW from noise to data.  With S = sum_a w_a s_a and any noise level e:

    dx       = (f x + (g^2 + e^2) / 2 S) dt + e dW
    dlog(w)  = (g^2 / 2 (|S|^2 - sum_a w_a |s_a|^2) - (sum_a w_a - 1) f d) dt

in d dimensions; e = g is the reverse diffusion, e = 0 the probability flow.  Catastrophic Compositional Generation,
section 3.2 and appendix C; Skreta et al. 2025.  State in, state out; log-weights stay float64 until they become indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from compbench.flow.path import GaussianPath, diffusion
from compbench.flow.resampling import Scheme, ancestors_at, ess_of, positions, relative_weights, resample, temper
from compbench.flow.solver import Known, towards_known
from compbench.system.errors import CompbenchError

LARGEST_KICK = 0.2
"""Largest e^2 dt: where a path's diffusion is infinite (at the start of a linear path) Euler's steps would diverge."""

RESOLUTION = 1e-3
"""An effective sample size that is above the trigger by at most this still triggers resampling: tempered weights end there."""

CPU_CHUNK, GPU_CHUNK = 1 << 18, 1 << 24
"""Largest number of values in one chunk of swarms: it bounds memory for any K and keeps a step's tensors in a CPU's cache."""


class Composed(NamedTuple):
    """A composition at some points: S = sum_a w_a s_a, (B, K, *D), and its gap |S|^2 - sum_a w_a |s_a|^2, (B, K)."""

    score: Tensor
    gap: Tensor


ComposedScore = Callable[[Tensor, float], Composed]
"""(x (B, K, *D), t) -> `Composed`; each row has its own condition, which its K particles share."""


class Coefficient(NamedTuple):
    """The schedule at one time, as Python numbers: it is the same for every particle."""

    time: float
    drift: float
    squared: float


class Swarm(NamedTuple):
    """Particles of B requests.

    Attributes:
        x: particles, (B, K, *D).
        log_weights: unnormalised, float64 (B, K).
        ancestors: index of the initial particle that each particle descends from, (B, K).
    """

    x: Tensor
    log_weights: Tensor
    ancestors: Tensor


class Settings(NamedTuple):
    """How a swarm is moved and corrected.

    Attributes:
        num_steps: Euler-Maruyama steps from t = 0 to 1.
        clip: bound of the weights' rate, before dt; infinity for none.
        resample_below: resample if ESS <= this share of K: 1 means every step, 0 never.
        scheme: how positions are drawn; all are unbiased, systematic has the least variance.
        noise: whether particles diffuse (e = g) or flow (e = 0).
        last_noise: whether the last step adds noise too, as in the authors' code; otherwise it follows the probability flow.
        last_weight: whether the last step is weighted too; scores from velocities are divided by sigma = 0 there.
        ess_floor: each step's weights are tempered, w^lambda with the largest lambda <= 1 that keeps ESS >= this share of K.
        excess: sum_a w_a - 1.
        edge: times for the schedule and the scores stay this far from 0 and 1.
    """

    num_steps: int
    clip: float = math.inf
    resample_below: float = 1.0
    scheme: Scheme = "systematic"
    noise: bool = True
    last_noise: bool = True
    last_weight: bool = True
    ess_floor: float = 0.0
    excess: float = 0.0
    edge: float = 1e-5


class Trace(NamedTuple):
    """Diagnostics of a run of swarms, as means over the swarms.

    Attributes:
        clipped: share of particle-steps whose rate was clipped.
        distinct_ancestors: number of initial particles that still have descendants, 1 ... K.
        tempered: mean power of the steps' weights; 1 if none was tempered.
        ess: effective sample size after each step's weighting, before resampling, (num_steps,).
    """

    clipped: float
    distinct_ancestors: float
    ess: tuple[float, ...]
    tempered: float = 1.0


class Drawn(NamedTuple):
    """One sample per request, (B, *D), and the trace."""

    x: Tensor
    trace: Trace


def move(x: Tensor, score: Tensor, at: Coefficient, dt: float, generator: Generator | None) -> Tensor:
    """One Euler-Maruyama step with all coefficients at the left end; without a generator, a step of the probability flow.

    Args:
        x: particles, (B, K, *D).
        score: S there, (B, K, *D).
        at: schedule at the left end.
        dt: step size.
        generator: draws the noise, on x's device.

    Returns:
        particles, (B, K, *D).
    """
    kick = 0.0 if generator is None else min(at.squared * dt, LARGEST_KICK)  # e^2 dt
    moved = torch.add(x * (1 + at.drift * dt), score, alpha=(at.squared * dt + kick) / 2)
    if generator is None:
        return moved
    return moved.add_(torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype), alpha=kick**0.5)


def weight_rate(composed: Composed, at: Coefficient, excess: float, dimension: int) -> Tensor:
    """g^2 / 2 (|S|^2 - sum_a w_a |s_a|^2) - (sum_a w_a - 1) f d, (B, K); 0 for one member of weight 1."""
    rate = composed.gap * (at.squared / 2)
    return rate - excess * at.drift * dimension if excess else rate


def schedule(path: GaussianPath, num_steps: int, edge: float) -> list[Coefficient]:
    """f and g^2 at the num_steps + 1 ends of the steps, on the host."""
    times = (torch.arange(num_steps + 1, dtype=torch.float64) / num_steps).clamp(edge, 1 - edge)
    found = diffusion(path, times)
    return [Coefficient(*row) for row in zip(times.tolist(), found.drift.tolist(), found.squared.tolist(), strict=True)]


def feynman_kac(
    composed: ComposedScore,
    path: GaussianPath,
    x: Tensor,
    settings: Settings,
    generator: Generator,
    *,
    known: Known | None = None,
) -> tuple[Swarm, Trace]:
    """Move swarms from noise to data, weighting each step at its right end and resampling after that.

    Scores at the right end are gathered with the particles and reused at the next step's left end, so there is one evaluation per
    step, and one at the start.  A swarm of one particle is never resampled.  The host does not wait for the device in the loop.

    Args:
        composed: the composition's score and gap.
        path: the path that the scores belong to.
        x: particles at t = 0, (B, K, *D).
        settings: steps, clip, resampling.
        generator: of noise and resampling, on x's device.
        known: given entries, the same for all particles of a swarm; scores are conditioned on them by `given`.

    Returns:
        the swarm at t = 1, resampled after the last weights only if the trigger requires it, and its trace.

    Raises:
        CompbenchError: particles or weights are no longer finite; the message names the time.
    """
    count, num_particles = x.shape[:2]
    table = schedule(path, settings.num_steps, settings.edge)
    dt, dimension = 1 / settings.num_steps, math.prod(x.shape[2:])
    log_weights = torch.zeros(count, num_particles, dtype=torch.float64, device=x.device)
    ancestors = torch.arange(num_particles, device=x.device).expand(count, num_particles)
    offset = (torch.arange(count, device=x.device) * num_particles)[:, None]  # of each swarm in the flat batch
    clipped, powers = torch.zeros((2,), dtype=torch.float64, device=x.device)
    sizes = torch.full((settings.num_steps,), float(num_particles), dtype=torch.float64, device=x.device)
    diverged = torch.full((), settings.num_steps + 1, device=x.device)
    noise0, alongside = x, known and Known(known.values[:, None], known.mask[:, None])
    if alongside is not None:
        composed = given(composed, path, alongside)
    now = composed(x, table[0].time)
    for step in range(settings.num_steps):
        last = step + 1 == settings.num_steps
        noise = generator if settings.noise and (settings.last_noise or not last) else None
        x = move(x, now.score, table[step], dt, noise)
        right = table[step + 1]
        if alongside is not None:
            ends = (1.0, 0.0) if last else _alpha_sigma(path, right.time)
            x = alongside.on_path(x, noise0, *ends)
        now = composed(x, right.time)
        if num_particles == 1:
            diverged = torch.where(x.sum().isfinite(), diverged, diverged.clamp(max=step))
            continue
        rate = weight_rate(now, right, settings.excess, dimension)
        if settings.clip < math.inf:
            clipped += (rate.abs() > settings.clip).sum()
            rate = rate.clamp(-settings.clip, settings.clip)
        if last and not settings.last_weight:
            rate = torch.zeros_like(rate)
        gained = rate.double() * dt
        if settings.ess_floor > 0:
            power = temper(log_weights, gained, settings.ess_floor * num_particles)  # (B, 1)
            gained, powers = power * gained, powers + power.mean()
        log_weights = log_weights + gained
        diverged = torch.where(log_weights.sum().isfinite(), diverged, diverged.clamp(max=step))
        weights = relative_weights(log_weights)
        sizes[step] = (size := ess_of(weights)).mean()
        if settings.resample_below <= 0:
            continue
        chosen = ancestors_at(weights, positions(count, num_particles, generator, settings.scheme))  # (B, K)
        if settings.resample_below < 1:
            tired = (size <= settings.resample_below * num_particles + RESOLUTION)[:, None]
            chosen = torch.where(tired, chosen, torch.arange(num_particles, device=x.device))
            log_weights = torch.where(tired, 0.0, log_weights)
        else:
            log_weights = torch.zeros_like(log_weights)
        flat = (chosen + offset).flatten()
        x, now = _take(x, flat), Composed(_take(now.score, flat), now.gap)  # the gap is not used again
        noise0 = _take(noise0, flat) if alongside is not None else noise0
        ancestors = ancestors.gather(1, chosen)
    if int(diverged) <= settings.num_steps:
        raise CompbenchError(
            f"the sampler diverged at t = {(int(diverged) + 1) * dt:.3f} (step {int(diverged) + 1} of {settings.num_steps}): "
            "particles or weights are not finite; take more steps, or clip the weights (g_clip)."
        )
    alive = torch.zeros(count, num_particles, dtype=torch.bool, device=x.device).scatter(1, ancestors, True)
    trace = Trace(
        clipped=float(clipped) / (count * num_particles * settings.num_steps),
        distinct_ancestors=float(alive.sum(1).double().mean()),
        ess=tuple(sizes.tolist()),
        tempered=float(powers) / settings.num_steps if settings.ess_floor > 0 and num_particles > 1 else 1.0,
    )
    return Swarm(x, log_weights, ancestors), trace


def given(composed: ComposedScore, path: GaussianPath, known: Known) -> ComposedScore:
    """The composed score given some entries of x1, as in `solver.conditioned` for velocities.

        S(x_t | known) = S(x_t) + alpha / sigma^2 (E[x1 | x_t, known] - E[x1 | x_t])

    The gap stays that of the composition, so weights still correct the composition, not the regression on given entries.

    Args:
        composed: differentiable in x.
        path: the path that the scores belong to.
        known: given entries, (B, 1 or K, *D).
    """

    def conditioned(x: Tensor, t: float) -> Composed:
        alpha, sigma = _alpha_sigma(path, t)
        with torch.enable_grad():
            leaf = x.detach().flatten(0, 1).requires_grad_(True)  # each particle is a separate regression
            found = composed(leaf.view_as(x), t)
            denoised = (leaf + sigma**2 * found.score.flatten(0, 1)) / alpha
        own = Known(known.values.expand_as(x).flatten(0, 1), known.mask.expand_as(x).flatten(0, 1))
        moved = towards_known(denoised, leaf, alpha, own).view_as(x)
        return Composed(found.score.detach() + alpha / sigma**2 * moved, found.gap.detach())

    return conditioned


def pick(swarm: Swarm, generator: Generator) -> Tensor:
    """One particle of each swarm, drawn by weight, (B, *D)."""
    at = torch.rand(len(swarm.x), 1, generator=generator, device=generator.device, dtype=torch.float64)
    chosen = resample(swarm.log_weights, at)[:, 0]
    return swarm.x[torch.arange(len(chosen), device=chosen.device), chosen]


def draw(
    composed: Callable[[slice], ComposedScore],
    path: GaussianPath,
    x0: Tensor,
    num_particles: int,
    settings: Settings,
    generator: Generator,
    *,
    known: Known | None = None,
) -> Drawn:
    """One sample per request: x0 is its swarm's first particle, the others start from the generator's noise.

    Swarms are processed in chunks, so that memory does not grow with K.

    Args:
        composed: the composition of some requests (a slice of the batch), as a function of their particles.
        path: the path that the scores belong to.
        x0: noise, (B, *D).
        num_particles: K.
        settings: steps, clip, resampling.
        generator: on x0's device.
        known: given entries, (B, *D).

    Returns:
        samples and trace.

    Raises:
        CompbenchError: no particle, or the sampler diverged.
    """
    size = chunk(x0, num_particles)
    samples, traces, shares = [], [], []
    for first in range(0, len(x0), size):
        part = slice(first, min(first + size, len(x0)))
        start = x0[part][:, None]  # (B, 1, *D)
        if num_particles > 1:
            others = torch.randn(
                len(start), num_particles - 1, *x0.shape[1:], generator=generator, device=x0.device, dtype=x0.dtype
            )
            start = torch.cat([start, others], dim=1)
        given = known and Known(known.values[part], known.mask[part])
        swarm, trace = feynman_kac(composed(part), path, start, settings, generator, known=given)
        samples.append(pick(swarm, generator))
        traces.append(trace)
        shares.append(len(start) / len(x0))
    return Drawn(torch.cat(samples), mean_trace(traces, shares))


def chunk(x0: Tensor, num_particles: int) -> int:
    """Number of requests (B, *D) with K particles each per chunk.  Raises CompbenchError for fewer than one particle."""
    if num_particles < 1:
        raise CompbenchError(f"a swarm needs at least one particle, got {num_particles}.")
    return max(1, (CPU_CHUNK if x0.device.type == "cpu" else GPU_CHUNK) // (num_particles * max(1, math.prod(x0.shape[1:]))))


def _alpha_sigma(path: GaussianPath, time: float) -> tuple[float, float]:
    c = path.at(torch.tensor(time, dtype=torch.float64))
    return float(c.alpha), float(c.sigma)


def _take(x: Tensor, flat: Tensor) -> Tensor:
    return x.flatten(0, 1).index_select(0, flat).view_as(x)


def mean_trace(traces: list[Trace], shares: list[float]) -> Trace:
    """The mean of traces, weighted by their shares of the requests."""
    ess_of = zip(*(trace.ess for trace in traces), strict=True)
    return Trace(
        clipped=sum(share * trace.clipped for share, trace in zip(shares, traces, strict=True)),
        distinct_ancestors=sum(share * trace.distinct_ancestors for share, trace in zip(shares, traces, strict=True)),
        ess=tuple(sum(share * value for share, value in zip(shares, step, strict=True)) for step in ess_of),
        tempered=sum(share * trace.tempered for share, trace in zip(shares, traces, strict=True)),
    )
