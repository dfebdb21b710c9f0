"""Rounds of a federation: every silo trains from the server's network, and the server combines what they send back.

    theta_{r+1} = take_up(theta_r, sum_k n_k / n theta_k),    mean_{r+1} = d^K mean_r + (1 - d^K) theta_{r+1}

FedAvg (McMahan et al. 2017) uses the silos' mean itself.  Samples come from the moving average of the server's networks, whose
decay per round is d^K, for the budget's decay d per step and K steps per round.  This average spans as many steps as that of a
network trained by one party, and costs no transfer.  Anything that a rule sends in addition to the network is metered too.

After each round the server saves its state and empties the round's checkpoints.  A resumed fit starts with the round at which it
stopped, and the disk holds the networks of one round, however many rounds there are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from compbench.api.context import NoCheckpoints, Steps
from compbench.api.federation import SiloMemory
from compbench.flow.independence import decentralised_loss
from compbench.flow.silos import DecentralisedSettings, Recipe
from compbench.flow.train import Loss, ema_decay, learning_rate

if TYPE_CHECKING:
    from compbench.api.context import Batch, Context
    from compbench.api.federation import Federation, LentSilo
    from compbench.api.interfaces import Budget, Problem
    from compbench.flow.nets import VelocityNet

SMALLEST = 1e-30
"""Smallest divisor in divisions by the length of a slope."""

State = Mapping[str, Tensor]

Local = Callable[["VelocityNet", "LentSilo", dict[str, Tensor], "Budget", "Context"], State | None]
"""(received network, silo, state received with it, the round's budget, context) -> state.  The function trains the network in
place, and returns by name what the silo sends with the network and what it keeps; None for neither.  It carries no tensors."""

TakeUp = Callable[[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]], dict[str, Tensor]]
"""(the server's weights, the mean of the silos', what the rule keeps from round to round) -> the server's next weights.  What is
kept is empty at first, and the rule changes it in place."""


class RoundSettings(DecentralisedSettings):
    """Settings of every method that trains in rounds."""

    rounds: int = Field(
        20, ge=1, le=10_000, description="rounds of averaging, which divide a silo's steps among them (not in the paper)"
    )
    local_ci: bool = Field(False, description="add the local conditional-independence penalty (eq. 9)")

    @property
    def loss(self) -> Loss:
        """The loss that a silo minimises."""
        return decentralised_loss(self.masking, self.ci_weight if self.local_ci else 0.0)


def the_mean(before: dict[str, Tensor], mean: dict[str, Tensor], kept: dict[str, Tensor]) -> dict[str, Tensor]:
    """FedAvg's rule: the silos' mean."""
    return mean


def rounds(
    make: Recipe,
    local: Local,
    problem: Problem,
    ctx: Context,
    *,
    num_rounds: int,
    take_up: TakeUp = the_mean,
    shared: State | None = None,
    memory: SiloMemory | None = None,
    steps: Steps | None = None,
) -> VelocityNet:
    """A network trained in rounds at a learning rate that falls with the budget's schedule.

    A silo's steps are divided among the rounds.  A resumed fit continues at the last round.

    Args:
        make: the server's initial network; every party builds it itself, so it is not sent.
        local: a silo's part of a round.
        problem: the problem with its federation and budget.
        ctx: the stage's context.
        num_rounds: number of rounds, at most a silo's number of steps.
        take_up: the server's rule.
        shared: initial values of a state that is sent with the network, both ways, and averaged like it.
        memory: initial values of the state that silos keep from round to round.
        steps: counter for the steps of all silos; None if they are the whole fit's steps.

    Returns:
        the moving average of the server's networks, on the context's device.
    """
    net = cast("VelocityNet", make().to(ctx.device))
    federation, total = problem.federation, problem.budget.train_steps
    num_rounds, steps = min(num_rounds, total), steps or Steps(ctx.progress, len(federation) * total)
    shares, memory = shares_of(problem, ctx), memory or SiloMemory({})
    server = Server(net, dict(shared or {}))
    for number in range(server.resume(ctx, federation, memory, steps), num_rounds):
        begin, end = number * total // num_rounds, (number + 1) * total // num_rounds
        rate = learning_rate(round(total * (number + 0.5) / num_rounds), problem.budget)
        budget = at_constant_rate(problem.budget, end - begin, rate)
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
            returned = local(trained, silo, received, budget, own)
            return {**trained.state_dict(), **(returned or {})}

        sent = {**state, **server.shared}
        found = federation.run(work, ctx, like=sent, stage=f"round-{number}", send=sent, steps=steps, memory=memory)
        mean = average(found, shares)
        server.shared = {name: mean.pop(name) for name in server.shared}
        net.load_state_dict(take_up(state, mean, server.kept))
        decay = math.prod(ema_decay(step, problem.budget) for step in range(begin, end))
        server.averaged = {name: smoothed(server.averaged[name], value, decay) for name, value in net.state_dict().items()}
        server.save(number, ctx, federation, memory)
    net.load_state_dict(server.averaged)
    return net.eval()


class Server:
    """A server's state after a round: the network, its moving average, what is sent with the network, what the rule keeps."""

    def __init__(self, net: VelocityNet, shared: dict[str, Tensor]) -> None:
        self.net, self.shared = net, shared
        self.averaged = {name: value.clone() for name, value in net.state_dict().items()}
        self.kept: dict[str, Tensor] = {}

    def save(self, number: int, ctx: Context, federation: Federation, memory: SiloMemory) -> None:
        """Save the state after round `number`, also that of silos and generator, and empty the round's checkpoints."""
        groups = {"net": self.net.state_dict(), "averaged": self.averaged, "shared": self.shared, "kept": self.kept}
        groups |= {f"silo {k}": memory.of(k) for k in range(len(federation))}
        tensors = {f"{group}/{name}": value for group, state in groups.items() for name, value in state.items()}
        tensors["generator"] = ctx.generator.get_state()
        ctx.checkpoints.part("server").save(tensors, {"round": number, "ledger": federation.ledger()})
        for account in federation.accounts:
            ctx.checkpoints.part(f"round-{number}-{account.name}").empty()

    def resume(self, ctx: Context, federation: Federation, memory: SiloMemory, steps: Steps) -> int:
        """Take over the state after the last finished round, and return the number of the next round; 0 if none was finished."""
        found = ctx.checkpoints.part("server").load()
        if found is None:
            return 0
        tensors, facts = found
        groups: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
        ctx.generator.set_state(tensors.pop("generator"))
        for name, value in tensors.items():
            group, own = name.split("/", 1)
            groups[group][own] = value.to(ctx.device)
        self.net.load_state_dict(groups["net"])
        self.averaged, self.kept = groups["averaged"], groups["kept"]
        self.shared = {name: groups["shared"][name] for name in self.shared}  # files sort their names
        for k in range(len(federation)):
            memory.take(k, groups[f"silo {k}"])
        before = sum(account.steps for account in federation.accounts)
        federation.restore(facts["ledger"])
        steps.add(sum(account.steps for account in federation.accounts) - before)
        return int(facts["round"]) + 1


def smoothed(mean: Tensor, value: Tensor, decay: float) -> Tensor:
    """decay mean + (1 - decay) value; the value itself if it is not floating point."""
    return torch.lerp(mean, value, 1 - decay) if value.is_floating_point() else value.clone()


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
    """loss + mu / 2 |theta - theta_0|^2, where theta_0 are the network's current weights: FedProx's proximal term."""
    start = [weight.detach().clone() for weight in net.parameters()]

    def held(asked: object, batch: Batch, generator: Generator) -> Tensor:
        weights = list(net.parameters())
        if start[0].device != weights[0].device:  # training has moved the network to another device
            start[:] = [value.to(weight.device) for value, weight in zip(start, weights, strict=True)]
        away = sum((weight - value).square().sum() for weight, value in zip(weights, start, strict=True))
        return loss(asked, batch, generator) + mu / 2 * away

    return held


class Unsaved(NoCheckpoints):
    """Checkpoints that save nothing, under the name of the checkpoints that they replace."""

    def __init__(self, name: str) -> None:
        self.name = name


def unsaved(ctx: Context) -> Context:
    """A context for a loop that restarts when a fit is resumed, because a checkpoint does not contain the sums of `Corrected`."""
    return replace(ctx, checkpoints=Unsaved(ctx.checkpoints.name))


class Corrected:
    """Shift a network's gradients by slopes, and average the unshifted gradients over a training loop's steps.

        g <- g + slope min(1, |g| / |slope|),    with norms per parameter

    A slope is shortened to at most the length of the gradient that it corrects.  If a silo's gradient is the opposite of its
    slope, the slope is not shortened, so fixed points do not change.  The training loop clips gradients after the shift.

    Args:
        net: the network, on the device where it will be trained.
        slopes: slopes by parameter name.
    """

    def __init__(self, net: nn.Module, slopes: State) -> None:
        self._named = dict(net.named_parameters())
        self._totals = {name: torch.zeros_like(weight) for name, weight in self._named.items()}
        self._counts = dict.fromkeys(self._named, 0)
        self._hooks = [weight.register_hook(partial(self._shifted, name, slopes[name])) for name, weight in self._named.items()]

    def _shifted(self, name: str, slope: Tensor, gradient: Tensor) -> Tensor:
        self._totals[name] += gradient
        self._counts[name] += 1
        lengths = torch.linalg.vector_norm(gradient), torch.linalg.vector_norm(slope)
        return gradient + slope * (lengths[0] / lengths[1].clamp(min=SMALLEST)).clamp(max=1)

    def close(self) -> dict[str, Tensor]:
        """Stop shifting gradients; return the mean gradient by parameter name, 0 for a parameter without gradients."""
        for hook in self._hooks:
            hook.remove()
        steps = max(1, *self._counts.values())
        return {name: total / steps for name, total in self._totals.items()}
