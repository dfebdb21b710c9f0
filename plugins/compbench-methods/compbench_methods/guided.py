"""Two ways to guide slices of one fitted model: a weight that applies only at some times, and guidance of the denoised estimate.

interval-cfg  Slices with their weight only inside an interval of noise levels, and weight 1 outside it.
cfg-plus      Slices guided in the denoised estimate and renoised by the unconditional velocity, with a weight in [0, 1].

Both compose v(NULL) + sum_k w_k (v(c_k) - v(NULL)) as slice-cfg does, on the fit that naive-ode, naive-sde and fkc share, with
the task's w on the holdout's factors and 1 on the others.

Kynkaanniemi et al. 2024 (arXiv 2404.07724) and CFG++ (Chung et al. 2024, arXiv 2406.08070).

Theirs: the whole condition of one class or prompt is guided.
Ours: slices are guided.
Why: a combination that was never seen has to be composed.

Theirs: interval and weight are chosen for each network; for the largest network on ImageNet guidance is on at
17 to 22 of 32 steps, which is sigma 1.61 to 0.28 and t = 0.38 to 0.78 on our path.
Ours: the interval is t = 0.2 to 0.8, and the weight is the task's.
Why: all composed rows of a task have one weight.

Theirs: lambda = 0.6 at 50 steps of CFG++ corresponds to w = 7.5.
Ours: lambda_k is chosen so that the mean Euler weight over the run's n steps is the task's w_k, as below.
Why: the more steps there are, the more strongly one lambda guides.

On the linear path a step of CFG++ from t to t' = t + h is Euler's step with the weight lambda t' (1 - t) / h.  So

    lambda_k = 6 n w_k / ((n + 1) (n + 2)),    at most 1, the end of the authors' range.

Figures: this project has the authors' settings and no copy of their papers, so none of their figures is reproduced.  By the
formula above lambda = 0.6 is w = 2.3, 4.3 and 10.3 at 20, 40 and 100 steps, and so is the mean of the steps' weights
(`plugins/compbench-methods/tests/test_guided.py`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from compbench import Context, Method, Problem, Refused, Request, hookimpl
from compbench.flow import score_models
from compbench.flow.compose import GuidanceWeight, around_null, compose, stacked
from compbench.flow.solver import Known, answer

Strength = Annotated[float, Field(ge=0, le=1)] | Literal["task"]
"""lambda; with "task" the mean Euler weight equals the weight that the task gives to all composed rows."""


class IntervalSettings(score_models.ModelSettings):
    weight: GuidanceWeight = Field(
        "task", description="w_k of the holdout's factors inside the interval; 'task': as in all composed rows"
    )
    begin: float = Field(0.2, ge=0, le=1, description="t (0 noise, 1 data) from which the weight applies")
    end: float = Field(0.8, ge=0, le=1, description="t up to which the weight applies")

    @model_validator(mode="after")
    def _is_an_interval(self) -> IntervalSettings:
        if self.begin > self.end:
            raise ValueError(f"begin must not be after end, got {self.begin:g} and {self.end:g}")
        return self


class PlusSettings(score_models.ModelSettings):
    strength: Strength = Field(
        "task",
        description="lambda of the holdout's factors: 0 ignores the condition, 1 is each slice's own estimate;"
        " 'task': the lambda whose mean weight is the task's w",
    )


def fit(settings: score_models.ModelSettings, problem: Problem, ctx: Context) -> nn.Module:
    """The fit of score-composing methods; refused if the task composes around a base, whose model has no NULL."""
    if score_models.composes_around_base(problem):
        raise Refused("guidance needs a model of NULL, and this task composes around a base combination.")
    return score_models.fit(settings, problem, ctx)


@torch.no_grad()
def in_interval(settings: IntervalSettings, net: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along slices whose weight depends on the time."""
    inside = around_null(request.condition, net.guidance.weights(settings.weight, notes=ctx.notes))
    outside = around_null(request.condition, [1.0] * request.condition.shape[1])
    steps = iter(range(net.sample_steps))

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        time = next(steps) / net.sample_steps  # the solver's own time, without waiting for the device
        with ctx.autocast():
            return compose(net, x, t, inside if settings.begin <= time <= settings.end else outside)

    return answer(velocity, request, num_steps=net.sample_steps)


def strength_of(weight: float, num_steps: int) -> float:
    """lambda in [0, 1] whose Euler weight lambda t' (1 - t) / h has the mean `weight` over n steps: 6 n w / ((n + 1) (n + 2))."""
    return min(1.0, 6 * num_steps * weight / ((num_steps + 1) * (num_steps + 2)))


@torch.no_grad()
def renoised(settings: PlusSettings, net: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """x' = t' E_guided[x1] + (1 - t') E_NULL[x0]: on the linear path E[x1] = x + (1 - t) v and E[x0] = x - t v.

    This rule defines the method, so given entries only stay on their path: they do not guide the other entries as they do in
    `solver.conditioned`.
    """
    known, x, count = Known.of(request), request.x0, net.sample_steps
    strengths = [strength_of(weight, count) for weight in net.guidance.weights(settings.weight, notes=ctx.notes)]
    if settings.strength != "task":
        strengths = [settings.strength if held else own for held, own in zip(net.guidance.factors, strengths, strict=True)]
    members = around_null(request.condition, strengths)
    conditions = torch.stack([member.condition for member in members])
    for step in range(count):
        t, after = step / count, (step + 1) / count
        with ctx.autocast():
            velocities = stacked(net, x, x.new_full((len(x),), t), conditions).float()
        guided = sum((m.weight * v for m, v in zip(members, velocities, strict=True)), torch.zeros_like(x))
        x = after * (x + (1 - t) * guided) + (1 - after) * (x - t * velocities[0])
        if known is not None:
            x = known.on_path(x, request.x0, after, 1 - after)
    return x


def evaluations(settings: score_models.ModelSettings, problem: Problem) -> int:
    """NULL and one slice per factor at each step."""
    return problem.budget.sample_steps * score_models.num_members(problem)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    shared = {
        "fit": fit,
        "build": score_models.build,
        "evaluations": evaluations,
        "shared_fit": score_models.fit_facts,
        "needs": ("null",),
    }
    return (
        Method(name="interval-cfg", settings=IntervalSettings, sample=in_interval, version=2, **shared),
        Method(name="cfg-plus", settings=PlusSettings, sample=renoised, version=2, **shared),
    )
