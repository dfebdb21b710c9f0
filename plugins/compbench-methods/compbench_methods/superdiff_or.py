"""Independent experts, one per silo, weighted by their own density of the sample: no router is trained or sent.

    S = sum_k w_k sum_a kappa_ak s_a(x_t, c_k),    kappa_.k = softmax(T log p_a(x_t | c_k) + log n_a)

This is SuperDiff's OR (Skreta et al. 2024, arXiv 2412.17762) over the experts of DDM, for every part of the composition around
NULL.  The experts' log densities are tracked along each sample's path.  A silo reports which values it has, and its expert is
used only for those; the number of examples of each value, by which ddm routes, is not used.  Version 1 did not count, in the
tracked densities, the movement that puts given entries back on their path; samples without given entries are the same.

Theirs: models of whole samples are mixed, and every model has a share.
Ours: experts are mixed separately in each part of the composition, and an expert has no share where its silo never saw the value
(`ask_strangers=True`: it has one).
Why: no silo saw held-out combinations, so these have to be composed; an untrained embedding has no meaning.

Figures: this project has no copy of the paper, so none of its figures of OR is reproduced.  For two silos of Gaussians with
shares of 0.2 and 0.8, 0.80 of the samples should be the second's, and 0.794 are (`tests/flow/test_superposed_silos.py`).

Size: a sample needs the expert of every silo, and each is as large as `mono`: with two silos there are 2.0 times the
parameters of `factored`, with ten 10.0 times.  A silo cannot see the data of others, so its expert has to be a whole network.
"""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from compbench import Context, Method, Problem, Request, hookimpl
from compbench.flow.experts import Experts
from compbench.flow.local_experts import LocalExperts, LocalSettings, fit_facts, made_of_experts
from compbench.flow.mixture import Mixture, composition
from compbench.flow.path import LinearPath
from compbench.flow.score_models import VELOCITY_EDGE, on_device
from compbench.flow.silos import evaluations_of_experts, known_values, network
from compbench.flow.smc import given, schedule
from compbench.flow.solver import Known
from compbench.flow.superposed_silos import SiloPrior, expert_scores, follow_either
from compbench.flow.swarms import levels


class Settings(LocalSettings):
    temperature: float = Field(1.0, ge=0, le=1e6, description="T; 1 is the silos' mixture, 0 weights by the silos' sizes only")
    ask_strangers: bool = Field(False, description="also use a silo's expert for a value that it never saw")


def superposed(settings: Settings, problem: Problem, trained: LocalExperts) -> Mixture:
    """Experts trained on their own silo only, as in DDM, and the values that each of them saw."""
    sizes = torch.tensor(problem.federation.sizes)
    prior = SiloPrior(sizes, known_values(trained.counts, problem.space.sizes).cpu()).to(trained.counts.device)
    return Mixture(trained.experts, prior, sample_steps=problem.budget.sample_steps)


def build(settings: Settings, problem: Problem) -> Mixture:
    """The untrained experts and a prior of the right shape, for stored weights to be loaded into."""
    net, silos, sizes = network(settings, problem), len(problem.federation), problem.space.sizes
    prior = SiloPrior(torch.ones(silos), torch.ones(silos, len(sizes), max(sizes), dtype=torch.bool))
    return Mixture(Experts(net, [net.state_dict()] * silos), prior, sample_steps=problem.budget.sample_steps)


@torch.no_grad()
def sample(settings: Settings, mixture: Mixture, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler-Maruyama's steps from each request's x0; given entries stay on their path and guide the others."""
    weights = mixture.experts.template.guidance.weights(settings.weight, notes=ctx.notes)
    members = composition(request.condition, weights, settings.inference)
    prior = mixture.router(torch.stack([member.condition for member in members]))
    if settings.ask_strangers:
        prior = mixture.router.shares[:, None, None].expand_as(prior)
    scores, path, steps = expert_scores(mixture.experts, members), LinearPath(), mixture.sample_steps
    known, ends = Known.of(request), levels(path, steps, VELOCITY_EDGE)

    def under_autocast(x: Tensor, t: float) -> Tensor:
        with ctx.autocast():
            return scores(x, t)

    def keep(x: Tensor, number: int) -> Tensor:
        alpha, sigma = (1.0, 0.0) if number + 1 == steps else ends[number + 1][1:]
        return x if known is None else known.on_path(x, request.x0, alpha, sigma)

    return follow_either(
        under_autocast,
        [member.weight for member in members],
        prior,
        schedule(path, steps, VELOCITY_EDGE),
        request.x0,
        on_device(ctx.generator, request.x0.device),
        temperature=settings.temperature,
        keep=keep,
        led=None if known is None else partial(given, path=path, known=known.with_particles()),
    )


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    parts = made_of_experts(superposed)
    return (
        Method(
            name="superdiff-or",
            settings=Settings,
            fit=parts.whole,
            sample=sample,
            build=build,
            evaluations=evaluations_of_experts,
            shared_fit=fit_facts,
            parts=parts,
            pools_silos=False,
            needs=("silos",),
            version=2,
        ),
    )
