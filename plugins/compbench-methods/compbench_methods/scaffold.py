"""Federated averaging whose silos correct their drift by control variates.

    local gradient  g_k(y) - c_k + c,    c_k' = 1 / K sum_i g_k(y_i),    c = sum_k n_k / n c_k

SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378), with controls of option II: under the paper's SGD of rate eta, which leads
from x to y_K in K steps, c_k - c + (x - y_K) / (K eta) is the mean of a silo's own gradients along its round.  We compute that
mean directly, at no cost.  A silo keeps its control between rounds, which is not a transfer; the network and a control are sent
each way.  The pooled optimum is a fixed point of these rounds, unlike an average of the silos' own optima.

Theirs: steps are SGD's.
Ours: they are AdamW's, with fresh moments in each round.
Why: all methods train with AdamW.

Theirs: nothing is clipped.
Ours: the *corrected* gradient is clipped, and controls are means of unclipped gradients.
Why: every method clips its gradients; in this order the clip does not undo the control.

Theirs: a correction may have any length.
Ours: it is cut to the length of the gradient that it corrects, parameter by parameter, which changes nothing at the fixed point.
Why: early gradients shrink a hundredfold within a few rounds, and an older control would dominate and make the network diverge.

Theirs: the last network of the server is sampled.
Ours: the moving average of the server's networks is sampled.
Why: all other methods sample from such an average.

Theirs: the paper does not prescribe a number of rounds.
Ours: there are five times as many rounds as in FedFlow, so rounds are short.
Why: a control is one constant slope for a whole round, and after some fifty steps the silo's gradient has changed.

Figures: this project has no copy of the paper, so none of its figures is reproduced.  For two silos of one weight whose pooled
optimum is 0.6, long rounds of plain averaging end at the mean of the silos' own optima, 0.0, and ours at 0.600
(`plugins/compbench-methods/tests/test_server_rules.py`).
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
        description="rounds of averaging; a control is valid only for few steps after it was measured (not in the paper)",
    )


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Corrected rounds of the task's loss."""
    return corrected_rounds(recipe(network, settings, problem), settings.loss, problem, ctx, num_rounds=settings.rounds)


def corrected_rounds(make: Recipe, loss: Loss, problem: Problem, ctx: Context, *, num_rounds: int) -> VelocityNet:
    """Rounds of corrected steps; silos send "control.*", which the server averages, and keep "own.*"."""

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
    return rounds(make, local, problem, ctx, num_rounds=num_rounds, shared=common, memory=SiloMemory(own))


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
