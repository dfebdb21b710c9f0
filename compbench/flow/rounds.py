"""Rounds of a federation: every silo trains from the server's network, and the server takes up what they send back.

    theta_{r+1} = take_up(theta_r, sum_k n_k / n theta_k)

FedAvg (McMahan et al. 2017) takes the mean as it is.  What a rule sends beside the network is metered with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench.api.context import Steps
from compbench.flow.independence import decentralised_loss
from compbench.flow.silos import DecentralisedSettings, Recipe
from compbench.flow.train import Loss, learning_rate
from compbench.system.errors import Cancelled

if TYPE_CHECKING:
    from compbench.api.context import Batch, Context, Silo
    from compbench.api.federation import LentSilo
    from compbench.api.interfaces import Budget, Problem
    from compbench.flow.nets import VelocityNet

CONTROL_SEED = 7919
"""Of the batches that a control is measured on, the same in both parts of a round."""

State = Mapping[str, Tensor]

Local = Callable[["VelocityNet", "LentSilo", dict[str, Tensor], "Budget", "Context"], object]
"""(network as it was received, silo, what was received beside it, the round's budget, context) trains the network in place; it
carries no tensors."""

TakeUp = Callable[[dict[str, Tensor], dict[str, Tensor]], dict[str, Tensor]]
"""(the server's weights, the mean of the silos') -> the server's next weights."""

Beside = Callable[[dict[str, Tensor], "Budget", Steps, int], dict[str, Tensor]]
"""(the server's weights, the round's budget, count of all silos' steps, number of the round) -> what is sent beside them."""


class RoundSettings(DecentralisedSettings):
    """Settings of every method that trains in rounds."""

    rounds: int = Field(
        20, ge=1, le=10_000, description="rounds of averaging, which divide a silo's steps among them (not in the paper)"
    )
    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9)")

    @property
    def loss(self) -> Loss:
        """What a silo minimises by itself."""
        return decentralised_loss(self.masking, self.ci_weight if self.local_ci else 0.0)


def the_mean(before: dict[str, Tensor], mean: dict[str, Tensor]) -> dict[str, Tensor]:
    """FedAvg's rule."""
    return mean


def nothing(state: dict[str, Tensor], budget: Budget, steps: Steps, number: int) -> dict[str, Tensor]:
    """What FedAvg sends beside the network."""
    return {}


def rounds(
    make: Recipe,
    local: Local,
    problem: Problem,
    ctx: Context,
    *,
    num_rounds: int,
    take_up: TakeUp = the_mean,
    beside: Beside = nothing,
) -> VelocityNet:
    """A network trained in rounds at a learning rate that falls with the budget's schedule.

    A silo's steps are divided among the rounds.  A resumed fit goes on at the last round.

    Args:
        make: where the server's network starts; common knowledge, not sent.
        local: a silo's part of a round.
        problem: its federation and budget.
        ctx: the stage's context.
        num_rounds: at most one for each of a silo's steps.
        take_up: the server's rule.
        beside: what the server sends to every silo beside the network.
    """
    net = cast("VelocityNet", make().to(ctx.device))
    federation, total = problem.federation, problem.budget.train_steps
    num_rounds, steps = min(num_rounds, total), Steps(ctx.progress, len(federation) * total)
    shares = shares_of(problem, ctx)
    for number in range(num_rounds):
        each = (number + 1) * total // num_rounds - number * total // num_rounds
        rate = learning_rate(round(total * (number + 0.5) / num_rounds), problem.budget)
        budget = at_constant_rate(problem.budget, each, rate)
        state = net.state_dict()

        names = tuple(state)

        def work(
            silo: LentSilo,
            received: dict[str, Tensor],
            own: Context,
            budget: Budget = budget,
            names: tuple[str, ...] = names,
        ) -> State:
            trained = cast("VelocityNet", make())
            trained.load_state_dict({name: received.pop(name) for name in names})
            local(trained, silo, received, budget, own)
            return trained.state_dict()

        sent = {**state, **beside(state, budget, steps, number)}
        found = federation.run(work, ctx, like=state, stage=f"round-{number}", send=sent, steps=steps)
        net.load_state_dict(take_up(state, average(found, shares)))
    return net.eval()


