"""Superposed diffusions: all members of a composition at equal density along the whole path.

superdiff         AND of the factors' models: mixing weights keep their log densities equal along the path.
superdiff-oracle  SuperDiff's AND on the task's analytic scores.

    s = s_0 + g (sum_a kappa_a s_a - s_0),    sum_a kappa_a = 1,    log p_a equal for all a after the guided step

SuperDiff (Skreta et al. 2024, arXiv 2412.17762), AND.  Its samples lie on a surface of equal density and do not follow the
product that the planar tasks request.  The two definitions differ, and the boards of these tasks show it.

The field and the equation for kappa are the authors'.  g = 1 is AND without guidance.  The members are the perturbations of a
base, with the base's score s_0; or the single factors, with the score s_0 at NULL.  Factors that a request leaves open are not
members.

Theirs: there are two prompts a, with guidance g = 7.5 around the unconditional model s_0.
Ours: g defaults to the sum of the weights w_k that all composed rows of the task have (w F if the holdout concerns all factors).
If the densities of the members are equal, kappa is w_k / g, and the field is the composition of the other rows.
Why: with F factors kappa gives each factor 1 / F of g.

Theirs: there is no ridge.
Ours: a ridge keeps kappa near w_k / g if scores agree or learnt densities are coarse; for samples of D numbers it is (D / 2)^2,
and 0.01 with exact densities.
Why: with a ridge of 0.01, samples of a briefly trained network are nearest to another combination (clause `learns` of `compbench
check`).  The effect of kappa on densities grows with D even if scores differ by the network's error alone, and the ridge is
weighed against its square.  On shapes3d-heavy 0.42 of the seen pairs are right with a ridge of 1, 0.55 with 100, 0.85 with 1e4,
0.95 with 1e6, and 0.96 with 'size', 3.8e7 (seed 0; `compbench run --method superdiff --task shapes3d-heavy --preset standard
--precision bf16 --set ridge=1e4`).  The larger the ridge, the closer the method is to the fixed weights of `naive-sde`.

Theirs: there are 1,000 steps.
Ours: there are as many steps as the task has.
Why: all rows of a task have one number of steps.

Figures: the authors' figures of AND on images need Stable Diffusion and prompts, which no task here has.  For six Gaussians
that each ask for 2 on an axis of their own the mean should be 2 / 6 = 0.333 without guidance and 2 with g = 6; ours is 0.337
and 2.026 (`tests/flow/test_superposition.py`).

Size: on vectors with a base the score network is that of Catastrophic Compositional Generation, appendix F: four hidden layers,
here of the budget's width.  So it has 0.14 of the parameters of `factored` in the plane and 0.09 to 0.15 on constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import NULL, Context, Method, Problem, Request, Weighted, hookimpl
from compbench.flow import score_models
from compbench.flow.scores import composition, merged
from compbench.flow.smc import given, schedule
from compbench.flow.superposition import Asked, follow_all
from compbench.flow.swarms import levels
from compbench.flow.transfer import numbers

Guided = Annotated[float, Field(ge=0, le=1000)] | Literal["task"]
"""g; "task" is the sum of the weights that the task gives to all composed rows."""


Ridge = Annotated[float, Field(gt=0, le=1e12)] | Literal["size"]
"""In squared nats over squared time; "size" is (D / 2)^2 for samples of D numbers."""


class Superposition(score_models.WeightSettings):
    guidance: Guided = Field("task", description="g around the unconditional model; 'task': the sum of w; 1: no guidance")


class OracleSettings(Superposition):
    ridge: float = Field(0.01, gt=0, le=1e6, description="as superdiff's; with exact densities a smaller ridge works")


class Settings(Superposition, score_models.ModelSettings):
    ridge: Ridge = Field(
        "size",
        description="pull of the mixing weights towards w / sum of w, in squared nats over squared time; 'size': (D / 2)^2",
    )


def members_of(condition: Tensor, base: Sequence[int], weights: Sequence[float]) -> list[Weighted]:
    """The unconditional member first, then each factor's own condition with its w_k, (B, F) each.

    Around NULL the members are slices; around a base they are its perturbations, without those equal to the base or repeated.
    """
    origin, *alone = composition(condition, base, weights)
    origin = origin._replace(weight=1.0)  # g determines its weight
    if not base:
        return [origin, *alone]
    moved = [member for member in alone if tuple(member.condition[0].tolist()) != tuple(base)]
    return [origin, *((moved and merged(moved)) or [origin])]


def asked_of(condition: Tensor, part: score_models.Composition, guidance: Guided) -> Asked:
    """Shares w_k / sum w of the members that count, and g, for each request."""
    w = numbers(part.members.weights[1:], condition.device, torch.float64)[:, None]  # (C, 1)
    told = (
        torch.ones(len(w), len(condition), dtype=torch.bool, device=w.device) if part.around_base else condition.T != NULL
    )  # (C, B)
    w = w * told  # (C, B)
    even = torch.where(told.any(0), told, True).double()  # if a request gives no factor, all members are equal
    total = w.sum(0)
    shares = torch.where(total > 0, w, even)
    return Asked(shares / shares.sum(0), total if guidance == "task" else torch.full_like(total, guidance))


@torch.no_grad()
def sample(settings: OracleSettings | Settings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler-Maruyama's steps of the superposed score from each request's x0; given entries stay on their path and guide."""
    generator, steps = score_models.on_device(ctx.generator, request.x0.device), model.sample_steps
    weights = model.guidance.weights(settings.weight, notes=ctx.notes)
    ridge = (request.x0[0].numel() / 2) ** 2 if settings.ridge == "size" else settings.ridge
    samples = torch.empty_like(request.x0)
    for part in score_models.compositions(model, request, ctx, compose=partial(members_of, weights=weights)):
        x0 = request.x0[part.rows]
        ends = levels(part.path, steps, part.edge)

        def keep(x: Tensor, number: int, part=part, x0=x0, ends=ends) -> Tensor:
            if part.known is None:
                return x
            alpha, sigma = (1.0, 0.0) if number + 1 == steps else ends[number + 1][1:]
            return part.known.on_path(x, x0, alpha, sigma)

        samples[part.rows] = follow_all(
            part.members.scores,
            asked_of(request.condition[part.rows], part, settings.guidance),
            schedule(part.path, steps, part.edge),
            x0,
            generator,
            ridge=ridge,
            last_noise=part.alike,
            keep=keep,
            led=None if part.known is None else partial(given, path=part.path, known=part.known.with_particles()),
        )
    return samples


def evaluations(settings: Superposition, problem: Problem) -> int:
    """The unconditional model, or the base's, and one member per factor at each step."""
    return score_models.num_members(problem) * problem.budget.sample_steps


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    guided = {"guidance": "task,1:20"}
    both = partial(Method, sample=sample, evaluations=evaluations, search=guided)
    learned = {"fit": score_models.fit, "build": score_models.build, "shared_fit": score_models.fit_facts}
    sized = guided | {"ridge": "size,0.1:1e6:log"}
    return (
        both(name="superdiff", settings=Settings, version=5, search=sized, **learned),
        both(name="superdiff-oracle", settings=OracleSettings, fit=score_models.oracle_of, oracle=True, version=2),
    )
