"""Weighted particles with a control that keeps their weights even.

driftlite         Weighted particles with a drift that keeps weights even: a few coefficients, chosen at every step.
driftlite-oracle  DriftLite's particles on the task's analytic scores, with exact divergences.

DriftLite (Ren et al. 2025, arXiv 2509.21655), variance-controlling guidance.

Theirs: one model is tilted.
Ours: the target is a product of models.
Why: tasks ask for compositions.

Theirs: which particles determine the coefficients is not known to us, since we have no copy of the paper.
Ours: if all requests share one composition of a noise network's scores or of exact ones, the coefficients come from 256 pilot
particles, which belong to no request.  With velocity networks all swarms of a part of the requests share coefficients, which
their particles determine together.  If these are too few (20 independent points per coefficient; 27 requests of two factors
with 4 particles each), there is no control, and the particles are only weighted.  On a CPU, the last batch of requests for
images with six factors, 32 of 480, has no control.
Why: coefficients that are fitted to few particles make weights even and correct little: on gmm-id with exact scores the sliced
Wasserstein distance is 1.2 if each swarm of 4 has its own, and 0.10 if all share them.

Theirs: whether weights are tempered is not known to us.
Ours: with velocity networks each step's weights are tempered, so that half of a swarm's particles stay effective; with noise
networks and exact scores they are not.
Why: a network's errors grow with the dimension, and one particle would get all the weight.

Theirs: how divergences of networks are found is not known to us.
Ours: by Hutchinson's estimate with one probe, which adds one point to each evaluation; driftlite-oracle has exact divergences.
The estimate is a difference of scores at near points, so the networks run in fp32 whatever the run's precision.
Why: an exact divergence takes a derivative for each entry of a sample.

Up to version 2, driftlite took that difference in bf16 if the run had that precision, and the rounding was many times the
divergence.  With velocity networks each swarm fitted coefficients to its own few particles, so weights were even and corrected
little.  These swarms were also never resampled, because tempered weights end at the very ESS below which particles are resampled.

Figures: this project has no copy of the paper, so none of its figures is reproduced.  The log of the particles' mean weight
should be the log of the product's normaliser: by quadrature that is 0.644, -0.551, -0.283 and -6.788 on gauss2d-nonfact-id,
gauss2d-nonfact-ood, gmm-id and gmm-ood; with exact divergences ours is 0.644, -0.551, -0.303 and -6.803
(`tests/flow/test_normaliser.py`).

Size: on vectors with a base the score network is that of Catastrophic Compositional Generation, appendix F: four hidden layers,
here of the budget's width.  So it has 0.14 of the parameters of `factored` in the plane and 0.09 to 0.15 on constraints.
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
