"""Annealed Markov chains on composed scores: at each noise level some moves that keep the composition's own density.

mcmc         Annealed MALA, HMC, ULA or U-HMC on the composed score; acceptance by line integrals of the score.
mcmc-oracle  Annealed Markov chains on the task's analytic scores, accepted by its exact densities.

Reduce, Reuse, Recycle (Du et al. 2023), section 4, with the acceptance of Sjoberg et al. 2023 (arXiv 2307.14012), so that
networks serve as they are.  Step sizes are shares of the level's own scale, not the paper's tables; a task's levels are this
method's, not the budget's steps.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, MethodSettings, Problem, Request, hookimpl
from compbench.flow import markov_chains as mcmc
from compbench.flow import score_models


class Chains(MethodSettings):
    kernel: Literal["ula", "uhmc", "mala", "hmc"] = Field(
        "mala", description="Langevin or Hamiltonian moves, accepted by a test (mala, hmc) or not (ula, uhmc)"
    )
    num_levels: int = Field(40, ge=1, le=10_000, description="noise levels, evenly spaced; a deterministic step leads to each")
    num_inner: int = Field(3, ge=0, le=10_000, description="L: moves of the chain at each level")
    step_size: float = Field(
        0.5,
        gt=0,
        le=100,
        description="eta of a move over the level's mean variance in the plane; mala and hmc shrink it with dimension",
    )
    num_leapfrog: int = Field(2, ge=1, le=1000, description="leapfrog steps of a Hamiltonian move")
    damping: float = Field(0.5, ge=0, lt=1, description="share of the momentum that a Hamiltonian move keeps")
    line_points: int = Field(2, ge=2, le=100, description="points of the line integral in the acceptance; 2 costs nothing")
    smallest_sigma: float = Field(
        0.0, ge=0, lt=1, description="levels with less noise have no chain; there a learnt score is mostly error"
    )


class OracleSettings(Chains, score_models.WeightSettings):
    pass


class Settings(Chains, score_models.ModelSettings):
    smallest_sigma: float = Field(
        0.1, ge=0, lt=1, description="levels with less noise have no chain; there a learnt score is mostly error"
    )


def chains(settings: OracleSettings | Settings, edge: float) -> mcmc.Settings:
    """The sampler's settings out of the method's."""
    return mcmc.Settings(**{name: getattr(settings, name) for name in Chains.model_fields}, edge=edge)


@torch.no_grad()
def sample(settings: OracleSettings | Settings, model: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """One chain a request, from its x0; the share of accepted moves at each level is noted."""
    generator = score_models.on_device(ctx.generator, request.x0.device)
    samples, acceptance = torch.empty_like(request.x0), []
    compose = score_models.perturbations(model, settings.weight, ctx)
    for part in score_models.compositions(model, request, ctx, compose=compose):
        found = mcmc.anneal(
            part.members,
            part.path,
            request.x0[part.rows],
            chains(settings, part.edge),
            generator,
            pilots=part.pilots,
            known=part.known,
        )
        samples[part.rows] = found.x
        acceptance.append(found.acceptance)
    ctx.notes["acceptance"] = [round(sum(level) / len(level), 4) for level in zip(*acceptance, strict=True)]
    return samples


def evaluations(settings: OracleSettings | Settings, problem: Problem) -> int:
    """Every member of the composition, at each level and each move."""
    path, edge = score_models.path_of(problem)
    return score_models.num_members(problem) * mcmc.num_evaluations(chains(settings, edge), path)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    both = partial(Method, sample=sample, evaluations=evaluations, couples_rows=True)  # pilots of all rows set the steps
    return (
        both(
            name="mcmc",
            settings=Settings,
            fit=score_models.fit,
            build=score_models.build,
            shared_fit=score_models.fit_facts,
        ),
        both(name="mcmc-oracle", settings=OracleSettings, fit=score_models.oracle_of, oracle=True),
    )
