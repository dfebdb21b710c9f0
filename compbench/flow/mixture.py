"""Mixtures of silos' experts: the weight of each expert in each part of a composition.

    v(x_t, c) = v(NULL) + sum_k w_k (v(c_k) - v(NULL)),    v(c') = sum_a r_a(c', x_t) v_a(x_t, c')

DDM routes by label counts (r does not depend on x_t), DFD by estimated densities of x_t (r does not depend on c').
Decentralized Compositional Flow Matching (DCFM), sections 4 and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from compbench.api.factors import NULL, Weighted
from compbench.flow.compose import around_null
from compbench.flow.experts import Experts
from compbench.flow.solver import answer
from compbench.flow.transfer import numbers

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.interfaces import Request

Inference = Literal["composed", "joint"]

Router = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x_t (B, *D), t (B,), conditions (K, B, F)) -> weights of the experts, (n, K, B), which sum to 1 over n."""


def label_counts(condition: Tensor, sizes: Sequence[int]) -> Tensor:
    """Number of a silo's examples with each value of each factor, factors concatenated: (N, F) -> (sum of sizes,)."""
    counts = [torch.bincount(condition[:, k].cpu(), minlength=size) for k, size in enumerate(sizes)]
    return torch.cat(counts).float()


class LabelRouter(nn.Module):
    """r_a(c) from only the silos' counts of marginal labels, as DDM's router in DCFM, section 4.

    For a value v of one factor, r_a = n_a(v) / sum_b n_b(v); a condition on several factors averages over them, and NULL
    is routed by the silos' sizes.

    Args:
        counts: `label_counts` of each silo, (n, sum of sizes).
        sizes: number of values of each factor.
    """

    def __init__(self, counts: Tensor, sizes: Sequence[int]) -> None:
        super().__init__()
        total = counts[:, : sizes[0]].sum(1, keepdim=True)
        share = counts / counts.sum(0).clamp(min=1)
        self.share: Tensor
        self.prior: Tensor
        self.register_buffer("share", torch.where(counts.sum(0) > 0, share, total / total.sum()))  # (n, sum of sizes)
        self.register_buffer("prior", (total / total.sum())[:, 0])  # (n,)
        self.offsets = [sum(sizes[:k]) for k in range(len(sizes))]

    def forward(self, x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        """Weights (n, K, B)."""
        known = conditions != NULL  # (K, B, F)
        places = conditions.clamp(min=0) + numbers(tuple(self.offsets), conditions.device, torch.long)
        shares = self.share[:, places] * known  # (n, K, B, F)
        count = known.sum(-1)
        mean = shares.sum(-1) / count.clamp(min=1)
        return torch.where(count > 0, mean, self.prior[:, None, None])


def composition(condition: Tensor, weights: Sequence[float], inference: Inference) -> list[Weighted]:
    """The composition around NULL with weights w_k (equation 5), or the whole condition unchanged."""
    return around_null(condition, weights) if inference == "composed" else [Weighted(1.0, condition)]


def mixture_velocity(experts: Experts, router: Router, x: Tensor, t: Tensor, members: Sequence[Weighted]) -> Tensor:
    """sum_i w_i sum_a r_a(c_i, x) v_a(x, t | c_i): all experts and all members in one call.

    Args:
        experts: n networks.
        router: gives the experts' weights.
        x: points, (B, *D).
        t: times, (B,).
        members: weights and conditions of the composition.

    Returns:
        (B, *D).
    """
    conditions = torch.stack([member.condition for member in members])  # (K, B, F)
    velocities = experts.everywhere(x, t, conditions).float()  # (n, K, B, *D)
    own = numbers(tuple(member.weight for member in members), x.device, torch.float32)
    weights = router(x, t, conditions) * own[:, None]  # (n, K, B)
    return torch.einsum("nkb,nkb...->b...", weights, velocities)


class Mixture(nn.Module):
    """Experts and their router as one model."""

    def __init__(self, experts: Experts, router: nn.Module, *, sample_steps: int) -> None:
        super().__init__()
        self.experts, self.router, self.sample_steps = experts, router, sample_steps


def sample_mixture(mixture: Mixture, members: Sequence[Weighted], request: Request, ctx: Context) -> Tensor:
    """A request's samples along the mixture's composed velocity, (B, *D)."""

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return mixture_velocity(mixture.experts, mixture.router, x, t, members)

    return answer(velocity, request, num_steps=mixture.sample_steps)
