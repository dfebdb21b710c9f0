"""One-shot merges: every silo trains alone from one common start, and the weights are merged once.

soup             The mean of the silos' weights: Diffusion Soup without a held-out choice of its ingredients.
task-arithmetic  The common start and the sum of all silos' changes, scaled: theta_0 + lambda sum_k (theta_k - theta_0).

Biggs et al. 2024 (arXiv 2406.08431) and Ilharco et al. 2023 (arXiv 2212.04089), who start from a pretrained network; here the
start is an untrained one, which all parties make from a common seed.  Each silo sends its network once and receives nothing.
"""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field

from compbench import Method, Problem, hookimpl
from compbench.flow.local_experts import LocalExperts, LocalSettings, fit_facts, made_of_experts, start_of
from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import average, displaced
from compbench.flow.silos import evaluations_of_network, network, sample_network


class ScaledSettings(LocalSettings):
    scaling: float = Field(0.3, ge=0, le=10, description="lambda; 1 / n for n silos is the soup")


def soup(settings: LocalSettings, problem: Problem, trained: LocalExperts) -> VelocityNet:
    """The mean of all silos' weights."""
    silos, net = len(trained.experts), network(settings, problem).to(trained.counts.device)
    net.load_state_dict(average(trained.states, torch.full((silos,), 1 / silos)))
    return net.eval()


def task_arithmetic(settings: ScaledSettings, problem: Problem, trained: LocalExperts) -> VelocityNet:
    """The common start, moved by the scaled sum of all silos' changes."""
    net = start_of(settings, problem, trained).to(trained.counts.device)
    net.load_state_dict(displaced(net.state_dict(), trained.states, settings.scaling))
    return net.eval()


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    merged = partial(
        Method,
        sample=sample_network,
        build=network,
        shared_fit=fit_facts,
        evaluations=evaluations_of_network,
        pools_silos=False,
        needs=("silos",),
    )
    soups, sums = made_of_experts(soup), made_of_experts(task_arithmetic)
    return (
        merged(name="soup", settings=LocalSettings, fit=soups.whole, parts=soups),
        merged(name="task-arithmetic", settings=ScaledSettings, fit=sums.whole, parts=sums),
    )
