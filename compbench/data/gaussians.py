"""Mixtures of Gaussians with axis-aligned covariances: densities, scores along a path, exact samples of compositions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from compbench.system.errors import CompbenchError

QUADRATURE_SIDE = 400
"""Grid points per side if a composition has no closed form; with 800 the moments change by less than 1e-6."""


class Mixture(NamedTuple):
    """sum_m weight_m N(mean_m, diag(variance_m)) in float64.

    Attributes:
        weights: (M,), sum 1.
        means: (M, D).
        variances: (M, D).
    """

    weights: Tensor
    means: Tensor
    variances: Tensor

    def log_density(self, x: Tensor) -> Tensor:
        """log p(x), (N, D) -> (N,)."""
        return _log_members(self, x).logsumexp(1)

    def score(self, x: Tensor) -> Tensor:
        """grad log p(x), (N, D) -> (N, D): the members' scores, weighted by responsibility."""
        inverse = (1 / self.variances).to(x.dtype)
        if len(self.weights) == 1:
            return (self.means.to(x.dtype) - x) * inverse
        share = _log_members(self, x).softmax(1)  # (N, M)
        return share @ (self.means.to(x.dtype) * inverse) - x * (share @ inverse)

    def divergence(self, x: Tensor) -> Tensor:
        """div grad log p(x), (N, D) -> (N,): sum_m r_m (|s_m|^2 - tr V_m^-1) - |s|^2 with the members' responsibilities r_m."""
        inverse = (1 / self.variances).to(x.dtype)
        share = _log_members(self, x).softmax(1)  # (N, M)
        each = (self.means.to(x.dtype) - x[:, None]) * inverse  # (N, M, D): s_m
        bends = each.square().sum(-1) - inverse.sum(-1)  # (N, M)
        return (share * bends).sum(1) - torch.einsum("nm,nmd->nd", share, each).square().sum(1)

    def noised(self, alpha: float, sigma: float) -> Mixture:
        """The law of alpha x1 + sigma x0, x0 ~ N(0, I)."""
        return Mixture(self.weights, alpha * self.means, alpha**2 * self.variances + sigma**2)

    def sample(self, count: int, generator: Generator) -> Tensor:
        """`count` exact draws, float64 (count, D)."""
        member = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        noise = torch.randn(count, self.means.shape[1], generator=generator, dtype=torch.float64)
        return self.means[member] + self.variances[member].sqrt() * noise

    def moments(self) -> Moments:
        """Mean and covariance in closed form."""
        mean = self.weights @ self.means
        spread = self.means - mean
        return Moments(
            mean, torch.diag(self.weights @ self.variances) + torch.einsum("m,mi,mj->ij", self.weights, spread, spread)
        )


class Moments(NamedTuple):
    """Mean (D,) and covariance (D, D)."""

    mean: Tensor
    covariance: Tensor


def gaussian(variances: Sequence[float]) -> Mixture:
    """N(0, diag(variances))."""
    spread = torch.tensor([list(variances)], dtype=torch.float64)
    return Mixture(torch.ones(1, dtype=torch.float64), torch.zeros_like(spread), spread)


def uniform_over(means: Sequence[tuple[float, float]], members: Sequence[int], variance: float) -> Mixture:
    """Equal weights on some of the shared components, each with covariance variance I."""
    chosen = torch.tensor([means[member] for member in members], dtype=torch.float64)
    return Mixture(torch.full((len(chosen),), 1 / len(chosen), dtype=torch.float64), chosen, torch.full_like(chosen, variance))


def mixed(parts: Sequence[Mixture]) -> Mixture:
    """The equally weighted mixture of some mixtures: the distribution of a condition that leaves a factor open."""
    return Mixture(
        torch.cat([part.weights for part in parts]) / len(parts),
        torch.cat([part.means for part in parts]),
        torch.cat([part.variances for part in parts]),
    )


def product_of_gaussians(sources: Sequence[Mixture], weights: Sequence[float]) -> Mixture:
    """prod_a N(0, V_a)^w_a, normalised: covariance (sum_a w_a V_a^-1)^-1.

    Catastrophic Compositional Generation, theorem 1.

    Raises:
        CompbenchError: a precision is not positive, so the product is not integrable.
    """
    precision = sum(weight / source.variances for source, weight in zip(sources, weights, strict=True))
    assert isinstance(precision, Tensor)
    if not bool((precision > 0).all()):
        shown = ", ".join(f"{value:.3g}" for value in precision[0].tolist())
        raise CompbenchError(
            f"weights {list(weights)} are not a valid composition of these Gaussians: by theorem 1 the product has precision "
            f"sum_a w_a / v_a = ({shown}), which must be positive on every axis. Choose smaller weights or a wider base."
        )
    return gaussian((1 / precision)[0].tolist())


