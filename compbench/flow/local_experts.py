"""Networks that were each trained only on their own silo, as one model that several methods use.

DDM routes between them by the silos' labels, SuperDiff's OR by the networks' own densities.  Both methods train them in the same
way (`silos.first_stage`), so they share one fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench.api.context import FitParts, Steps
from compbench.flow.experts import Experts
from compbench.flow.silos import DecentralisedSettings, first_stage, network

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.interfaces import Problem
    from compbench.flow.nets import VelocityNet

FIT_VERSION = 1
"""Version of the fit; raise it when the same settings give other experts."""


class LocalSettings(DecentralisedSettings):
    """Settings of the methods that build on local experts."""

    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9 of DCFM)")


class LocalExperts(nn.Module):
    """The silos' networks, and what the silos report about their labels.

    Args:
        experts: one network per silo.
        counts: examples of each value of each factor, (n, sum of sizes).
    """

    def __init__(self, experts: Experts, counts: Tensor) -> None:
        super().__init__()
        self.experts = experts
        self.counts: Tensor
        self.register_buffer("counts", counts)


def fit(settings: LocalSettings, problem: Problem, ctx: Context) -> LocalExperts:
    """Train each silo's network for all of the silo's steps."""
    steps = Steps(ctx.progress, len(problem.federation) * problem.budget.train_steps)
    make, trained = first_stage(settings, problem, ctx, budget=problem.budget, steps=steps, local_ci=settings.local_ci)
    return LocalExperts(Experts(cast("VelocityNet", make()), trained.states), trained.counts).to(ctx.device)


def build(settings: LocalSettings, problem: Problem) -> LocalExperts:
    """Untrained networks of the right shapes, into which stored weights can be loaded."""
    silos, net = len(problem.federation), network(settings, problem)
    return LocalExperts(Experts(net, [net.state_dict()] * silos), torch.ones(silos, sum(problem.space.sizes)))


def fit_facts(settings: LocalSettings, problem: Problem) -> dict[str, object]:
    """What the fit depends on besides the problem; equal facts mean equal experts (see `Method.shared_fit`)."""
    masks = {name: getattr(settings, name) for name in ("pi_full", "pi_marginal", "pi_unconditional")}
    penalty = settings.ci_weight if settings.local_ci else 0.0
    facts = {"head_width": settings.head_width, "ci_weight": penalty, **masks}
    return {"fit": "compbench.flow.local_experts", "version": FIT_VERSION, **facts}


def made_of_experts(finish: Callable[..., nn.Module]) -> FitParts:
    """The fit of a method that makes its model from local experts by (settings, problem, `LocalExperts`) -> model."""
    return FitParts(fit=fit, build=build, finish=finish)
