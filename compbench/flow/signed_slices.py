"""NOT in a composition: a requested value attracts, an excluded value repels.

    v(x, t) = v(NULL) + sum_k s_k (v(c_k) - v(NULL)),    s_k = w_k if c_k is requested, -gamma if it is excluded

This composes the density p(x) prod_k (p(x | c_k) / p(x))^s_k.  Liu et al. 2022 (arXiv 2206.01714); CoInD, 2025 (arXiv
2503.01145).  It is not the law of "any other value", p(x | not c) = (p(x) - p(c) p(x | c)) / (1 - p(c)), whose weight varies from
point to point: gamma(x, t) = r / (1 - r) with r = p(c | x_t).  A constant gamma repels even where r is 0, and so overcorrects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compbench.api.factors import NULL, excluding
from compbench.flow.compose import ConditionalVelocity, around_null, stacked
from compbench.flow.transfer import numbers


class SignedSlices(NamedTuple):
    """The composition of a condition with excluded values.

    Attributes:
        conditions: all NULL, then each factor alone, (F + 1, B, F).
        weights: s_k, (B, F).
    """

    conditions: Tensor
    weights: Tensor

    @classmethod
    def of(cls, condition: Tensor, weights: Sequence[float], negative_weight: float) -> SignedSlices:
        """Slices of a condition.

        Args:
            condition: (B, F); NULL leaves a factor open, `excluding(v)` excludes v.
            weights: w_k, one for each factor.
            negative_weight: gamma.
        """
        excluded = condition < NULL
        values = torch.where(excluded, excluding(condition), condition)
        conditions = torch.stack([member.condition for member in around_null(values, weights)])
        return cls(conditions, torch.where(excluded, -negative_weight, numbers(tuple(weights), condition.device, torch.float32)))

    def velocity(self, of: ConditionalVelocity, x: Tensor, t: Tensor) -> Tensor:
        """The composed velocity, (B, *D).

        Args:
            of: conditional velocity that accepts NULL.
            x: points, (B, *D).
            t: times, (B,).
        """
        null, *alone = stacked(of, x, t, self.conditions).to(x.dtype)
        weights = self.weights.to(x.dtype).view(*self.weights.shape, *[1] * (x.ndim - 1))
        return null + (weights * (torch.stack(alone, 1) - null[:, None])).sum(1)
