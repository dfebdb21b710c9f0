"""Weighted particles whose weights come from transition densities instead of rates.

rne         Weighted particles that correct the summed scores: no divergence, no clip, finite weights.
rne-oracle  RNE's particles on the task's analytic scores, weighted by the exact densities: right at any number of steps.

Radon-Nikodym estimator (He et al. 2025, arXiv 2506.05668).  Particles, resampling and steps are those of fkc, but a step draws
from the kernel between two noise levels instead of taking an Euler-Maruyama step.

Up to version 2, rne also summed its members' scores in bf16 if the networks ran in bf16, and with velocity networks it never
resampled, because tempered weights end at the very ESS below which particles are resampled.

Theirs: weights come from the kernels; whether they are tempered is not known to us, since we have no copy of the paper.
Ours: with velocity networks each step's weights are tempered, so that half of a swarm's particles stay effective.  rne-oracle
takes the task's densities instead of the kernels; with `exact=false` it takes the kernels.
Why: a network's errors grow with the dimension, and one particle would get all the weight; densities are right at any number of
steps.

Theirs: the last step draws from the kernel, too.
Ours: with velocity networks the last step ends at the kernel's mean, as in naive-sde, fkc, driftlite and superdiff; its weight
does not depend on the draw.  In the plane, with noise networks and oracles, the draw remains.
Why: the draw would leave noise of standard deviation 0.05 (20 steps) in every entry of a sample.

Figures: this project has no copy of the paper, so none of its figures is reproduced.  The log of the particles' mean weight
should be the log of the product's normaliser: by quadrature that is 0.644, -0.551, -0.283 and -6.788 on gauss2d-nonfact-id,
gauss2d-nonfact-ood, gmm-id and gmm-ood; ours is 0.668, -0.546, -0.291 and -6.626 by kernels in 200 steps, and 0.643, -0.541,
-0.284 and -6.740 by densities in 60 (`tests/flow/test_normaliser.py`).

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
from compbench.flow.swarms import steps_of
from compbench.flow.transitions import log_density_of, transition_step


class OracleSettings(score_models.SwarmSettings):
    exact: bool = Field(True, description="weights by the task's densities; false: by the members' kernels, as rne has them")


class Settings(score_models.SwarmSettings, score_models.ModelSettings):
    pass


@torch.no_grad()
def sample(settings: OracleSettings | Settings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """One particle of each request's swarm, drawn by weight after the last step."""
    by_density = isinstance(settings, OracleSettings) and settings.exact

    def step_of(part: score_models.Composition, num_steps: int, generator: torch.Generator) -> swarms.Step:
        density = log_density_of(part.members) if by_density else None
        composed = part.led or part.members.composed
        ends = {"log_density": density, "last_noise": part.alike}
        return transition_step(composed, part.path, num_steps, part.edge, generator, **ends)

    return score_models.draw_swarms(model, request, ctx, step_of, settings=settings)


def evaluations(settings: score_models.SwarmSettings, problem: Problem) -> int:
    """Every member of the composition, for every particle, at each step's beginning; with densities also at the last end."""
    calls = steps_of(settings.num_steps, problem.budget.sample_steps) + isinstance(settings, OracleSettings)
    return settings.num_particles * score_models.num_members(problem) * calls


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    both = partial(Method, sample=sample, evaluations=evaluations)
    learned = {"fit": score_models.fit, "build": score_models.build, "shared_fit": score_models.fit_facts}
    return (
        both(name="rne", settings=Settings, version=3, **learned),
        both(name="rne-oracle", settings=OracleSettings, fit=score_models.oracle_of, oracle=True),
    )
