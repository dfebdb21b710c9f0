"""One network on the pooled data of all silos, plain or with the conditional-independence penalty (CoInD): an upper bound.

Decentralized Compositional Flow Matching (DCFM), equations 5 to 8; CoInD is Gaudi et al. 2025.  Decentralised methods may not
pool data, so on a task with silos this is a reference row.

Theirs: the paper does not say how long the pooled network is trained.
Ours: it takes as many steps as all silos together, and so sees as many examples.
Why: with one silo's steps (`steps=silo`, a tenth on coloured MNIST) it was not an upper bound.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from compbench import Context, Method, Problem, hookimpl
from compbench.flow.independence import decentralised_loss
from compbench.flow.nets import VelocityNet
from compbench.flow.silos import DecentralisedSettings, evaluations_of_network, network, sample_network
from compbench.flow.train import train


class Settings(DecentralisedSettings):
    steps: Literal["parties", "silo"] = Field("parties", description="the steps of all silos together, or those of one")
    coind: bool = Field(False, description="add the conditional-independence penalty of CoInD (eq. 6) with weight ci_weight")


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching with masks on all training data."""
    net = network(settings, problem)
    loss = decentralised_loss(settings.masking, settings.ci_weight if settings.coind else 0.0)
    parties = len(problem.federation) if settings.steps == "parties" else 1
    budget = problem.budget.model_copy(update={"train_steps": parties * problem.budget.train_steps})
    train(net, loss, problem.federation.pooled(), budget, ctx)
    return net


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="centralised",
            settings=Settings,
            fit=fit,
            sample=sample_network,
            build=network,
            evaluations=evaluations_of_network,
            needs=("silos",),
            version=2,
        ),
    )
