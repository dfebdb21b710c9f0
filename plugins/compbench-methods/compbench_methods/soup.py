"""One-shot merges: every silo trains alone from one common start, and the weights are merged once.

soup             The mean of the silos' weights: Diffusion Soup without a held-out choice of its ingredients.
task-arithmetic  The common start and the sum of all silos' changes, scaled: theta_0 + lambda sum_k (theta_k - theta_0).

Biggs et al. 2024 (arXiv 2406.08431) and Ilharco et al. 2023 (arXiv 2212.04089), who start from a pretrained network; here the
start is an untrained one, which all parties make from a common seed.  Each silo sends its network once and receives nothing.
"""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field

from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import average, displaced
from compbench.flow.silos import (
    DecentralisedSettings,
    FirstStage,
    Recipe,
    evaluations_of_network,
    first_stage,
    network,
    sample_network,
)
from compbench.flow.train import Steps
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem


class Settings(DecentralisedSettings):
    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9)")


class ScaledSettings(Settings):
    scaling: float = Field(0.3, ge=0, le=10, description="lambda; 1 / n for n silos is the soup")


def trained_alone(settings: Settings, problem: Problem, ctx: Context) -> tuple[Recipe, FirstStage]:
    """Every silo's network after all of its steps, and the recipe of their common start."""
    steps = Steps(ctx.progress, len(problem.federation) * problem.budget.train_steps)
    return first_stage(settings, problem, ctx, budget=problem.budget, steps=steps, local_ci=settings.local_ci)


def soup(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """The mean of all silos' weights."""
    make, trained = trained_alone(settings, problem, ctx)
    net = make().to(ctx.device)
    net.load_state_dict(average(trained.states, torch.full((len(trained.states),), 1 / len(trained.states))))
    return net.eval()


def task_arithmetic(settings: ScaledSettings, problem: Problem, ctx: Context) -> VelocityNet:
    """The common start, moved by the scaled sum of all silos' changes."""
    make, trained = trained_alone(settings, problem, ctx)
    net = make().to(ctx.device)
    net.load_state_dict(displaced(net.state_dict(), trained.states, settings.scaling))
    return net.eval()


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    merged = partial(
        Method,
        sample=sample_network,
        build=network,
        evaluations=evaluations_of_network,
        pools_silos=False,
        needs=("silos",),
    )
    return (
        merged(name="soup", settings=Settings, fit=soup),
        merged(name="task-arithmetic", settings=ScaledSettings, fit=task_arithmetic),
    )
