"""Annealed Markov chains on composed scores: at each noise level, some moves that leave the composition's density invariant.

mcmc         Annealed Markov chains on the summed scores: MALA, HMC, ULA or U-HMC, accepted by line integrals of the score.
mcmc-oracle  Annealed Markov chains on the task's analytic scores, accepted by its exact densities.

Reduce, Reuse, Recycle (Du et al. 2023), section 4, with the acceptance of Sjoberg et al. 2023 (arXiv 2307.14012), so that
networks need no change.

On vectors a sample takes as many evaluations as fkc's default (16 particles at the budget's steps), so that chains and particles
are compared at equal cost.  There is one level for each of the budget's steps, and as many moves per level as the cost allows.
With 100 steps this gives 100 levels of 15 moves on exact densities, and on learnt scores 90 of 8.  On vectors the line integral
has 3 points, the fewest that Sjoberg et al. used, because 2 points distort mixtures.

Up to version 3, mcmc's chains went on until sigma 0.1.  A network's score is its answer divided by sigma, and so is its error:
seen points of all six tasks of the plane were 1.4 to 2.1 times as far from real ones as with 0.3 (seed 0; `compbench run --method
mcmc --task gauss2d-nonfact-id --preset standard --precision bf16 --set smallest_sigma=0.1`).

Up to version 2, mcmc summed its members' scores in bf16 if the networks ran in bf16.  On images the rounding was larger than the
log ratios, so hardly any move was accepted.

Theirs: step sizes come from tables.
Ours: they are fractions of the level's own scale.
Why: one rule serves all tasks.

Theirs: in the plane there are 100 levels of 10 moves.
Ours: there are as many moves as fkc's evaluations allow: 100 levels of 15, or 90 of 8.
Why: chains and particles are compared at equal cost.

Theirs: on images there are 10 moves per level and more.
Ours: on images and trajectories there are 40 levels of 3 moves, and the line integral has 2 points.
Why: more would cost too much.

Theirs: the authors' public code moves by adjusted HMC.  In the plane no step leads from one level to the next, and on images a
stochastic one does.
Ours: moves are Langevin's (`kernel=hmc`: Hamiltonian), and a deterministic step leads to the next level.  A velocity network that
predicts x1 is clamped where 1 - t < 0.05, so of 40 levels the last one, t = 0.975, leaves half of its noise in pictures and
plans: 0.0125 of the noise at the start.
Why: a Langevin move takes one evaluation, so a level has more of them at fkc's cost, and a step that denoises shortens the way.

Theirs: on images the authors' public code moves no chain in the second half of the steps, whose sigma is below 0.96, or, with
larger networks, in the last twentieth, whose sigma is below 0.1.
Ours: no chain moves where sigma is below 0.3, if the score is learnt.
Why: of 0.1, 0.3 and 0.5, this gave the best seen points on four of the six tasks of the plane.  Boards of queens lose by it:
0.32 of queens-8's seen boards are valid, and 0.48 were with 0.1 (five seeds); no held-out one is with either.

Figures: this project has no copy of these papers, so none of their figures is reproduced.  The product of gauss2d-nonfact-id
has variance 20 / 21 = 0.952 (Catastrophic Compositional Generation, theorem 1), and 1,500 samples of mcmc-oracle have 0.947
(`plugins/compbench-methods/tests/test_scores.py`).

Size: on vectors with a base the score network is that of Catastrophic Compositional Generation, appendix F: four hidden layers,
here of the budget's width.  So it has 0.14 of the parameters of `factored` in the plane and 0.09 to 0.15 on constraints.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, MethodSettings, Problem, Request, hookimpl
from compbench.flow import markov_chains as mcmc
from compbench.flow import score_models
from compbench.flow.path import GaussianPath

NUM_LEVELS, NUM_INNER = 40, 3
"""The values of 'auto' on images and trajectories."""

FKC_PARTICLES = 16
"""The default number of particles of fkc: on vectors a chain has this many evaluations per step, and as many at the start."""


class Chains(MethodSettings):
    kernel: Literal["ula", "uhmc", "mala", "hmc"] = Field(
        "mala", description="Langevin or Hamiltonian moves, with an acceptance test (mala, hmc) or without (ula, uhmc)"
    )
    num_levels: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = Field(
        "auto",
        description="evenly spaced noise levels; a deterministic step leads to each; 'auto': the budget's steps on vectors, "
        "40 elsewhere",
    )
    num_inner: Annotated[int, Field(ge=0, le=10_000)] | Literal["auto"] = Field(
        "auto",
        description="L: moves of the chain at each level; 'auto': as many as fkc's evaluations allow on vectors, 3 elsewhere",
    )
    step_size: float = Field(
        0.5,
        gt=0,
        le=100,
        description="eta of a move as a share of the level's mean variance in the plane; mala and hmc shrink it with dimension",
    )
    num_leapfrog: int = Field(2, ge=1, le=1000, description="leapfrog steps of a Hamiltonian move")
    damping: float = Field(0.5, ge=0, lt=1, description="share of the momentum that a Hamiltonian move keeps")
    line_points: Annotated[int, Field(ge=2, le=100)] | Literal["auto"] = Field(
        "auto",
        description="points of the line integral in the acceptance test if densities are unknown; with 2, hmc uses its "
        "leapfrog points, and nothing is evaluated in addition; 'auto': 3 for mala on vectors, otherwise 2",
    )
    smallest_sigma: float = Field(
        0.0, ge=0, lt=1, description="smallest sigma with a chain; at smaller ones a learnt score is mostly error"
    )


class OracleSettings(Chains, score_models.WeightSettings):
    pass


class Settings(Chains, score_models.ModelSettings):
    smallest_sigma: float = Field(
        0.3, ge=0, lt=1, description="smallest sigma with a chain; at smaller ones a learnt score is mostly error"
    )


class Place(NamedTuple):
    """What 'auto' depends on: whether samples are vectors, the budget's number of steps, and the path."""

    planar: bool
    num_steps: int
    path: GaussianPath
    edge: float


