"""Feynman-Kac correction of composed scores.

fkc         Feynman-Kac correction: K weighted particles follow the composed score and are resampled towards the composition.
fkc-oracle  Feynman-Kac correction on the task's analytic scores: what is left is the inference-time error.

Catastrophic Compositional Generation, section 3.2 and appendix C, after Skreta et al. 2025; defaults are those of the
authors' code.  One particle is naive-sde.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench.flow import score_models
from compbench.flow.smc import Settings as Swarms
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, MethodSettings, Problem, Request


class Swarm(MethodSettings):
    num_particles: int = Field(16, ge=1, le=1 << 16, description="K: particles of one sample's swarm")
    g_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["off"] = Field(
        15.0, description="bound of the log-weights' rate, before the step is multiplied in; 'off' for none"
    )
    resample_below: float = Field(1.0, ge=0, le=1, description="resample where ESS <= this share of K; 1: every step, 0: never")
    scheme: Literal["systematic", "stratified", "multinomial"] = Field(
        "systematic", description="how resampling positions are drawn"
    )


class OracleSettings(Swarm, score_models.WeightSettings):
    pass


class Settings(Swarm, score_models.ModelSettings):
    pass


@torch.no_grad()
def sample(settings: OracleSettings | Settings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """One particle of each request's swarm, drawn by weight after the last step."""
    swarms = Swarms(
        num_steps=0,  # the budget's, which the model carries
        clip=float("inf") if settings.g_clip == "off" else settings.g_clip,
        resample_below=settings.resample_below,
        scheme=settings.scheme,
    )
    drawn = score_models.draw_composition(
        model, request, ctx, settings=swarms, num_particles=settings.num_particles, weight=settings.weight
    )
    return drawn.x


def evaluations(settings: Swarm, problem: Problem) -> int:
    """Every member of the composition, for every particle, at both ends of every step."""
    return settings.num_particles * score_models.num_members(problem) * (problem.budget.sample_steps + 1)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="fkc",
            settings=Settings,
            fit=score_models.fit,
            sample=sample,
            build=score_models.build,
            evaluations=evaluations,
            shared_fit=score_models.fit_facts,
        ),
        Method(
            name="fkc-oracle",
            settings=OracleSettings,
            fit=score_models.oracle_of,
            sample=sample,
            evaluations=evaluations,
            oracle=True,
        ),
    )
