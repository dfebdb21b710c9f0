"""Independent experts, one per silo, weighted by their own density of the sample: no router is trained or sent.

    S = sum_k w_k sum_a kappa_ak s_a(x_t, c_k),    kappa_.k = softmax(T log p_a(x_t | c_k) + log n_a(c_k))

This is SuperDiff's OR (Skreta et al. 2024, arXiv 2412.17762) over the experts of DDM, for every part of the composition around
NULL.  The experts' log densities are tracked along each sample's path.  n_a(c_k) is how many of a silo's examples have c_k, which
silos report and ddm routes by.  With it, and T = 1, each part is the mixture of the silos' data, and an expert is not used for a
value that its silo never saw.

Version 1 did not count, in the tracked densities, the movement that puts given entries back on their path.  Version 2 took n_a,
the size of the silo, for each value that the silo has, so a silo with a few examples of a digit had as large a share of it as one
with thousands: silos of coloured MNIST with fewer than 30 examples of a digit have 0.07 of its data and had 0.35 of its prior.

Theirs: models of whole samples are mixed, and every model has a share.
Ours: experts are mixed separately in each part of the composition, and an expert has the share of its silo's examples, none where
its silo never saw the value (`ask_strangers=True`: the share of its silo's size, whatever the value).
Why: no silo saw held-out combinations, so these have to be composed; an untrained embedding has no meaning.

Figures: this project has no copy of the paper, so none of its figures of OR is reproduced.  For two silos of Gaussians with
shares of 0.2 and 0.8, 0.80 of the samples should be the second's, and 0.794 are (`tests/flow/test_superposed_silos.py`).

Size: a sample needs the expert of every silo, and each is as large as `mono`: with two silos there are 2.0 times the
parameters of `factored`, with ten 10.0 times.  A silo cannot see the data of others, so its expert has to be a whole network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, Problem, Request, hookimpl
from compbench.api.factors import NULL
from compbench.flow.experts import Experts
from compbench.flow.local_experts import LocalExperts, LocalSettings, fit_facts, made_of_experts
from compbench.flow.mixture import Mixture, composition
from compbench.flow.path import LinearPath
from compbench.flow.score_models import VELOCITY_EDGE, on_device
from compbench.flow.silos import evaluations_of_experts, network
from compbench.flow.smc import given, schedule
from compbench.flow.solver import Known
from compbench.flow.superposed_silos import expert_scores, follow_either
from compbench.flow.swarms import levels
from compbench.flow.transfer import numbers


class Settings(LocalSettings):
    temperature: float = Field(1.0, ge=0, le=1e6, description="T; 1 is the silos' mixture, 0 weights by the silos' counts only")
    ask_strangers: bool = Field(False, description="weight by the silos' sizes, also for a value that a silo never saw")


class LabelPrior(nn.Module):
    """log n_a(c), up to a constant per condition, from the silos' counts of single values.

        n_a(c) = n_a prod_f n_a(c_f) / n_a

    This is the silo's number of examples with the value if c names one factor, n_a if it is NULL, and what independent factors
    would give if c names several.  It is minus infinity where a silo lacks a value; if all silos do, it is log n_a.

    Args:
        counts: examples of each value of each factor, (n, sum of sizes).
        sizes: number of values of each factor.
    """

    def __init__(self, counts: Tensor, sizes: Sequence[int]) -> None:
        super().__init__()
        total = counts[:, : sizes[0]].sum(1, keepdim=True).double()
        self.shares: Tensor
        self.lacks: Tensor
        self.within: Tensor
        self.register_buffer("shares", (total / total.sum()).log().float()[:, 0])  # (n,)
        self.register_buffer("lacks", counts == 0)  # (n, sum of sizes); its logarithm is not stored, because weights are finite
        within = (counts.double() / total.clamp(min=1)).log().float()
        self.register_buffer("within", within.masked_fill(self.lacks, 0.0))  # (n, sum of sizes)
        self.offsets = [sum(sizes[:k]) for k in range(len(sizes))]

    def forward(self, conditions: Tensor) -> Tensor:
        """(K, B, F) -> (n, K, B)."""
        places = conditions.clamp(min=0) + numbers(tuple(self.offsets), conditions.device, torch.long)
        within = self.within.masked_fill(self.lacks, -math.inf)
        found = torch.where(conditions == NULL, 0.0, within[:, places]).sum(-1)  # (n, K, B)
        return self.shares[:, None, None] + torch.where(found.isfinite().any(0), found, 0.0)


def superposed(settings: Settings, problem: Problem, trained: LocalExperts) -> Mixture:
    """Experts trained on their own silo only, as in DDM, and how often each of them saw each value."""
    prior = LabelPrior(trained.counts, problem.space.sizes)
    return Mixture(trained.experts, prior, sample_steps=problem.budget.sample_steps)


def build(settings: Settings, problem: Problem) -> Mixture:
    """The untrained experts and a prior of the right shape, for stored weights to be loaded into."""
    net, silos, sizes = network(settings, problem), len(problem.federation), problem.space.sizes
    prior = LabelPrior(torch.ones(silos, sum(sizes)), sizes)
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
            version=3,
        ),
    )
