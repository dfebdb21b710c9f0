"""The whole training step of K stacked networks as one function of tensors, which compiles to one CUDA graph.

    g_k = clip(grad loss_k),    m <- b1 m + (1 - b1) g,    v <- b2 v + (1 - b2) g^2
    theta <- (1 - lr wd) theta - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps),    mean <- mean + w (theta - mean)

AdamW (Loshchilov & Hutter 2019) as torch computes it.  Everything that changes from step to step is in a table on the device, so
that the host sends nothing.  Where nothing is compiled, `many.train_many` uses torch's optimiser instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.func import grad_and_value

from compbench.flow.compilation import HOW, Compiled, step_begins
from compbench.flow.train import ema_decay, learning_rate
from compbench.flow.transfer import send

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.interfaces import Budget

State = dict[str, Tensor]
"""Weights by name, (K, ...) each."""
Losses = Callable[[State, Any], Tensor]
"""(weights, a batch whose tensors are (K, B, ...)) -> losses (K,)."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""AdamW's betas and epsilon, torch's defaults."""
SMALLEST_NORM = 1e-6
"""This number is added to the gradient's norm, as in `clip_grad_norm_`."""


class StackedStep:
    """Training steps of K networks by a compiled function; `used` says whether all of the work ran as compiled code.

    Args:
        losses: the losses of all networks, computed without branches on values.
        parameters: weights by name, (K, ...) each, which learn in place.
        average: their moving averages, in the same order, updated in place.
        budget: steps, learning rates, EMA decay and clip of each network.
        ctx: device and precision.
        weight_decay: weight decay of AdamW.
    """

    def __init__(
        self,
        losses: Losses,
        parameters: Mapping[str, Tensor],
        average: list[Tensor],
        budget: Budget,
        ctx: Context,
        *,
        weight_decay: float,
    ) -> None:
        self._losses, self._ctx, self._clip = losses, ctx, budget.gradient_clip
        self._state = {name: parameter.detach() for name, parameter in parameters.items()}
        self._moments = [[torch.zeros_like(parameter) for parameter in self._state.values()] for _ in range(2)]
        self._average = average
        self._schedule = send(schedule(budget, weight_decay), ctx.device)
        for tensor in (*self._state.values(), *self._moments[0], *self._moments[1], *average):
            torch._dynamo.mark_static_address(tensor)  # a CUDA graph writes to these tensors in place
        self.compiled = Compiled(self._advance, HOW[ctx.device.type])

    def __call__(self, step: int, batch: Any) -> Tensor:
        """Take a step on a batch of tensors (K, B, ...); return the losses before it, (K,), which the next step overwrites."""
        step_begins(self.compiled)
        with torch.no_grad():
            found: Tensor = self.compiled(batch, self._schedule[step])
        return found

    def _advance(self, batch: Any, row: Tensor) -> Tensor:
        keep, rate, correction, moved = row.unbind()

        def total(state: State) -> tuple[Tensor, Tensor]:
            with self._ctx.autocast():
                found = self._losses(state, batch)
            return found.sum(), found.detach()

        gradients, (_, losses) = grad_and_value(total, has_aux=True)(self._state)
        shorter = shortening(list(gradients.values()), self._clip)
        for weight, whole, first, second, mean in zip(
            self._state.values(), gradients.values(), *self._moments, self._average, strict=True
        ):
            gradient = whole * along(shorter, whole)
            first.lerp_(gradient, 1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            weight.mul_(keep).sub_(rate * first / (second.sqrt() / correction + EPSILON))
            mean.lerp_(weight, moved)
        return losses


def schedule(budget: Budget, weight_decay: float) -> Tensor:
    """The values that change from step to step, (steps, 4): 1 - lr wd, lr / (1 - b1^t), sqrt(1 - b2^t), and 1 - EMA decay."""
    rows = []
    for step in range(budget.train_steps):
        rate = learning_rate(step, budget)
        first, second = (1 - beta ** (step + 1) for beta in BETAS)
        rows.append((1 - rate * weight_decay, rate / first, math.sqrt(second), 1 - ema_decay(step, budget)))
    return torch.tensor(rows)


def shortening(gradients: Sequence[Tensor], largest: float) -> Tensor:
    """Factors (K,) that clip the gradients (K, ...) of K networks: below 1 if the norm over all parameters exceeds `largest`."""
    square = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0)  # (K,)
    return (largest / (square.sqrt() + SMALLEST_NORM)).clamp(max=1)


def along(factor: Tensor, gradient: Tensor) -> Tensor:
    """One factor per network, (K,), in the shape (K, 1, ...) that broadcasts with a gradient."""
    return factor.view(-1, *[1] * (gradient.ndim - 1))
