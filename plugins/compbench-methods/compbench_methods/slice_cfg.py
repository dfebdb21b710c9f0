"""Mono with factor dropout, composed by slices: v = v(NULL) + sum_k w_k (v(c_k) - v(NULL)), c_k with factor k alone.

The slice-CFG baseline of Compositional Flow Matching with Factored Velocity Fields (FVF), after Composable Diffusion
(Liu et al. 2022).  The task's guidance weight applies to the factors of the holdout.  A step takes F + 1 evaluations, which share
the first half of the network.

The masks are the paper's: each factor is masked independently with chance 0.1.  With six factors one example in a million is
NULL, and for each factor nine in a million show it alone.  coind and coind-not have their own paper's masks, which seldom draw
NULL or a factor alone, too.  All other methods that compose around NULL have masks that draw NULL and single factors more often:
of six factors, 7 percent of the examples are NULL, and 1.3 percent show each factor alone (`compbench.flow.masking`).

Theirs: the fit has 25,600,000 examples and sees NULL 26 times.
Ours: at `standard` it has 211,200 on Shapes3D and sees NULL 0.2 times; `--preset paper` has the paper's number.
Why: `standard` is limited to half an hour on two cores.

Size: on sat-20 the network, which is mono's, has 0.66 of the parameters of `factored`, each of whose 12 heads has as many
hidden units as each of the paper's six.
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
        1.0, gt=0, le=8, description="hidden units of the head, in multiples of the protocol's 6 C (1536 at the paper's width)"
    )
    factor_dropout: float = Field(0.1, ge=0, lt=1, description="chance that training masks a factor, independently of the others")
    holdout_weight: GuidanceWeight = Field(
        "task", description="w_k of the holdout's factors; 'task': as in all composed rows (3 under FVF's paper)"
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
    """What the fit depends on: with the protocol's head it is the fit of the score-composing methods; guidance has no effect."""
    own = {"factor_dropout": settings.factor_dropout}
    if settings.head_width == 1 and not score_models.composes_around_base(problem):
        return score_models.fit_facts(score_models.ModelSettings(even_masks=0.0, **own), problem)
    return {"fit": "slice-cfg", "head_width": settings.head_width, **own}


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the composed velocity; a factor that the request leaves open adds nothing."""
    weights = net.guidance.weights(settings.holdout_weight, other=settings.other_weight, notes=ctx.notes)
    composition = around_null(request.condition, weights)

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return compose(net, x, t, composition)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """NULL and one slice per factor at each step."""
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
