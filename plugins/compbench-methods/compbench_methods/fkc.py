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


class OracleSettings(MethodSettings):
    num_particles: int = Field(16, ge=1, le=1 << 16, description="K: particles of one sample's swarm")
    g_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["off"] = Field(
        15.0, description="bound of the log-weights' rate, before the step is multiplied in; 'off' for none"
    )
    resample_below: float = Field(1.0, ge=0, le=1, description="resample where ESS <= this share of K; 1: every step, 0: never")
    scheme: Literal["systematic", "stratified", "multinomial"] = Field(
        "systematic", description="how resampling positions are drawn"
    )
    weight: float = Field(1.0, gt=0, le=20, description="w of each factor's perturbation of the base, or slice around NULL")


class Settings(OracleSettings):
    experts: bool = Field(False, description="one model a source instead of one conditional model")
    factor_dropout: float = Field(
        0.1, ge=0, lt=1, description="chance that a factor is masked in training, where there is no base"
    )


def build(settings: Settings, problem: Problem) -> nn.Module:
    """The untrained score model."""
    return score_models.build(problem, experts=settings.experts)


def fit(settings: Settings, problem: Problem, ctx: Context) -> nn.Module:
    """The score model of all sources; it does not depend on how it will be sampled."""
    return score_models.fit(problem, ctx, experts=settings.experts, factor_dropout=settings.factor_dropout)


def shared_fit(settings: Settings, problem: Problem) -> dict[str, object]:
    return score_models.fit_facts(problem, experts=settings.experts, factor_dropout=settings.factor_dropout)


def oracle(settings: OracleSettings, problem: Problem, ctx: Context) -> score_models.OracleModel:
    """The task's own scores."""
    return score_models.oracle_of(problem)


@torch.no_grad()
def sample(settings: OracleSettings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
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


def evaluations(settings: OracleSettings, problem: Problem) -> int:
    """Every member of the composition, for every particle, at both ends of every step."""
    return settings.num_particles * score_models.num_members(problem) * (problem.budget.sample_steps + 1)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="fkc",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=evaluations,
            shared_fit=shared_fit,
        ),
        Method(name="fkc-oracle", settings=OracleSettings, fit=oracle, sample=sample, evaluations=evaluations, oracle=True),
    )
