"""Federated averaging whose silos are held near the server's weights by a proximal term.

    loss_k(theta) + mu / 2 |theta - theta_r|^2

FedProx (Li et al. 2020, arXiv 1812.06127).  mu = 0 is fedflow; the larger mu, the less a silo moves in a round.  The paper
chooses mu of 0.001 to 1 by the data.  Here a loss is a mean over pixels, with gradients to match: on coloured MNIST mu = 0.01
outweighs those of the condition's last layer, which starts at zero and stays there, and what is drawn follows no condition.
"""

from __future__ import annotations

from pydantic import Field

from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import RoundSettings, held_near, rounds
from compbench.flow.silos import evaluations_of_network, network, recipe, sample_network
from compbench.flow.train import train
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem


class Settings(RoundSettings):
    mu: float = Field(0.001, ge=0, le=1e6, description="mu of the proximal term; the paper has 0.001 to 1, by the data")


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Rounds of averaging; every silo starts each round at the server's weights and is held near them."""
    loss, mu = settings.loss, settings.mu

    def local(net, silo, received, budget, own):
        train(net, held_near(loss, net, mu), silo, budget, own)

    return rounds(recipe(network, settings, problem), local, problem, ctx, num_rounds=settings.rounds)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="fedprox",
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
