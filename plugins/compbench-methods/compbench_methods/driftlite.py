"""Weighted particles with a control that keeps their weights even.

driftlite         Weighted particles with a drift that keeps weights even: a few coefficients, chosen at every step.
driftlite-oracle  DriftLite's particles on the task's analytic scores, with exact divergences.

DriftLite (Ren et al. 2025, arXiv 2509.21655), variance-controlling guidance, for products of models.  If all requests share one
composition of a noise network's scores or of exact ones, the coefficients come from pilot particles, which belong to no request.
With velocity networks all swarms of a part of the requests share coefficients, which their particles determine together.  If
these are too few (20 independent points per coefficient; 27 requests of two factors with 4 particles each), there is no control,
and the particles are only weighted.

With learnt scores the divergence is Hutchinson's estimate with one probe, which adds one point to each evaluation.  The estimate
is a difference of scores at near points, so the networks run in fp32 whatever the run's precision.

Up to version 2, driftlite took that difference in bf16 if the run had that precision, and the rounding was many times the
divergence.  With velocity networks each swarm fitted coefficients to its own few particles, so weights were even and corrected
little.  These swarms were also never resampled, because tempered weights end at the very ESS below which particles are resampled.
"""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, Problem, Request, hookimpl
from compbench.flow import score_models, swarms
from compbench.flow.control import controlled_step, least_swarms
from compbench.flow.swarms import steps_of


class Particles(score_models.SwarmSettings):
    num_particles: int = Field(4, ge=1, le=1 << 16, description="K: particles of one sample's swarm")
    num_pilots: int = Field(
        256, ge=1, le=1 << 16, description="smallest number of pilot particles, from which coefficients are estimated"
    )
    ridge: float = Field(
        1e-3, gt=0, le=1e3, description="added to the variances of the basis drifts when solving for the coefficients"
    )


class OracleSettings(Particles):
    pass


class Settings(Particles, score_models.ModelSettings):
    pass


@torch.no_grad()
def sample(settings: OracleSettings | Settings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """One particle of each request's swarm, drawn by weight after the last step; pilots form separate swarms."""
    pilots = -(-settings.num_pilots // settings.num_particles)

    def step_of(part: score_models.Composition, num_steps: int, generator: torch.Generator) -> swarms.Step:
        return controlled_step(
            part.exact,
            part.led,
            part.path,
            num_steps,
            generator,
            edge=part.edge,
            num_pilots=pilots if part.alike else 0,
            ridge=settings.ridge,
            last_noise=part.alike,
        )

    least = least_swarms(request.condition.shape[1] + 2, settings.num_particles)  # coefficients of F + 1 scores and of x
    return score_models.draw_swarms(model, request, ctx, step_of, settings=settings, num_pilots=pilots, least_rows=least)


def evaluations(settings: Particles, problem: Problem) -> int:
    """Every member of the composition for every particle at each step; a divergence counts as one more, a pilot as none."""
    steps = steps_of(settings.num_steps, problem.budget.sample_steps)
    return 2 * settings.num_particles * score_models.num_members(problem) * steps


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    both = partial(Method, sample=sample, evaluations=evaluations)
    learned = {"fit": score_models.fit, "build": score_models.build, "shared_fit": score_models.fit_facts}
    return (  # oracles have pilots; with velocity networks all rows determine the coefficients
        both(name="driftlite", settings=Settings, version=3, couples_rows=True, **learned),
        both(name="driftlite-oracle", settings=OracleSettings, fit=score_models.oracle_of, oracle=True),
    )
