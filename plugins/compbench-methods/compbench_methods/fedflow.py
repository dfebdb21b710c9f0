"""Federated averaging of one network: rounds of local steps in every silo, weights averaged by the silos' sizes.

FedAvg (McMahan et al. 2017) with a flow-matching loss (Tun et al. 2023), the first baseline of Decentralized
Compositional Flow Matching (DCFM).  Each round sends the network to every silo and back.

Theirs: the last network of the server is sampled.
Ours: the moving average of the server's networks is sampled.
Why: all other methods sample from such an average.
"""

from __future__ import annotations

from compbench import Context, Method, Problem, hookimpl
from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import RoundSettings, rounds
from compbench.flow.silos import evaluations_of_network, network, recipe, sample_network
from compbench.flow.train import train


def fit(settings: RoundSettings, problem: Problem, ctx: Context) -> VelocityNet:
    """Rounds of plain averaging; with `local_ci` it is the paper's FedFlow+L."""
    loss = settings.loss

    def local(net, silo, received, budget, own):
        train(net, loss, silo, budget, own)

    return rounds(recipe(network, settings, problem), local, problem, ctx, num_rounds=settings.rounds)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="fedflow",
            settings=RoundSettings,
            fit=fit,
            sample=sample_network,
            build=network,
            evaluations=evaluations_of_network,
            pools_silos=False,
            version=3,
        ),
    )
