"""One-shot merges: every silo continues alone from a common trained start, and the weights are merged once.

soup             The mean of the silos' weights: Diffusion Soup without its choice of ingredients on held-out data.
task-arithmetic  The common start and the sum of all silos' changes, scaled: theta_0 + lambda sum_k (theta_k - theta_0).

Biggs et al. 2024 (arXiv 2406.08431) and Ilharco et al. 2023 (arXiv 2212.04089) merge fine-tuned copies of one pretrained network,
which stay near each other.  Networks that start untrained do not stay near each other, and their mean is useless.

Theirs: silos fine-tune one pretrained network.
Ours: a quarter of every silo's steps are rounds of averaging (FedAvg), and their result is the common start.  The record meters
all transfers: the rounds, the start to each silo, and each silo's network.
Why: nothing here is pretrained.

Theirs: lambda of task-arithmetic is chosen on validation data of all tasks.
Ours: each silo reports the loss of some multiples of 1 / n on its own examples, and the multiple with the least mean loss is
used.  This transfers one more network, and one number per multiple.
Why: no silo has held-out combinations, and most of these examples show combinations that some merged silos never saw.

Figures: both papers merge fine-tuned copies of a pretrained network, and no task here has one, so no figure of them can be
reproduced.  With lambda = 1 / n task-arithmetic should be the soup, and it is bit for bit
(`plugins/compbench-methods/tests/test_server_rules.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench import Context, Method, Problem, hookimpl
from compbench.api.context import Steps
from compbench.api.federation import SiloMemory
from compbench.flow.independence import decentralised_loss
from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import RoundSettings, average, displaced, rounds, shares_of
from compbench.flow.silos import evaluations_of_network, network, part_of, recipe, sample_network, split
from compbench.flow.train import train

MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
"""The values of n lambda to try: 1 is the soup; the paper's lambda of 0.3 for eight tasks is 2.4."""

NUM_BATCHES = 8
"""Number of batches per silo for comparing the lambdas; all lambdas use the same batches."""


class Settings(RoundSettings):
    start_share: float = Field(
        0.25, gt=0, lt=1, description="share of a silo's steps for training the common start (not in the paper)"
    )
    rounds: int = Field(5, ge=1, le=10_000, description="rounds of averaging that train the common start (not in the paper)")


class ScaledSettings(Settings):
    scaling: Annotated[float, Field(ge=0, le=10)] | Literal["chosen", "1/n"] = Field(
        "chosen",
        description="lambda; 1/n for n silos is the soup; 'chosen': the multiple of 1/n with the least loss on the silos' data",
    )


class Ingredients(NamedTuple):
    """The inputs of a merge: the common start, the mean of the silos' networks, and the silos' copies of the start."""

    start: dict[str, Tensor]
    mean: dict[str, Tensor]
    memory: SiloMemory


def ingredients(settings: Settings, problem: Problem, ctx: Context) -> Ingredients:
    """Train the common start in rounds, then continue in every silo alone for the rest of its steps."""
    make, loss, silos = recipe(network, settings, problem), settings.loss, len(problem.federation)
    first, rest = split(problem.budget, 1 - settings.start_share)
    steps = Steps(ctx.progress, silos * (first.train_steps + rest.train_steps))

    def local(net, silo, received, budget, own):
        train(net, loss, silo, budget, own)

    common = replace(problem, budget=first)
    start = rounds(make, local, common, ctx, num_rounds=settings.rounds, steps=steps).state_dict()
    memory = SiloMemory({f"start.{name}": value for name, value in start.items()})

    def alone(silo, received, own):
        net, kept = make(), {f"start.{name}": value.clone() for name, value in part_of(received, "net.").items()}
        net.load_state_dict(part_of(received, "net."))
        train(net, loss, silo, rest, own)
        return {**net.state_dict(), **kept}

    sent = {f"net.{name}": value for name, value in start.items()}
    found = problem.federation.run(alone, ctx, like=start, stage="alone", send=sent, steps=steps, memory=memory)
    return Ingredients(start, average(found, torch.full((silos,), 1 / silos)), memory)


def chosen(settings: ScaledSettings, problem: Problem, ctx: Context, parts: Ingredients) -> float:
    """The multiple of 1 / n whose merge has the least loss (without penalties) on the silos' own examples."""
    make, loss = recipe(network, settings, problem), decentralised_loss(settings.masking, 0.0)
    batch_size = problem.budget.batch_size

    @torch.no_grad()
    def judge(silo, received, own):
        start, mean, net = part_of(received, "start."), part_of(received, "net."), make().to(own.device).eval()
        batches = [silo.batch(batch_size, own.generator) for _ in range(NUM_BATCHES)]
        losses = torch.zeros(len(MULTIPLES))
        for place, multiple in enumerate(MULTIPLES):
            net.load_state_dict(displaced(start, [mean], multiple))
            for number, batch in enumerate(batches):
                with own.autocast():
                    losses[place] += loss(net, batch, Generator(own.device).manual_seed(number)).cpu()
        return {"losses": losses / NUM_BATCHES, **{f"start.{name}": value for name, value in start.items()}}

    like, sent = {"losses": torch.empty(len(MULTIPLES))}, {f"net.{name}": value for name, value in parts.mean.items()}
    found = problem.federation.run(judge, ctx, like=like, stage="scaling", send=sent, memory=parts.memory)
    losses = average(found, shares_of(problem, ctx))["losses"].tolist()
    ctx.notes["loss_by_multiple"] = losses
    return MULTIPLES[losses.index(min(losses))]


def soup(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """The mean of all silos' weights."""
    return merged(settings, problem, ctx, ingredients(settings, problem, ctx), 1.0)


def task_arithmetic(settings: ScaledSettings, problem: Problem, ctx: Context) -> VelocityNet:
    """The common start plus the scaled sum of all silos' changes."""
    parts, silos = ingredients(settings, problem, ctx), len(problem.federation)
    if settings.scaling == "chosen":
        multiple = chosen(settings, problem, ctx, parts)
    else:
        multiple = 1.0 if settings.scaling == "1/n" else settings.scaling * silos
    ctx.notes["scaling"] = multiple / silos
    return merged(settings, problem, ctx, parts, multiple)


def merged(settings: Settings, problem: Problem, ctx: Context, parts: Ingredients, multiple: float) -> VelocityNet:
    """theta_0 + multiple (mean_k theta_k - theta_0), where multiple = n lambda."""
    net = network(settings, problem).to(ctx.device)
    net.load_state_dict(displaced(parts.start, [parts.mean], multiple))
    return net.eval()


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    merging = partial(
        Method,
        sample=sample_network,
        build=network,
        evaluations=evaluations_of_network,
        pools_silos=False,
        needs=("silos",),
        version=2,
    )
    return (
        merging(name="soup", settings=Settings, fit=soup),
        merging(name="task-arithmetic", settings=ScaledSettings, fit=task_arithmetic),
    )
