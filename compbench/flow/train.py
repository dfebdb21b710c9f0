"""The one training loop: AdamW, warm-up and cosine, clipping, EMA, and checkpoints that resume exactly.

On a CPU an interrupted and resumed fit ends with the same bits as an undisturbed one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from compbench.flow.compilation import compiled, note, step_begins
from compbench.flow.path import LinearPath, logit_normal, point, target_velocity, times_around
from compbench.system.condition_counts import regressed
from compbench.system.errors import Cancelled, CompbenchError

if TYPE_CHECKING:
    from compbench.api.context import Batch, Context, Silo
    from compbench.api.interfaces import Budget

Loss = Callable[[Any, "Batch", Generator], Tensor]
"""(network, batch, generator on the batch's device) -> scalar loss; the network may be compiled, with the same arguments."""

LOSS_WINDOW = 50
"""Number of steps between readings of the loss; each reading makes the host wait for the device."""


def flow_matching_loss(
    net: Callable[..., Tensor], batch: Batch, generator: Generator, *, times: Callable[[int, Generator], Tensor] = logit_normal
) -> Tensor:
    """E || v(x_t, t | c) - (x1 - x0) ||^2, x_t = (1 - t) x0 + t x1, t logit-normal; the mean over entries.

    Args:
        net: (x_t (B, *D), t (B,), condition (B, F)) -> velocity (B, *D).
        batch: x1 and conditions.
        generator: draws x0 and t, on the batch's device.
        times: (count, generator) -> t, if it is not logit-normal.

    Returns:
        scalar loss, float32.
    """
    regressed(batch.condition)
    path, x1 = LinearPath(), batch.x1
    x0 = torch.randn(x1.shape, generator=generator, device=x1.device)  # (B, *D)
    t = times(len(x1), generator)  # (B,)
    velocity = net(point(path, x0, x1, t), t, batch.condition)
    return (velocity.float() - target_velocity(path, x0, x1, t)).square().mean()


def learning_rate(step: int, budget: Budget) -> float:
    """Linear warm-up to the peak, then a cosine to the final rate; `step` counts from 0."""
    if step < budget.warmup_steps:
        return budget.learning_rate * (step + 1) / budget.warmup_steps
    share = (step - budget.warmup_steps) / max(budget.train_steps - budget.warmup_steps, 1)
    fall = (1 + math.cos(math.pi * min(share, 1.0))) / 2
    return budget.final_learning_rate + (budget.learning_rate - budget.final_learning_rate) * fall


def ema_decay(step: int, budget: Budget) -> float:
    """The budget's decay, smaller in the first steps so that the average forgets the initial weights."""
    return min(budget.ema_decay, (1 + step) / (10 + step))


def train(
    net: nn.Module,
    loss: Loss,
    silo: Silo,
    budget: Budget,
    ctx: Context,
    *,
    weight_decay: float = 0.01,
    fast: bool = True,
    twice: bool = False,
) -> nn.Module:
    """Fit a network in place and leave the moving average of its weights in it.

    Parameters that require no gradient stay as they are, bit for bit.

    Args:
        net: the network, on any device; it is moved to the context's device.
        loss: (net, batch, generator) -> scalar.
        silo: source of batches, of any kind that the loss understands.  If it has a method `seek(step)`, a resumed fit calls it
            with its first step.
        budget: steps, batch size, learning rates, EMA decay, clip.
        ctx: device, precision, generator, checkpoints, progress, cancellation.
        weight_decay: AdamW's weight decay; 0 makes it Adam.
        fast: False selects the plain reference: fp32, eager, contiguous, one parameter at a time.
        twice: whether the loss contains a gradient of the network, so that it is differentiated twice, which torch cannot
            compile.

    Returns:
        `net` with averaged weights, in eval mode.

    Raises:
        Cancelled: the run was asked to stop; its checkpoint is saved.
        CompbenchError: the loss is not finite; the message names the step.
    """
    trainer = _Trainer(net, budget, ctx, weight_decay=weight_decay, fast=fast)
    velocity = compiled(net, ctx) if fast and not twice else net
    losses = torch.zeros(LOSS_WINDOW, device=ctx.device)
    saved = time.monotonic()
    first = trainer.resume()
    if first and hasattr(silo, "seek"):
        silo.seek(first)
    for step in range(first, budget.train_steps):
        if ctx.cancelled():
            trainer.save(step)
            raise Cancelled(f"stopped before step {step} of {budget.train_steps}.")
        if time.monotonic() - saved > budget.checkpoint_seconds:
            trainer.save(step)
            saved = time.monotonic()
        batch = silo.batch(budget.batch_size, ctx.generator)
        step_begins(velocity)
        with trainer.autocast(), times_around(budget.time_location):
            value = loss(velocity, trainer.laid_out(batch), trainer.generator)
        trainer.update(value, step)
        losses[step % LOSS_WINDOW] = value.detach()
        if (step + 1) % LOSS_WINDOW == 0 or step + 1 == budget.train_steps:
            _check_finite(losses, step)
            ctx.watch(losses, first, step + 1, budget.batch_size)
        ctx.progress(step + 1, budget.train_steps)
    if fast and not twice:
        note(ctx, velocity)
    return trainer.finish()


class _Trainer:
    """The state of a fit, all of which a checkpoint keeps: weights, moments, average, generators."""

    def __init__(self, net: nn.Module, budget: Budget, ctx: Context, *, weight_decay: float, fast: bool) -> None:
        self.net, self.budget, self.ctx, self.fast = net, budget, ctx, fast
        net.to(ctx.device).train()
        self.memory_format = torch.channels_last if fast and _has_convolutions(net) else torch.contiguous_format
        if self.memory_format is torch.channels_last:
            net.to(memory_format=torch.channels_last)
        named = {name: p for name, p in net.named_parameters() if p.requires_grad}
        self.names = list(named)
        self.parameters: list[Tensor] = list(named.values())
        how: dict[str, Any] = {"fused": True} if fast else {"foreach": False}
        self.optimiser = torch.optim.AdamW(self.parameters, lr=budget.learning_rate, weight_decay=weight_decay, **how)
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        self.generator = ctx.generator
        if ctx.device.type != "cpu":  # the noise of a batch is drawn on the device that uses it
            seed = int(torch.randint(2**62, (), generator=ctx.generator))
            self.generator = torch.Generator(ctx.device).manual_seed(seed)

    def autocast(self) -> AbstractContextManager[object]:
        return self.ctx.autocast() if self.fast else nullcontext()

    def laid_out(self, batch: Any) -> Any:
        """The batch with its images in the layout that suits the network's convolutions."""
        if self.memory_format is torch.contiguous_format:
            return batch
        return type(batch)(*(part.contiguous(memory_format=self.memory_format) if part.ndim == 4 else part for part in batch))

    def update(self, loss: Tensor, step: int) -> None:
        """One step of the optimiser and of the average, without waiting for the device."""
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.budget.gradient_clip, foreach=self.fast)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(step, self.budget)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        weight = 1 - ema_decay(step, self.budget)
        with torch.no_grad():
            if self.fast:
                torch._foreach_lerp_(self.average, self.parameters, weight)
            else:
                for mean, parameter in zip(self.average, self.parameters, strict=True):
                    mean.lerp_(parameter, weight)

    def save(self, step: int) -> None:
        """Save a checkpoint after which `step` is the next step."""
        tensors = {"generator": self.ctx.generator.get_state(), "device_generator": self.generator.get_state()}
        tensors |= _global_generators(self.ctx.device)
        for name, parameter, mean in zip(self.names, self.parameters, self.average, strict=True):
            tensors[f"weight.{name}"], tensors[f"average.{name}"] = parameter.detach(), mean
            for moment, tensor in self.optimiser.state[parameter].items():
                tensors[f"optimiser.{moment}.{name}"] = tensor
        self.ctx.checkpoints.save(tensors, {"step": step})

    def resume(self) -> int:
        """Load the last checkpoint, if there is one; return the next step."""
        found = self.ctx.checkpoints.load()
        if found is None:
            return 0
        tensors, facts = found
        expected = {f"weight.{name}" for name in self.names}
        if expected != {name for name in tensors if name.startswith("weight.")}:
            raise CompbenchError("the checkpoint is of another network; delete it, or run without --resume.")
        for name, parameter, mean in zip(self.names, self.parameters, self.average, strict=True):
            parameter.data.copy_(tensors[f"weight.{name}"])
            mean.copy_(tensors[f"average.{name}"])
            self.optimiser.state[parameter] = {
                moment: _like(parameter, tensors[f"optimiser.{moment}.{name}"])
                for moment in ("step", "exp_avg", "exp_avg_sq")
                if f"optimiser.{moment}.{name}" in tensors
            }
        missing = sorted(_global_generators(self.ctx.device).keys() - tensors.keys())
        if missing:
            raise CompbenchError(f"the checkpoint has no '{missing[0]}'; delete it, or run without --resume.")
        torch.set_rng_state(tensors["torch_generator"])
        if "cuda_generator" in tensors and self.ctx.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["cuda_generator"], self.ctx.device)
        self.ctx.generator.set_state(tensors["generator"])
        self.generator.set_state(tensors["device_generator"])
        return int(facts["step"])

    def finish(self) -> nn.Module:
        with torch.no_grad():
            for parameter, mean in zip(self.parameters, self.average, strict=True):
                parameter.copy_(mean)
        return self.net.eval()


def _global_generators(device: torch.device) -> dict[str, Tensor]:
    """States of torch's own generators, from which dropout draws: the CPU's and, on a GPU, the device's."""
    states = {"torch_generator": torch.get_rng_state()}
    return {**states, "cuda_generator": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def _check_finite(losses: Tensor, step: int) -> None:
    """Raise CompbenchError naming the first step of the window that ends with `step` whose loss is not finite."""
    start = step - step % LOSS_WINDOW
    bad = (~losses[: step - start + 1].isfinite()).nonzero()
    if len(bad):
        first = start + int(bad[0])
        raise CompbenchError(f"the loss is not finite at step {first}; lower budget.learning_rate or use --precision fp32.")


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """A stored moment on the parameter's device and with its strides, which fused kernels require."""
    if value.shape != parameter.shape:
        return value.to(parameter.device)  # the step count
    return torch.empty_like(parameter, requires_grad=False).copy_(value)


def _has_convolutions(net: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in net.modules())
