"""Mono with factor dropout, composed by slices: v = v(NULL) + sum_k w_k (v(c_k) - v(NULL)), c_k with factor k alone.

The slice-CFG baseline of Compositional Flow Matching with Factored Velocity Fields (FVF), after Composable Diffusion
(Liu et al. 2022): the task's guidance weight on the factors that the holdout is about.  F + 1 evaluations a step, the
first half of the network shared.

Masks are the paper's: each factor by itself with chance 0.1, so of six factors one example in a million is NULL and nine are one
factor alone.  Other methods that compose around NULL have masks under which no share vanishes (`compbench.flow.masking`).

Theirs: the fit has 25,600,000 examples and sees NULL 26 times.
Ours: at `standard` it has 211,200 on Shapes3D and sees NULL 0.2 times; `--preset paper` has the paper's.
Why: `standard` is half an hour of two cores.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench import Batch, Context, Method, MethodSettings, Problem, Request, hookimpl
from compbench.flow import score_models
from compbench.flow.compose import GuidanceWeight, around_null, compose
from compbench.flow.masking import Dropout, masked
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train


class Settings(MethodSettings):
    head_width: float = Field(
        1.0, gt=0, le=8, description="hidden units of the head over the protocol's 6 C (1536 at the paper's width)"
    )
    factor_dropout: float = Field(0.1, ge=0, lt=1, description="chance that a factor is masked in training, each for itself")
    holdout_weight: GuidanceWeight = Field(
        "task", description="w_k of the factors that the holdout is about; 'task': as all composed rows (3 under FVF's paper)"
    )
    other_weight: float = Field(1.0, ge=0, le=20, description="w_k of all other factors")


def build(settings: Settings, problem: Problem) -> VelocityNet:
    """The untrained network."""
    return monolithic_net(problem, head_width=settings.head_width)


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching on all training data, with factors masked at random."""

    def loss(net: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        law = Dropout(settings.factor_dropout)
        return flow_matching_loss(net, batch._replace(condition=masked(batch.condition, law, generator)), generator)

    net = build(settings, problem)
    train(net, loss, problem.federation.pooled(), problem.budget, ctx)
    return net


def fit_facts(settings: Settings, problem: Problem) -> dict[str, object]:
    """Around NULL and with the protocol's head it is a fit of those that compose scores; else one for all weights."""
    own = {"factor_dropout": settings.factor_dropout}
    if settings.head_width == 1 and not score_models.composes_around_base(problem):
        return score_models.fit_facts(score_models.ModelSettings(even_masks=0.0, **own), problem)
    return {"fit": "slice-cfg", "head_width": settings.head_width, **own}


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the composed velocity; a factor that is asked as NULL adds nothing."""
    weights = net.guidance.weights(settings.holdout_weight, other=settings.other_weight, notes=ctx.notes)
    composition = around_null(request.condition, weights)

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return compose(net, x, t, composition)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """The NULL and one slice a factor, each step."""
    return problem.budget.sample_steps * (len(problem.space) + 1)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="slice-cfg",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=evaluations,
            shared_fit=fit_facts,
            version=2,
        ),
    )
