"""Independent experts, one a silo, mixed by a router that knows the silos' label counts alone.

Decentralized diffusion models (McAllister et al. 2025) without their clustering, the second baseline of Decentralized
Compositional Flow Matching (DCFM), section 4.  Each silo sends its expert once.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from compbench.flow.experts import Experts
from compbench.flow.mixture import Mixture, composition, sample_mixture
from compbench.flow.silos import DecentralisedSettings, first_stage, label_router, network, share_of, untrained_mixture
from compbench.flow.train import Steps
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem, Request


class Settings(DecentralisedSettings):
    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9): DDM+L")


def fit(settings: Settings, problem: Problem, ctx: Context) -> Mixture:
    """Stage I of DCFM and nothing else."""
    silos = len(problem.federation)
    budget = share_of(problem.budget, 1.0, silos)
    steps = Steps(ctx.progress, silos * budget.train_steps)
    net, told = first_stage(settings, problem, ctx, budget=budget, steps=steps, local_ci=settings.local_ci)
    experts = Experts(net, told.states)
    return Mixture(experts, label_router(told, problem), sample_steps=problem.budget.sample_steps).to(ctx.device)


def build(settings: Settings, problem: Problem) -> Mixture:
    """The untrained mixture."""
    return untrained_mixture(network(settings, problem), problem)


@torch.no_grad()
def sample(settings: Settings, mixture: Mixture, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the mixture's composition around NULL, all experts in one call."""
    members = composition(request.condition, settings.weight, settings.inference)
    return sample_mixture(mixture, members, request, ctx)


def evaluations(settings: Settings, problem: Problem) -> int:
    """Every expert for NULL and each factor alone, or for the whole condition, each step."""
    return problem.budget.sample_steps * settings.num_members(problem) * len(problem.federation)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="ddm",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=evaluations,
            pools_silos=False,
        ),
    )
