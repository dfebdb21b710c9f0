"""Independent experts, one per silo, weighted by each silo's estimate of its own data density at x_t.

Diffusion federated datasets (Hahn & Lee 2025), the third baseline of Decentralized Compositional Flow Matching (DCFM),
section 4.  Each silo trains an energy and an expert, and sends both once with a list of the values that it has.  We built the
method from its description, because the authors' code is not available.  Up to version 2 each silo centred its energy on 256
draws of its own noise, so the weights of pictures depended on chance: ten identical silos had 0.89, 0.05, 0.03, ... at t = 0.
On cmnist-noniid such weights had 0.52 of the unseen pairs, and equal ones have 0.47.  Silos that never saw a value have no part
in this: if they answer for it too, the score is 0.46
(`compbench sweep --method dfd --task cmnist-noniid --preset standard --precision bf16 --seed 0-2 --set ask_strangers=true`).

Theirs: samples come from unadjusted Langevin steps over the mixture.
Ours: they follow the flow of the mixture, as DCFM describes its baseline.
Why: solver and evaluations are those of all silo rows.

Theirs: every silo answers for every condition.
Ours: a silo does not answer for a value that it never saw; with `ask_strangers` it does.
Why: energies do not depend on the condition, so at t = 0 half of the answer would come from an untrained embedding.

Theirs: no budget is stated.
Ours: an expert has three quarters of a silo's steps (`energy_share`).
Why: the energy takes the rest.

Size: a sample needs an expert and an energy of every silo, and each expert is as large as `mono`: there are 2.0 to 2.5 times the
parameters of `factored` with two silos, and 10.5 times with ten.  A silo cannot see the data of others, so its expert has to be a
whole network.
"""

from __future__ import annotations

import copy

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, Problem, hookimpl
from compbench.api.context import Steps
from compbench.flow.energy import DensityRouter, Energy, score_matching_loss
from compbench.flow.experts import Experts
from compbench.flow.independence import decentralised_loss
from compbench.flow.mixture import Mixture, label_counts
from compbench.flow.silos import (
    DecentralisedSettings,
    evaluations_of_experts,
    known_values,
    network,
    part_of,
    recipe,
    sample_experts,
    split,
)
from compbench.flow.superposed_silos import SiloPrior
from compbench.flow.train import train


class Settings(DecentralisedSettings):
    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9): DFD+L")
    energy_share: float = Field(0.25, gt=0, lt=1, description="share of a silo's steps for its energy; not in the paper")
    energy_width: float = Field(
        1.0, gt=0, le=16, description="hidden units of the energy, in multiples of 2 x budget.width; not in the paper"
    )
    temperature: float = Field(
        1.0, gt=0, le=1e6, description="divides the energies before the softmax; 1 takes them as log densities"
    )
    ask_strangers: bool = Field(False, description="also use a silo's expert for a value that it never saw")


def energy(settings: Settings, problem: Problem) -> Energy:
    """An untrained energy."""
    return Energy(problem.event, width=max(16, round(2 * settings.energy_width * problem.budget.width)))


def pair(settings: Settings, problem: Problem) -> nn.ModuleDict:
    """What a silo trains: an untrained expert and energy."""
    return nn.ModuleDict({"expert": network(settings, problem), "energy": energy(settings, problem)})


def routed(settings: Settings, problem: Problem, experts: Experts, energies: list[Energy], knows: Tensor) -> Mixture:
    """The experts that know the requested values, weighted by their silos' energies; knows: (n, F, largest size)."""
    prior = SiloPrior(torch.tensor(problem.federation.sizes), knows | settings.ask_strangers)
    router = DensityRouter(energies, prior, temperature=settings.temperature)
    return Mixture(experts, router, sample_steps=problem.budget.sample_steps)


def fit(settings: Settings, problem: Problem, ctx: Context) -> Mixture:
    """Train an expert, then an energy, in every silo."""
    make, sizes = recipe(pair, settings, problem), problem.space.sizes
    own_budget, energy_budget = split(problem.budget, settings.energy_share)
    each = own_budget.train_steps + energy_budget.train_steps
    steps = Steps(ctx.progress, len(problem.federation) * each)
    loss = decentralised_loss(settings.masking, settings.ci_weight if settings.local_ci else 0.0)

    def work(silo, received, own):
        both, count = make(), Steps(own.progress, each)
        train(both["expert"], loss, silo, own_budget, own.part("expert", progress=count.part()))
        train(both["energy"], score_matching_loss, silo, energy_budget, own.part("energy", progress=count.part()), twice=True)
        both["energy"].centre(silo, own.generator)
        return {**both.state_dict(), "knows": label_counts(silo.labels(), sizes) > 0}

    blank = make()
    like = {**blank.state_dict(), "knows": torch.empty(sum(sizes), dtype=torch.bool)}
    found = problem.federation.run(work, ctx, like=like, stage="local", steps=steps)
    experts = Experts(blank["expert"], [part_of(state, "expert.") for state in found])
    energies = [copy.deepcopy(blank["energy"]) for _ in found]
    for density, state in zip(energies, found, strict=True):
        density.load_state_dict(part_of(state, "energy."))
    knows = known_values(torch.stack([state["knows"] for state in found]).cpu(), sizes)
    return routed(settings, problem, experts, energies, knows).to(ctx.device)


def build(settings: Settings, problem: Problem) -> Mixture:
    """The untrained mixture."""
    silos, sizes, net = len(problem.federation), problem.space.sizes, network(settings, problem)
    knows = torch.ones(silos, len(sizes), max(sizes), dtype=torch.bool)
    energies = [energy(settings, problem) for _ in range(silos)]
    return routed(settings, problem, Experts(net, [net.state_dict()] * silos), energies, knows)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="dfd",
            settings=Settings,
            fit=fit,
            sample=sample_experts,
            build=build,
            evaluations=evaluations_of_experts,
            pools_silos=False,
            version=3,
        ),
    )
