"""Federated averaging whose silos correct their drift by control variates.

    local gradient  g_k(y) - c_k + c,    c_k' = 1 / K sum_i g_k(y_i),    c = sum_k n_k / n c_k

SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378), with controls of option II: under the paper's SGD of rate eta, which leads
from x to y_K in K steps, c_k - c + (x - y_K) / (K eta) is the mean of a silo's own gradients along its round.  Here that mean is
taken itself, at no cost.  A silo keeps its control between rounds, which is not metered; the network and a control go each way.
The pooled optimum is where all of it stands still, and averages of silos' own optima are not.

Theirs: steps are SGD's.
Ours: they are AdamW's, from fresh moments in each round.
Why: so are those of all methods.

Theirs: nothing is clipped.
Ours: the *corrected* gradient is clipped, and controls are means of gradients that are not.
Why: every method's gradients are clipped, and so the clip does not undo the control.

Theirs: a correction has the length that it has.
Ours: it is cut to the length of the gradient that it corrects, parameter by parameter, which changes nothing where all stands
still.
Why: early gradients fall by a hundred times within a few rounds, and a control that was measured before runs away with the
network.

Theirs: the last network of the server is sampled.
Ours: the moving average of the server's networks is sampled.
Why: all other methods are averaged alike.

Theirs: the paper has no such number of rounds.
Ours: rounds are short, five times as many as FedFlow's.
Why: a control is a constant slope of a whole round, and after some fifty steps the silo's gradient has become another one.
"""

from __future__ import annotations

import torch
from pydantic import Field

from compbench import Context, Method, Problem, hookimpl
from compbench.api.federation import SiloMemory
from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import Corrected, RoundSettings, rounds, unsaved
from compbench.flow.silos import Recipe, evaluations_of_network, network, part_of, recipe, sample_network
from compbench.flow.train import Loss, train


class Settings(RoundSettings):
    rounds: int = Field(
        100,
        ge=1,
        le=10_000,
        description="rounds of averaging; a control stands for few steps beyond where it was measured (not in the paper)",
    )


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Corrected rounds of the task's loss."""
    return corrected_rounds(recipe(network, settings, problem), settings.loss, problem, ctx, num_rounds=settings.rounds)


def corrected_rounds(make: Recipe, loss: Loss, problem: Problem, ctx: Context, *, num_rounds: int) -> VelocityNet:
    """Rounds of corrected steps; "control.*" is what silos send and the server averages, "own.*" what a silo keeps."""

    def local(net, silo, received, budget, own):
        net.to(own.device)
        control, common = part_of(received, "own."), part_of(received, "control.")
        slopes = {name: common[name] - value for name, value in control.items()}
        corrected = Corrected(net, slopes)
        train(net, loss, silo, budget, unsaved(own))
        found = corrected.close()
        return {f"{whose}.{name}": value for whose in ("own", "control") for name, value in found.items()}

    zeros = {name: torch.zeros_like(weight, device=ctx.device) for name, weight in make().named_parameters()}
    common, own = ({f"{whose}.{name}": value for name, value in zeros.items()} for whose in ("control", "own"))
    return rounds(make, local, problem, ctx, num_rounds=num_rounds, beside=common, memory=SiloMemory(own))


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="scaffold",
            version=3,
            settings=Settings,
            fit=fit,
            sample=sample_network,
            build=network,
            evaluations=evaluations_of_network,
            pools_silos=False,
            needs=("silos",),
        ),
    )
