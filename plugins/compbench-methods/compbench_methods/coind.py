"""Conditional independence as a penalty in training: v(c_i) + v(c_j) - v(c_i, c_j) - v(NULL), a pair of factors drawn a step.

    L = L_FM + lambda E || v(c_i) + v(c_j) - v(c_i, c_j) - v(NULL) ||^2,    i and j drawn at random

CoInD (Gaudi et al. 2025, arXiv 2503.01145), equation 9 with velocities for scores.  Samples follow the composition around
NULL.  It pools all training data, so on a task with silos it is a reference row.
"""

from __future__ import annotations

from pydantic import Field

from compbench import Context, Method, Problem, Refused, hookimpl
from compbench.flow.independence import pairwise_loss
from compbench.flow.nets import VelocityNet
from compbench.flow.silos import DecentralisedSettings, evaluations_of_network, network, sample_network
from compbench.flow.train import train


class Settings(DecentralisedSettings):
    ci_weight: float = Field(1.0, ge=0, le=1000, description="lambda of the penalty; the paper has 0.2 to 100, by the data")


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching with masks and the penalty, on all training data."""
    if len(problem.space) < 2:
        raise Refused(f"coind needs two factors to be independent, and this task has {len(problem.space)}.")
    net = network(settings, problem)
    train(net, pairwise_loss(settings.masking, settings.ci_weight), problem.federation.pooled(), problem.budget, ctx)
    return net


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="coind",
            settings=Settings,
            fit=fit,
            sample=sample_network,
            build=network,
            evaluations=evaluations_of_network,
            needs=("pairs",),
        ),
    )
