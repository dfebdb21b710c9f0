"""Independent experts, one a silo, mixed by a router that knows the silos' label counts alone.

Decentralized diffusion models (McAllister et al. 2025) without their clustering, the second baseline of Decentralized
Compositional Flow Matching (DCFM), section 4.  Each silo sends its expert once.
"""

from __future__ import annotations

from pydantic import Field

from compbench.flow.experts import Experts
from compbench.flow.mixture import Mixture
from compbench.flow.silos import (
    DecentralisedSettings,
    evaluations_of_experts,
    first_stage,
    label_router,
    network,
    sample_experts,
    untrained_mixture,
)
from compbench.flow.train import Steps
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem


class Settings(DecentralisedSettings):
    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9): DDM+L")


def fit(settings: Settings, problem: Problem, ctx: Context) -> Mixture:
    """Stage I of DCFM and nothing else."""
    steps = Steps(ctx.progress, len(problem.federation) * problem.budget.train_steps)
    make, trained = first_stage(settings, problem, ctx, budget=problem.budget, steps=steps, local_ci=settings.local_ci)
    experts = Experts(make(), trained.states)
    return Mixture(experts, label_router(trained, problem), sample_steps=problem.budget.sample_steps).to(ctx.device)


def build(settings: Settings, problem: Problem) -> Mixture:
    """The untrained mixture."""
    return untrained_mixture(network(settings, problem), problem)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="ddm",
            settings=Settings,
            fit=fit,
            sample=sample_experts,
            build=build,
            evaluations=evaluations_of_experts,
            pools_silos=False,
        ),
    )
