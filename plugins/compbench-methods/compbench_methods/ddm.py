"""Independent experts, one per silo, mixed by a router that knows only the silos' label counts.

Decentralized diffusion models (McAllister et al. 2025), the second baseline of Decentralized Compositional Flow Matching (DCFM),
section 4.  Each silo sends its expert once.

Theirs: data are clustered, and a router is learnt.
Ours: silos are given, and the router follows from label counts.
Why: DCFM describes its baseline in this way.

Size: a sample needs the expert of every silo, and each is as large as `mono`: with two silos there are 2.0 times the
parameters of `factored`, with ten 10.0 times.  A silo cannot see the data of others, so its expert has to be a whole network.
"""

from __future__ import annotations

from compbench import Method, Problem, hookimpl
from compbench.flow.local_experts import LocalExperts, LocalSettings, fit_facts, made_of_experts
from compbench.flow.mixture import LabelRouter, Mixture
from compbench.flow.silos import evaluations_of_experts, network, sample_experts, untrained_mixture


def routed(settings: LocalSettings, problem: Problem, trained: LocalExperts) -> Mixture:
    """The experts, and the router from the silos' label counts."""
    router = LabelRouter(trained.counts, problem.space.sizes)
    return Mixture(trained.experts, router, sample_steps=problem.budget.sample_steps)


def build(settings: LocalSettings, problem: Problem) -> Mixture:
    """The untrained mixture."""
    return untrained_mixture(network(settings, problem), problem)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    parts = made_of_experts(routed)
    return (
        Method(
            name="ddm",
            settings=LocalSettings,
            fit=parts.whole,
            sample=sample_experts,
            build=build,
            evaluations=evaluations_of_experts,
            shared_fit=fit_facts,
            parts=parts,
            pools_silos=False,
        ),
    )
