"""Federated averaging whose silos correct their drift by control variates.

    local gradient  g_k(theta) - c_k + c,    c_k = g_k(theta_r),    c = sum_k n_k / n c_k

SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378), with controls measured at the round's weights (option I).  Where every
silo's gradient is exact and within the clip, the pooled optimum is where it stands still, and averages of silos' own optima are
not.  Steps are AdamW's with clipped gradients, as of all methods here, and a control is the mean of gradients clipped alike; in
the paper steps are SGD's and nothing is clipped.  Rounds are short, five times as many as FedFlow's: a control is a constant
slope of a whole round, and after some fifty steps the silo's gradient has become another one.

A silo keeps nothing between rounds here: controls are measured before each round and again in it, on the same batches, out of
the silo's own steps.  So a round sends three networks' worth to a silo and two back; in the paper, whose silos keep theirs, two
and two.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from compbench import Budget, Context, Method, Problem, hookimpl
from compbench.api.context import Steps
from compbench.flow.nets import VelocityNet
from compbench.flow.rounds import RoundSettings, average, mean_gradient, rounds, shares_of, tilted
from compbench.flow.silos import Recipe, evaluations_of_network, network, part_of, recipe, sample_network
from compbench.flow.train import Loss, train


class Settings(RoundSettings):
    rounds: int = Field(
        100,
        ge=1,
        le=10_000,
        description="rounds of averaging; a control stands for few steps beyond where it was measured (not in the paper)",
    )
    control_share: float = Field(
        0.2, gt=0, lt=1, description="share of a silo's steps that both measurements of its control take (not in the paper)"
    )


def parts(budget: Budget, share: float) -> tuple[Budget, Budget]:
    """A round's budget in two: one measurement of the control, and training; each has a step at least, where there are three."""
    control = max(1, round(budget.train_steps * share / 2))
    training = max(1, budget.train_steps - 2 * control)
    return budget.model_copy(update={"train_steps": control}), budget.model_copy(update={"train_steps": training})


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Corrected rounds of the task's loss."""
    make, share = recipe(network, settings, problem), settings.control_share
    return corrected_rounds(make, settings.loss, problem, ctx, num_rounds=settings.rounds, share=share)


def corrected_rounds(make: Recipe, loss: Loss, problem: Problem, ctx: Context, *, num_rounds: int, share: float) -> VelocityNet:
    """Rounds of two parts: controls to the server and their mean back, then corrected steps and averaging."""

    def controls(state: dict[str, Tensor], budget: Budget, steps: Steps, number: int) -> dict[str, Tensor]:
        measured = parts(budget, share)[0]

        def measure(silo, received, own):
            net = make()
            net.load_state_dict(received)
            found = mean_gradient(net, loss, silo, measured, own)
            own.progress(measured.train_steps, measured.train_steps)
            return found

        like = {name: weight.detach() for name, weight in make().named_parameters()}
        found = problem.federation.run(measure, ctx, like=like, stage=f"control-{number}", send=state, steps=steps)
        return {f"control.{name}": value for name, value in average(found, shares_of(problem, ctx)).items()}

    def local(net, silo, received, budget, own):
        measured, training = parts(budget, share)
        count = Steps(own.progress, measured.train_steps + training.train_steps)
        own_control = mean_gradient(net, loss, silo, measured, own)
        count.add(measured.train_steps)
        slopes = {name: value - own_control[name] for name, value in part_of(received, "control.").items()}
        train(net, tilted(loss, net, slopes), silo, training, own.part("train", progress=count.part()))

    return rounds(make, local, problem, ctx, num_rounds=num_rounds, beside=controls)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="scaffold",
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
