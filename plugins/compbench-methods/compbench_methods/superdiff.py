"""Superposed diffusions: all members of a composition at equal density along the whole path.

superdiff         AND of the factors' models: mixing weights that keep their log densities equal, followed along the path.
superdiff-oracle  The same on the task's analytic scores.

SuperDiff (Skreta et al. 2024, arXiv 2412.17762), AND.  Its law is a surface of equal density and not the product that the
planar tasks ask for: a gap of definition, which their boards show.  Members are the perturbations of the base, or the factors
alone; factors that are left open do not count.
"""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import NULL, Context, Method, MethodSettings, Problem, Request, Weighted, hookimpl
from compbench.flow import score_models
from compbench.flow.compose import around_null
from compbench.flow.scores import around_base, merged
from compbench.flow.smc import given, schedule
from compbench.flow.superposition import follow_all
from compbench.flow.swarms import levels


class Superposition(MethodSettings):
    ridge: float = Field(
        0.1, gt=0, le=1e6, description="pull of the mixing weights towards even shares, in squared nats of inequality"
    )


class OracleSettings(Superposition):
    pass


class Settings(Superposition, score_models.ModelSettings):
    pass


def factors_alone(condition: Tensor, base: tuple[int, ...]) -> list[Weighted]:
    """Each factor's own condition, weight 1: perturbations that are none of the base, or slices, (B, F) each."""
    ones = [1.0] * condition.shape[1]
    if not base:
        return around_null(condition, ones)[1:]
    moved = [member for member in around_base(condition, base, ones)[1:] if tuple(member.condition[0].tolist()) != tuple(base)]
    still = Weighted(1.0, condition.new_tensor(base).expand_as(condition))
    return [member._replace(weight=1.0) for member in merged(moved or [still])]


@torch.no_grad()
def sample(settings: OracleSettings | Settings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler-Maruyama's steps of the superposed score from each request's x0; given entries stay on their path and lead."""
    generator, steps = score_models.on_device(ctx.generator, request.x0.device), model.sample_steps
    samples = torch.empty_like(request.x0)
    for part in score_models.compositions(model, request, ctx, compose=factors_alone):
        x0, asked = request.x0[part.rows], request.condition[part.rows]
        active = (asked != NULL).T  # (F, B)
        if part.around_base:
            active = torch.ones(len(part.members.weights), len(x0), dtype=torch.bool, device=x0.device)
        ends = levels(part.path, steps, part.edge)

        def keep(x: Tensor, number: int, part=part, x0=x0, ends=ends) -> Tensor:
            if part.known is None:
                return x
            alpha, sigma = (1.0, 0.0) if number + 1 == steps else ends[number + 1][1:]
            return part.known.on_path(x, x0, alpha, sigma)

        samples[part.rows] = follow_all(
            part.members.scores,
            active | ~active.any(0),  # where nothing is asked for all members are one
            schedule(part.path, steps, part.edge),
            x0,
            generator,
            ridge=settings.ridge,
            last_noise=part.alike,
            keep=keep,
            led=None if part.known is None else partial(given, path=part.path, known=part.known.with_particles()),
        )
    return samples


def evaluations(settings: Superposition, problem: Problem) -> int:
    """One member a factor, each step."""
    return len(problem.space) * problem.budget.sample_steps


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    both = partial(Method, sample=sample, evaluations=evaluations)
    learned = {"fit": score_models.fit, "build": score_models.build, "shared_fit": score_models.fit_facts}
    return (
        both(name="superdiff", settings=Settings, version=2, **learned),
        both(name="superdiff-oracle", settings=OracleSettings, fit=score_models.oracle_of, oracle=True),
    )