def shares_of(problem: Problem, ctx: Context) -> Tensor:
    """n_k / n of each silo, (n,)."""
    sizes = torch.tensor(problem.federation.sizes, dtype=torch.float32, device=ctx.device)
    return sizes / sizes.sum()


def average(states: Sequence[State], shares: Tensor) -> dict[str, Tensor]:
    """sum_k share_k theta_k of states with the same names; shares (n,)."""
    return {name: sum(share * one[name] for share, one in zip(shares, states, strict=True)) for name in states[0]}


def displaced(start: State, states: Sequence[State], scaling: float) -> dict[str, Tensor]:
    """theta_0 + scaling sum_k (theta_k - theta_0): task arithmetic (Ilharco et al. 2023, arXiv 2212.04089)."""
    return {name: value + scaling * sum(one[name] - value for one in states) for name, value in start.items()}


def at_constant_rate(budget: Budget, steps: int, rate: float) -> Budget:
    """The budget of one round: steps of a longer schedule at one learning rate, without warm-up or average."""
    changes = {"learning_rate": rate, "final_learning_rate": rate, "warmup_steps": 0, "ema_decay": 0.0}
    return budget.model_copy(update={"train_steps": steps, **changes})


def held_near(loss: Loss, net: VelocityNet, mu: float) -> Loss:
    """loss + mu / 2 |theta - theta_0|^2, theta_0 the network's weights as they are now: FedProx's proximal term."""
    start = [weight.detach().clone() for weight in net.parameters()]

    def held(asked: Any, batch: Batch, generator: Generator) -> Tensor:
        weights = list(net.parameters())
        if start[0].device != weights[0].device:  # training has moved the network since
            start[:] = [value.to(weight.device) for value, weight in zip(start, weights, strict=True)]
        away = sum((weight - value).square().sum() for weight, value in zip(weights, start, strict=True))
        return loss(asked, batch, generator) + mu / 2 * away

    return held


def tilted(loss: Loss, net: VelocityNet, slopes: State) -> Loss:
    """loss + sum_i <slope_i, theta_i>: every step's gradient is shifted by the slopes; by name, like the weights."""

    def shifted(asked: Any, batch: Batch, generator: Generator) -> Tensor:
        shift = sum((weight * slopes[name]).sum() for name, weight in net.named_parameters())
        return loss(asked, batch, generator) + shift

    return shifted


def mean_gradient(net: VelocityNet, loss: Loss, silo: Silo, budget: Budget, own: Context) -> dict[str, Tensor]:
    """The gradient of a silo's loss at the network, over `budget.train_steps` batches that are the same at every call.

        1 / B sum_b g_b min(1, C / |g_b|)

    Each batch's gradient g_b is clipped at C = `budget.gradient_clip` as training clips it: beside steps of norm C, the
    gradient itself, which may be hundreds of times as long at a network that fits badly, would leave no room for the loss.

    Args:
        net: on any device; it is moved to the context's.
        loss: of the silo.
        silo: where the batches come from.
        budget: batch size, how many batches, and the clip.
        own: the context of the silo's work; its generator is not used.

    Raises:
        Cancelled: the run was asked to stop.
    """
    named = dict(net.to(own.device).named_parameters())
    total = {name: torch.zeros_like(weight) for name, weight in named.items()}
    draws = Generator().manual_seed(CONTROL_SEED + silo.size)
    device_draws = draws if own.device.type == "cpu" else Generator(own.device).manual_seed(CONTROL_SEED)
    for step in range(budget.train_steps):
        if own.cancelled():
            raise Cancelled(f"stopped before batch {step} of {budget.train_steps} of a control.")
        with own.autocast():
            value = loss(net, silo.batch(budget.batch_size, draws), device_draws)
        found = dict(zip(named, torch.autograd.grad(value, list(named.values()), allow_unused=True), strict=True))
        gradients = {name: gradient for name, gradient in found.items() if gradient is not None}
        norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in gradients.values()]))
        scale = (budget.gradient_clip / norm.clamp(min=budget.gradient_clip)) / budget.train_steps
        for name, gradient in gradients.items():
            total[name] += scale * gradient
    return total
