"""Federated averaging with momentum on the server.

    u <- beta u + (mean_k theta_k - theta_r),    theta_{r+1} = theta_r + eta u

FedAvgM (Hsu et al. 2019, arXiv 1909.06335).  beta = 0 and eta = 1 is fedflow.

Theirs: the last network of the server is sampled.
Ours: the moving average of the server's networks is sampled.
Why: all other methods sample from such an average.

Figures: this project has no copy of the paper, so none of its figures is reproduced.  By hand, with beta 0.5 and eta 2, mean
changes of 1 and 0 lead from 1 to 3 and 4, and so they do here (`plugins/compbench-methods/tests/test_server_rules.py`).
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from compbench import Context, Method, Problem, hookimpl
from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import RoundSettings, TakeUp, rounds
from compbench.flow.silos import evaluations_of_network, network, recipe, sample_network
from compbench.flow.train import train


class Settings(RoundSettings):
    momentum: float = Field(
        0.5, ge=0, lt=1, description="beta; the paper has up to 0.99 over 10,000 rounds, too large for 20 rounds"
    )
    server_rate: float = Field(1.0, gt=0, le=100, description="eta: the server's learning rate")


def momentum_rule(momentum: float, rate: float) -> TakeUp:
    """The server's update rule; it keeps the momentum from round to round."""

    def take_up(before: dict[str, Tensor], mean: dict[str, Tensor], kept: dict[str, Tensor]) -> dict[str, Tensor]:
        for name, value in before.items():
            kept[name] = momentum * kept.get(name, 0.0) + mean[name] - value
        return {name: value + rate * kept[name] for name, value in before.items()}

    return take_up


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Rounds of averaging; the server applies the mean with momentum."""
    loss, take_up = settings.loss, momentum_rule(settings.momentum, settings.server_rate)

    def local(net, silo, received, budget, own):
        train(net, loss, silo, budget, own)

    make = recipe(network, settings, problem)
    return rounds(make, local, problem, ctx, num_rounds=settings.rounds, take_up=take_up)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="fedavgm",
            version=2,
            settings=Settings,
            fit=fit,
            sample=sample_network,
            build=network,
            evaluations=evaluations_of_network,
            pools_silos=False,
            needs=("silos",),
        ),
    )