def base_composition(a1: Mixture, a2: Mixture, base: Mixture, count: int, generator: Generator) -> Tensor:
    """Exact draws of p1 p2 / p0 by rejection.

    In general p1 is proposed, and accepted with probability p2 / (M p0), where M is the largest ratio of the weights of a
    component.  If p0 = (p1 + p2) / 2, then 2 p1 p2 / (p1 + p2) <= sqrt(p1 p2) <= sum_jk sqrt(w_j w_k N_j N_k), and this sum is
    proposed: a Gaussian at each pair's midpoint with weight sqrt(w_j w_k) exp(-|mu_j - mu_k|^2 / (8 v)).

    Args:
        a1, a2, base: mixtures of one shared variance; components of each are among the base's.
        count: number of draws.
        generator: on the CPU.

    Returns:
        float64 (count, D).
    """

    def log_target(x: Tensor) -> Tensor:
        return a1.log_density(x) + a2.log_density(x) - base.log_density(x)

    halves = _is_mean(base, a1, a2)
    proposal, log_bound = _midpoints(a1, a2) if halves else (a1, math.log(_largest_ratio(a2, base)))
    kept: list[Tensor] = []
    found = 0
    while found < count:
        x = proposal.sample(max(1000, 4 * (count - found)), generator)
        log_accept = log_target(x) - proposal.log_density(x) - log_bound
        u = torch.rand(len(x), generator=generator, dtype=torch.float64)
        kept.append(x[u.log() < log_accept])
        found += len(kept[-1])
    return torch.cat(kept)[:count]


def quadrature(a1: Mixture, a2: Mixture, base: Mixture, side: int = QUADRATURE_SIDE) -> Mixture:
    """p1 p2 / p0 in the plane as point masses on a grid, by the midpoint rule.

    The moments are accurate, and so are densities once noise is added.  Points of less than 1e-12 of the largest
    weight are left out.
    """
    reach = 6 * float(base.variances.max()) ** 0.5
    low, high = base.means.min(0).values - reach, base.means.max(0).values + reach
    step = (high - low) / side
    axes = [low[axis] + step[axis] * (torch.arange(side, dtype=torch.float64) + 0.5) for axis in range(2)]
    points = torch.cartesian_prod(*axes)
    log_weights = a1.log_density(points) + a2.log_density(points) - base.log_density(points)
    weights = log_weights.softmax(0)
    kept = weights > 1e-12 * weights.max()
    weights = weights[kept] / weights[kept].sum()
    return Mixture(weights, points[kept], torch.zeros(int(kept.sum()), 2, dtype=torch.float64))


def _log_members(mixture: Mixture, x: Tensor) -> Tensor:
    """log(weight_m N(x; m)), (N, D) -> (N, M)."""
    inverse = (1 / mixture.variances).to(x.dtype)
    means = mixture.means.to(x.dtype)
    constant = mixture.weights.log() - mixture.variances.log().sum(1) / 2 - x.shape[1] / 2 * math.log(2 * math.pi)
    constant = constant.to(x.dtype) - (means.square() * inverse).sum(1) / 2
    return torch.addmm(constant, x, (means * inverse).T) - x.square() @ inverse.T / 2


def _is_mean(base: Mixture, a1: Mixture, a2: Mixture) -> bool:
    both = mixed([a1, a2])
    probe = torch.cat([base.means, a1.means, a2.means])
    return bool(torch.allclose(base.log_density(probe), both.log_density(probe), atol=1e-9))


def _largest_ratio(a2: Mixture, base: Mixture) -> float:
    """sup p2 / p0 of two mixtures of shared components: the largest ratio of a component's weights."""
    ratios = []
    for weight, mean in zip(a2.weights, a2.means, strict=True):
        shared = (base.means == mean).all(1)
        if not bool(shared.any()):
            raise CompbenchError("rejection needs every component of the second perturbation among the base's.")
        ratios.append(float(weight / base.weights[shared].sum()))
    return max(ratios)


def _midpoints(a1: Mixture, a2: Mixture) -> tuple[Mixture, float]:
    """The Gaussians that bound sqrt(p1 p2), and the log of their total weight."""
    pairs = [(j, k) for j in range(len(a1.weights)) for k in range(len(a2.weights))]
    means = torch.stack([(a1.means[j] + a2.means[k]) / 2 for j, k in pairs])
    variances = torch.stack([a1.variances[j] for j, _ in pairs])
    weights = torch.stack(
        [
            (a1.weights[j] * a2.weights[k]).sqrt() * (-((a1.means[j] - a2.means[k]).square() / a1.variances[j]).sum() / 8).exp()
            for j, k in pairs
        ]
    )
    return Mixture(weights / weights.sum(), means, variances), float(weights.sum().log())
