"""Analytic scores of the perturbation tasks, for any condition at any time of any Gaussian path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from compbench.api.factors import NULL
from compbench.data.gaussians import Mixture, mixed, product_of_gaussians, quadrature

Combination = tuple[int, ...]


class SourceOracle:
    """The exact scores of the sources.

    Args:
        sources: the distribution of each seen combination, in float64.
        device: device of the scores.
    """

    def __init__(self, sources: Mapping[Combination, Mixture], device: torch.device) -> None:
        self.sources = {combination: _moved(mixture, device) for combination, mixture in sources.items()}
        self.device = device

    def law(self, combination: Combination) -> Mixture:
        """The distribution of a condition: a source, a mixture over an open factor, or the composition around the base.

        If (1, 1) has no closed form, it is a quadrature of the plane, which is accurate once noise is added.
        """
        if NULL in combination:
            fitting = [law for cell, law in self.sources.items() if _fits(cell, combination)]
            return mixed(fitting)
        if combination in self.sources:
            return self.sources[combination]
        parts = [_moved(self.sources[cell], torch.device("cpu")) for cell in ((1, 0), (0, 1), (0, 0))]
        gaussians = all(len(part.weights) == 1 for part in parts)
        a1, a2, base = parts
        made = product_of_gaussians(parts, (1.0, 1.0, -1.0)) if gaussians else quadrature(a1, a2, base)
        return _moved(made, self.device)

    def score(self, x: Tensor, alpha: float, sigma: float, combination: Combination) -> Tensor:
        """grad log p_t(x | combination) for x_t = alpha x1 + sigma x0, (N, D) -> (N, D)."""
        return self.law(combination).noised(alpha, sigma).score(x)

    def composed(self, members: Sequence[tuple[float, Combination]]) -> Callable[[Tensor, float, float], tuple[Tensor, Tensor]]:
        """S = sum_a w_a s_a and its gap |S|^2 - sum_a w_a |s_a|^2 as one function of (x (N, D), alpha, sigma).

        Gaussians around 0 have scores -x / v, so S and its gap need one number per axis; mixtures share distances.

        Raises:
            CompbenchError: with these weights the product of Gaussians is not integrable (theorem 1).
        """
        weights = torch.tensor([weight for weight, _ in members], dtype=torch.float64, device=self.device)
        laws = [self.law(combination) for _, combination in members]
        if all(len(law.weights) == 1 and not bool(law.means.any()) for law in laws):
            product_of_gaussians([_moved(law, torch.device("cpu")) for law in laws], weights.tolist())
            return _gaussian_scores(weights, torch.cat([law.variances for law in laws]).to(self.device))
        if len({float(variance) for law in laws for variance in law.variances.flatten().unique()}) == 1:
            return _mixture_scores(weights, laws)
        return _plain_scores(weights, laws)

    def members(self, combinations: Sequence[Combination]) -> Callable[[Tensor, float, float], Tensor]:
        """Scores of each combination: (x (N, D), alpha, sigma) -> (C, N, D)."""
        return self._each(combinations, lambda law, x: law.score(x.double()).to(x.dtype))

    def log_densities(self, combinations: Sequence[Combination]) -> Callable[[Tensor, float, float], Tensor]:
        """log p_t(x | combination) of each: (x (N, D), alpha, sigma) -> float64 (C, N)."""
        return self._each(combinations, lambda law, x: law.log_density(x.double()))

    def divergences(self, combinations: Sequence[Combination]) -> Callable[[Tensor, float, float], Tensor]:
        """div grad log p_t(x | combination) of each: (x (N, D), alpha, sigma) -> (C, N)."""
        return self._each(combinations, lambda law, x: law.divergence(x.double()).to(x.dtype))

    def _each(
        self, combinations: Sequence[Combination], value: Callable[[Mixture, Tensor], Tensor]
    ) -> Callable[[Tensor, float, float], Tensor]:
        laws = [self.law(combination) for combination in combinations]

        def values(x: Tensor, alpha: float, sigma: float) -> Tensor:
            return torch.stack([value(law.noised(alpha, sigma), x) for law in laws])

        return values


def _gaussian_scores(weights: Tensor, variances: Tensor) -> Callable[[Tensor, float, float], tuple[Tensor, Tensor]]:
    def scores(x: Tensor, alpha: float, sigma: float) -> tuple[Tensor, Tensor]:
        slope = 1 / (alpha**2 * variances + sigma**2)  # (C, D): s_a = -slope_a x
        total = weights @ slope  # (D,)
        bend = total.square() - weights @ slope.square()  # (D,)
        return x * -total.to(x.dtype), x.square() @ bend.to(x.dtype)

    return scores


def _mixture_scores(weights: Tensor, laws: Sequence[Mixture]) -> Callable[[Tensor, float, float], tuple[Tensor, Tensor]]:
    """Laws over shared components of one variance: each point's distances are computed once.

    Points are columns, so that every operation runs along them.
    """
    means = torch.cat([law.means for law in laws]).unique(dim=0)  # (M, D)
    variance = float(laws[0].variances.max())
    members = [(law.means[:, None] == means).all(-1).int().argmax(1) for law in laws]
    own = [(law.weights.log()[:, None], law.means.T) for law in laws]  # (m, 1) and (D, m)
    factors = weights.tolist()

    def scores(x: Tensor, alpha: float, sigma: float) -> tuple[Tensor, Tensor]:
        spread = alpha**2 * variance + sigma**2
        points = x.T.contiguous()  # (D, N)
        offset = (-(alpha * means).square().sum(1) / (2 * spread)).to(x.dtype)[:, None]
        logits = torch.addmm(offset, means.to(x.dtype), points, alpha=alpha / spread)  # (M, N)
        total, squares = torch.zeros_like(points), torch.zeros_like(points[0])
        for factor, rows, (log_weight, centres) in zip(factors, members, own, strict=True):
            share = logits[rows] + log_weight.to(x.dtype)  # (m, N)
            share = share.sub_(share.amax(0)).exp_()
            centre = (alpha / spread * centres).to(x.dtype) @ share  # (D, N)
            each = centre.div_(share.sum(0)).sub_(points, alpha=1 / spread)
            total.add_(each, alpha=factor)
            squares.add_(each.square().sum(0), alpha=factor)
        return total.T, total.square().sum(0) - squares

    return scores


def _plain_scores(weights: Tensor, laws: Sequence[Mixture]) -> Callable[[Tensor, float, float], tuple[Tensor, Tensor]]:
    """Laws that share nothing, one after the other."""

    def scores(x: Tensor, alpha: float, sigma: float) -> tuple[Tensor, Tensor]:
        each = torch.stack([law.noised(alpha, sigma).score(x.double()) for law in laws])  # (C, N, D)
        total = torch.tensordot(weights, each, dims=1)
        return total.to(x.dtype), (total.square().sum(1) - weights @ each.square().sum(2)).to(x.dtype)

    return scores


def _fits(cell: Combination, combination: Combination) -> bool:
    return all(asked in (NULL, value) for asked, value in zip(combination, cell, strict=True))


def _moved(mixture: Mixture, device: torch.device) -> Mixture:
    return Mixture(*(part.to(device) for part in mixture))
