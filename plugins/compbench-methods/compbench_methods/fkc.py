"""Feynman-Kac correction of composed scores.

fkc         Feynman-Kac correction by weighted particles: K particles follow the composed score and are resampled on their way.
fkc-oracle  Feynman-Kac correction on the task's analytic scores, with the authors' clip of the weights' rate.

Catastrophic Compositional Generation, section 3.2 and appendix C, after Skreta et al. 2025.  With noise networks and exact
scores, which only vectors have, the defaults are those of the authors' code.  With one particle the method is naive-sde.  With
exact scores the remaining error comes from the steps, the particles and the clip; on gmm-ood nearly all of it comes from the clip
(sliced Wasserstein distance 1.9 with the clip, 0.06 without).

Up to version 3, fkc also summed its members' scores in bf16 if the networks ran in bf16.  It had the authors' defaults on all
vectors, so on blobs-iid and blobs-noniid a velocity network's score, divided by sigma = 0, weighted the last step.

Theirs: in the plane the weights' rate is clipped; on images it is not.  Particles are resampled at every step.
Ours: with noise networks and exact scores it is the same.  With velocity networks nothing is clipped, but each step's weights are
tempered so that half of a swarm's particles stay effective, particles are resampled where fewer are, and the last step is not
weighted.
Why: the rate grows with the dimension, so without tempering one particle would get all the weight at almost every step.

Size: on vectors with a base the score network is the paper's (appendix F): four hidden layers, here of the budget's width.  So it
has 0.14 of the parameters of `factored` in the plane and 0.09 to 0.15 on constraints.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, MethodSettings, Problem, Request, hookimpl
from compbench.flow import score_models
from compbench.flow.smc import Settings as Swarms

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

PLANAR = {"g_clip": 15.0, "resample_below": 1.0, "ess_floor": 0.0}
"""The values of 'auto' with noise networks and exact scores, which only vectors have: those of the authors' code."""

LARGE = {"g_clip": "off", "resample_below": 0.5, "ess_floor": 0.5}
"""The values of 'auto' with velocity networks.  The rate grows with the dimension.  On images and trajectories a bound of 15
applies in most steps and makes all weights equal; without any bound one of 16 particles becomes the only ancestor.  The values
were found on seen combinations (experiments/guidance_weights.py)."""


class Swarm(MethodSettings):
    num_particles: int = Field(16, ge=1, le=1 << 16, description="K: particles of one sample's swarm")
    g_clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto", "off"] = Field(
        "auto",
        description="bound of the log-weights' rate, before multiplication by the step size; 'off': none; "
        "'auto': the authors' 15 with noise networks and exact scores, none with velocity networks",
    )
    resample_below: Share | Literal["auto"] = Field(
        "auto",
        description="resample where ESS <= this share of K; 1: every step, 0: never; "
        "'auto': every step with noise networks and exact scores, as the authors do, and 0.5 with velocity networks",
    )
    ess_floor: Share | Literal["auto"] = Field(
        "auto",
        description="temper each step's weights so that ESS stays at this share of K; 0: never; "
        "'auto': never with noise networks and exact scores, and 0.5 with velocity networks (not in the paper)",
    )
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
    auto = PLANAR if score_models.has_score_at_data(model) else LARGE
    g_clip, resample_below, ess_floor = (auto[name] if value == "auto" else value for name, value in _chosen(settings).items())
    swarms = Swarms(
        num_steps=0,  # the model knows the budget's number of steps
        clip=float("inf") if g_clip == "off" else g_clip,
        resample_below=resample_below,
        ess_floor=ess_floor,
        last_weight=auto is PLANAR,  # otherwise a network's error, divided by sigma = 0, would choose the sample
        scheme=settings.scheme,
    )
    drawn = score_models.draw_composition(
        model, request, ctx, settings=swarms, num_particles=settings.num_particles, weight=settings.weight
    )
    return drawn.x


def _chosen(settings: Swarm) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in PLANAR}


def evaluations(settings: Swarm, problem: Problem) -> int:
    """Every member of the composition for every particle at both ends of every step."""
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
            version=4,
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
