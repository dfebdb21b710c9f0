"""Many small networks of one architecture trained at once: weights stacked along a leading axis, one vectorised step.

    theta_k <- AdamW(theta_k, grad loss(theta_k, batch_k, weights_k)),   k = 1 ... K

Each network has its own initial weights, batches, clipping and average, so the result is that of `train` for each one, up to the
order of sums.  This is faster if a step of one network is too small to fill the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from stacked_step import Losses, StackedStep, along, shortening
from torch import Generator, Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from compbench.api.context import Batch
from compbench.flow.compilation import compiles, note
from compbench.flow.train import LOSS_WINDOW, ema_decay, learning_rate
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.api.context import Context, Silo
    from compbench.api.interfaces import Budget

ManyLoss = Callable[[nn.Module, Any, Tensor], Tensor]
"""A function: (one network, its batch, its row of `weights`) -> scalar.  `vmap` vectorises it, so it must draw no random numbers
and have no branches on values; random draws come with the batch."""


class _Losses(nn.Module):
    """The loss as a module's forward, so that `functional_call` swaps the weights of all that the loss calls."""

    def __init__(self, net: nn.Module, loss: ManyLoss) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, batch: Any, weights: Tensor) -> Tensor:
        return self.loss(self.net, batch, weights)


def train_many(
    nets: Sequence[nn.Module],
    loss: ManyLoss,
    silos: Sequence[Any],
    budget: Budget,
    ctx: Context,
    *,
    generators: Sequence[Generator],
    weights: Tensor,
    weight_decay: float = 0.01,
) -> None:
    """Fit K networks in place and leave the moving averages of their weights in them, in eval mode.

    There are no checkpoints, because this is only for experiments; a run of the harness fits one model.  If the context asks for
    compilation, each step is one compiled function (`stacked_step`), on a GPU one CUDA graph; the context's notes say whether
    compilation succeeded.

    Args:
        nets: K networks of one architecture, whose parameters all learn.
        loss: the loss of one network.
        silos: K sources of batches, one per network; batches are named tuples of tensors, all of one kind.
        budget: steps, batch size, learning rates, EMA decay and clip of each network.
        ctx: device, precision and progress; its generator is not used.
        generators: K generators on the CPU, which draw the batches of each network.
        weights: numbers that differ between the losses, (K, W), such as weights of penalties.
        weight_decay: weight decay of AdamW.

    Raises:
        CompbenchError: a loss is not finite; the message names the network and the steps.
    """
    for net in nets:
        net.to(ctx.device).train()
    stacked, buffers = stack_module_state([_Losses(net, loss) for net in nets])
    shell = _Losses(nets[0], loss)
    parameters = list(stacked.values())
    average = [parameter.detach().clone() for parameter in parameters]
    weights = weights.to(ctx.device)

    def one(own: dict[str, Tensor], fixed: dict[str, Tensor], batch: Any, row: Tensor) -> Tensor:
        return functional_call(shell, (own, fixed), (batch, row))

    def all_of(state: dict[str, Tensor], batch: Any) -> Tensor:
        return vmap(one)(state, buffers, batch, weights)  # (K,)

    take: StackedStep | _PlainStep
    if ctx.compile and (ctx.device.type == "cpu" or compiles(ctx.device.type)):
        take = StackedStep(all_of, stacked, average, budget, ctx, weight_decay=weight_decay)
    else:
        take = _PlainStep(all_of, stacked, average, budget, ctx, weight_decay=weight_decay)
    losses = torch.zeros(LOSS_WINDOW, len(nets), device=ctx.device)
    batches = _from_one_table(silos, budget, generators, ctx.device) or _from_each(silos, budget, generators)
    for step, batch in enumerate(batches):  # tensors (K, B, ...)
        losses[step % LOSS_WINDOW] = take(step, batch)
        if (step + 1) % LOSS_WINDOW == 0 or step + 1 == budget.train_steps:
            _check_finite(losses[: step % LOSS_WINDOW + 1], step)
        ctx.progress(step + 1, budget.train_steps)
    note(ctx, take.compiled)
    with torch.no_grad():
        for name, mean in zip(stacked, average, strict=True):
            for net, own in zip(nets, mean.unbind(), strict=True):
                net.get_parameter(name.removeprefix("net.")).copy_(own)
    for net in nets:
        net.eval()


class _PlainStep:
    """The uncompiled reference of `StackedStep`, with torch's own optimiser and one operation after the other."""

    def __init__(
        self,
        losses: Losses,
        parameters: dict[str, Tensor],
        average: list[Tensor],
        budget: Budget,
        ctx: Context,
        *,
        weight_decay: float,
    ) -> None:
        self._losses, self._state, self._average, self._budget, self._ctx = losses, parameters, average, budget, ctx
        self.compiled = losses  # never compiled; read by a note
        self._parameters = list(parameters.values())
        self._optimiser = torch.optim.AdamW(self._parameters, lr=budget.learning_rate, weight_decay=weight_decay, fused=True)

    def __call__(self, step: int, batch: Any) -> Tensor:
        with self._ctx.autocast():
            value = self._losses(self._state, batch)
        value.sum().backward()
        clip_each(self._parameters, self._budget.gradient_clip)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate(step, self._budget)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(self._average, self._parameters, 1 - ema_decay(step, self._budget))
        return value.detach()


def _from_each(silos: Sequence[Silo], budget: Budget, generators: Sequence[Generator]) -> Iterator[Any]:
    """Batches (K, B, ...) of silos of any kind, drawn from one silo after the other at each step."""
    for _ in range(budget.train_steps):
        drawn = [silo.batch(budget.batch_size, generator) for silo, generator in zip(silos, generators, strict=True)]
        yield type(drawn[0])(*(torch.stack(parts) for parts in zip(*drawn, strict=True)))


def _from_one_table(
    silos: Sequence[Silo], budget: Budget, generators: Sequence[Generator], device: torch.device
) -> Iterator[Batch] | None:
    """The same batches if all silos are one table on the device: all rows are drawn before the first step and sent once.

    A table has `x1` and `condition` of all its examples, and draws rows with replacement.  Returns None for other silos.
    """
    table: Any = silos[0]
    if any(silo is not table for silo in silos) or not all(hasattr(table, name) for name in ("x1", "condition")):
        return None
    shape = (budget.batch_size,)
    drawn = [
        torch.stack([torch.randint(table.size, shape, generator=generator) for _ in range(budget.train_steps)])
        for generator in generators
    ]
    rows = send(torch.stack(drawn, dim=1), device)  # (steps, K, B)
    return (Batch(table.x1[chosen], table.condition[chosen]) for chosen in rows)


def clip_each(parameters: Sequence[Tensor], largest: float) -> None:
    """Clip the gradients (K, ...) of those among K networks whose norm over all parameters is above `largest`."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    shorter = shortening(gradients, largest)
    for gradient in gradients:
        gradient.mul_(along(shorter, gradient))


def _check_finite(losses: Tensor, step: int) -> None:
    """Raise CompbenchError with the first network whose loss is not finite in the window (steps, K) that ends with `step`."""
    bad = (~losses.isfinite()).any(0).nonzero()
    if len(bad):
        which = f"network {int(bad[0])} of {losses.shape[1]}"
        raise CompbenchError(
            f"the loss of {which} is not finite in steps {step + 1 - len(losses)} to {step}; lower budget.learning_rate."
        )
