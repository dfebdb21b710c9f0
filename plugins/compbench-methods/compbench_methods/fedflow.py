"""Federated averaging of one network: rounds of local steps in every silo, weights averaged by the silos' sizes.

FedAvg (McMahan et al. 2017) with a flow-matching loss (Tun et al. 2023), the first baseline of Decentralized
Compositional Flow Matching (DCFM).  Each round sends the network to every silo and back.
"""

from __future__ import annotations

import torch
from pydantic import Field

from compbench.flow.independence import decentralised_loss
from compbench.flow.nets import VelocityNet
from compbench.flow.silos import DecentralisedSettings, evaluations_of_network, network, recipe, sample_network
from compbench.flow.train import Steps, learning_rate, train
from compbench.hookspecs import hookimpl
from compbench.interfaces import Budget, Context, Method, Problem


class Settings(DecentralisedSettings):
    rounds: int = Field(
        20, ge=1, le=10_000, description="rounds of averaging, which divide a silo's steps among them (not in the paper)"
    )
    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9): FedFlow+L")


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Rounds at a learning rate that falls with the budget's schedule; a resumed fit goes on at the last round."""
    make = recipe(network, settings, problem)
    net = make().to(ctx.device)
    loss = decentralised_loss(settings.masking, settings.ci_weight if settings.local_ci else 0.0)
    total = problem.budget.train_steps
    rounds = min(settings.rounds, total)
    steps = Steps(ctx.progress, len(problem.federation) * total)
    sizes = torch.tensor(problem.federation.sizes, dtype=torch.float32, device=ctx.device)
    shares = sizes / sizes.sum()
    for number in range(rounds):
        each = (number + 1) * total // rounds - number * total // rounds
        budget = at_constant_rate(problem.budget, each, learning_rate(round(total * (number + 0.5) / rounds), problem.budget))

        def work(silo, received, own, budget=budget):
            local = make()
            local.load_state_dict(received)
            return train(local, loss, silo, budget, own).state_dict()

        state = net.state_dict()
        found = problem.federation.run(work, ctx, like=state, stage=f"round-{number}", send=state, steps=steps)
        net.load_state_dict({name: sum(share * one[name] for share, one in zip(shares, found, strict=True)) for name in state})
    return net.eval()


def at_constant_rate(budget: Budget, steps: int, rate: float) -> Budget:
    """The budget of one round: steps of a longer schedule at one learning rate, without warm-up or average."""
    changes = {"learning_rate": rate, "final_learning_rate": rate, "warmup_steps": 0, "ema_decay": 0.0}
    return budget.model_copy(update={"train_steps": steps, **changes})


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="fedflow",
            settings=Settings,
            fit=fit,
            sample=sample_network,
            build=network,
            evaluations=evaluations_of_network,
            pools_silos=False,
            version=2,
        ),
    )