def chains(settings: OracleSettings | Settings, place: Place) -> mcmc.Settings:
    """The sampler's settings that follow from the method's settings."""
    own = {name: getattr(settings, name) for name in Chains.model_fields}
    exact = isinstance(settings, OracleSettings)
    if exact or own["line_points"] == "auto":  # densities need no line integral
        own["line_points"] = 3 if place.planar and settings.kernel == "mala" and not exact else 2
    if own["num_levels"] == "auto":
        own["num_levels"] = place.num_steps if place.planar else NUM_LEVELS
    if own["num_inner"] == "auto":
        own["num_inner"] = _affordable(own, place) if place.planar else NUM_INNER
    return mcmc.Settings(**own, edge=place.edge)


def _affordable(own: dict[str, Any], place: Place) -> int:
    """The largest number of moves per level, at least one, that costs no more than fkc's particles."""
    without, one = (mcmc.num_evaluations(mcmc.Settings(**{**own, "num_inner": n}, edge=place.edge), place.path) for n in (0, 1))
    return max(1, (FKC_PARTICLES * (place.num_steps + 1) - without) // max(1, one - without))


@torch.no_grad()
def sample(settings: OracleSettings | Settings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """One chain per request, started at its x0; the record notes the share of accepted moves at each level."""
    generator = score_models.on_device(ctx.generator, request.x0.device)
    samples, acceptance = torch.empty_like(request.x0), []
    compose = score_models.perturbations(model, settings.weight, ctx)
    for part in score_models.compositions(model, request, ctx, compose=compose):
        found = mcmc.anneal(
            part.members,
            part.path,
            request.x0[part.rows],
            chains(settings, Place(request.x0.ndim == 2, model.sample_steps, part.path, part.edge)),
            generator,
            pilots=part.pilots,
            known=part.known,
        )
        samples[part.rows] = found.x
        acceptance.append(found.acceptance)
    ctx.notes["acceptance"] = [round(sum(level) / len(level), 4) for level in zip(*acceptance, strict=True)]
    return samples


def evaluations(settings: OracleSettings | Settings, problem: Problem) -> int:
    """Every member of the composition at each level and each move."""
    path, edge = score_models.path_of(problem)
    found = chains(settings, Place(problem.event.kind == "vector", problem.budget.sample_steps, path, edge))
    return score_models.num_members(problem) * mcmc.num_evaluations(found, path)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    both = partial(
        Method,
        sample=sample,
        evaluations=evaluations,
        couples_rows=True,  # pilots of all rows determine the step sizes
        search={"num_levels": "auto,10:160:log", "num_inner": "auto,1:16:log", "line_points": "auto,2:8:log"},
        version=2,
    )
    return (
        both(
            name="mcmc",
            settings=Settings,
            fit=score_models.fit,
            build=score_models.build,
            shared_fit=score_models.fit_facts,
            version=4,
        ),
        both(name="mcmc-oracle", settings=OracleSettings, fit=score_models.oracle_of, oracle=True),
    )
