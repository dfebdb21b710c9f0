"""Networks that saw their own silo alone, as one model: what several methods make their answers of.

DDM routes between them by the silos' labels, SuperDiff's OR by their own densities; the soup and task arithmetic merge their
weights.  All four train them alike (`silos.first_stage`), so one fit serves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench.api.context import FitParts, Steps
from compbench.flow.experts import Experts
from compbench.flow.silos import DecentralisedSettings, first_stage, network, recipe

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.interfaces import Problem
    from compbench.flow.nets import VelocityNet

FIT_VERSION = 1
"""Goes up when the same settings fit other experts."""


class LocalSettings(DecentralisedSettings):
    """Settings of the methods that make their answers of such networks."""

    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9 of DCFM)")


class LocalExperts(nn.Module):
    """The silos' networks, what the silos tell of their labels, and the common start.

    Args:
        experts: a network a silo.
        counts: examples of each value of each factor, (n, sum of sizes).
        seed: of the recipe of the untrained network that every party starts from.
    """

    def __init__(self, experts: Experts, counts: Tensor, seed: int) -> None:
        super().__init__()
        self.experts = experts
        self.counts: Tensor
        self.seed: Tensor
        self.register_buffer("counts", counts)
        self.register_buffer("seed", torch.tensor(seed - (seed >> 63 << 64)))  # 64 bits, of which a tensor takes one as a sign

    @property
    def states(self) -> list[dict[str, Tensor]]:
        """Each network's state dict."""
        return [self.experts.state(number) for number in range(len(self.experts))]


def fit(settings: LocalSettings, problem: Problem, ctx: Context) -> LocalExperts:
    """Train every silo's network by all of its steps."""
    steps = Steps(ctx.progress, len(problem.federation) * problem.budget.train_steps)
    make, trained = first_stage(settings, problem, ctx, budget=problem.budget, steps=steps, local_ci=settings.local_ci)
    return LocalExperts(Experts(cast("VelocityNet", make()), trained.states), trained.counts, make.seed).to(ctx.device)


def build(settings: LocalSettings, problem: Problem) -> LocalExperts:
    """Untrained networks of the right shapes, for stored weights to be loaded into."""
    silos, net = len(problem.federation), network(settings, problem)
    return LocalExperts(Experts(net, [net.state_dict()] * silos), torch.ones(silos, sum(problem.space.sizes)), 0)


def start_of(settings: LocalSettings, problem: Problem, trained: LocalExperts) -> nn.Module:
    """The untrained network that all silos started from."""
    return replace(recipe(network, settings, problem), seed=int(trained.seed) % 2**64)()


def fit_facts(settings: LocalSettings, problem: Problem) -> dict[str, object]:
    """What the fit depends on beside the problem: equal facts, equal experts (see `Method.shared_fit`)."""
    masks = {name: getattr(settings, name) for name in ("pi_full", "pi_marginal", "pi_unconditional")}
    penalty = settings.ci_weight if settings.local_ci else 0.0
    facts = {"head_width": settings.head_width, "ci_weight": penalty, **masks}
    return {"fit": "compbench.flow.local_experts", "version": FIT_VERSION, **facts}


def made_of_experts(finish: Callable[..., nn.Module]) -> FitParts:
    """The fit of a method that makes its model of such networks: (settings, problem, `LocalExperts`) -> model."""
    return FitParts(fit=fit, build=build, finish=finish)
