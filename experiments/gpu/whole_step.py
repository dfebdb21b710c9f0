"""The whole training step of one network, from its batch to the moving average, as one captured graph.

    batch -> loss -> backward -> clip -> AdamW -> mean,    with all that changes from step to step in a table on the device

`train_whole` has the same arguments and results as `compbench.flow.train.train`, up to rounding: a GPU takes rates as fp32.
Batches are drawn ahead for several steps, and noise comes from a generator that the graph advances, so the host launches one
graph per step.  There are no checkpoints, because this is only for measurements (`ways.py`).  On a CPU the same step runs
uncaptured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import Tensor, nn

from compbench.flow.compilation import Compiled, compiles, note
from compbench.flow.independence import Ramp
from compbench.flow.train import LOSS_WINDOW, Loss, _check_finite, _Trainer, ema_decay, learning_rate, train
from compbench.flow.transfer import send
from compbench.system.errors import Cancelled

if TYPE_CHECKING:
    from compbench.api.context import Context, Silo
    from compbench.api.interfaces import Budget

AHEAD = 16
"""Number of batches that are drawn at once on a GPU; it is one on a CPU, where batches and noise share a generator."""

WARM_UP = 3
"""Number of steps before the capture; during these, networks are compiled and the optimiser allocates its moments."""

RATES = {"cpu": torch.float64, "cuda": torch.float32}
"""Type of the learning rate: on a CPU as exact as in the plain step; a GPU's fused optimiser accepts only fp32."""


def train_whole(
    net: nn.Module,
    loss: Loss,
    silo: Silo,
    budget: Budget,
    ctx: Context,
    *,
    how: Mapping[str, Any],
    weight_decay: float = 0.01,
    fast: bool = True,
    twice: bool = False,
) -> nn.Module:
    """Fit a network in place and leave the moving average of its weights in the network, as `train` does.

    Args:
        net, loss, silo, budget, ctx, weight_decay, twice: as `train` takes them.
        fast: if False, `train` does the fit in its plain reference form.
        how: options of `torch.compile` for the network; they must not ask for CUDA graphs, which are captured here.

    Raises:
        Cancelled: the run was asked to stop.
        CompbenchError: the loss is not finite; the message names the step.
    """
    if not fast:
        return train(net, loss, silo, budget, ctx, weight_decay=weight_decay, fast=False)
    trainer = _Trainer(net, budget, ctx, weight_decay=weight_decay, fast=True)
    compiling = ctx.compile and not twice and (ctx.device.type == "cpu" or compiles(ctx.device.type))
    velocity = Compiled(net, dict(how)) if compiling else net
    whole = WholeStep(trainer, velocity, loss, silo)
    for step in range(budget.train_steps):
        if ctx.cancelled():
            raise Cancelled(f"stopped before step {step} of {budget.train_steps}.")
        whole(step)
        if (step + 1) % LOSS_WINDOW == 0 or step + 1 == budget.train_steps:
            _check_finite(whole.losses, step)
        ctx.progress(step + 1, budget.train_steps)
    note(ctx, velocity)
    return trainer.finish()


class Captured:
    """A step that is called many times.  On a GPU the first calls run uncaptured, the next one is captured, the rest replay it.

    Args:
        advance: changes a state in place; it draws only from the generator and does not wait for the device.
    """

    def __init__(self, advance: Callable[[], None], generator: torch.Generator, device: torch.device) -> None:
        self._advance, self._generator, self._device = advance, generator, device
        self._ran = 0
        self._graph: Any = None

    def __call__(self) -> None:
        if self._device.type != "cuda":
            self._advance()
        elif self._ran < WARM_UP:
            self._ran += 1
            with aside():
                self._advance()
        else:
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                self._graph.register_generator_state(self._generator)
                with torch.cuda.graph(self._graph):
                    self._advance()
            self._graph.replay()


@contextmanager
def aside() -> Iterator[None]:
    """Run the block on a separate stream, as work before a capture must."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


class WholeStep:
    """Training steps of a trainer's network; call it with 0, 1, 2, ... in order.

    Args:
        trainer: weights, optimiser, average and generators, as `train` has them.
        velocity: its network, compiled or not.
        loss: (network, batch, generator) -> scalar.  Values read on the host are read only once, except a `Ramp` of the silo.
        silo: source of the batches.

    Attributes:
        losses: losses of the last steps; that of step s is at s % LOSS_WINDOW.
    """

    def __init__(self, trainer: _Trainer, velocity: Callable[..., Any], loss: Loss, silo: Silo) -> None:
        device = trainer.ctx.device
        self._trainer, self._velocity, self._loss, self._silo = trainer, velocity, loss, silo
        self._schedule = send(schedule(trainer.budget, silo).to(RATES[device.type]), device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)  # the step's number
        self._rate = torch.zeros((), dtype=self._schedule.dtype, device=device)
        self._ahead = AHEAD if device.type == "cuda" else 1
        self._drawn: Any = None  # the next batches, as tensors (AHEAD, B, ...)
        self._taken = Captured(self.advance, trainer.generator, device)
        self.losses = torch.zeros(LOSS_WINDOW, device=device)
        for group in trainer.optimiser.param_groups:
            group |= {"lr": self._rate, "capturable": device.type == "cuda"}
        if isinstance(silo, Ramp):
            silo.on_device = torch.zeros((), device=device)  # type: ignore[attr-defined]

    def __call__(self, step: int) -> None:
        """Take a step: draw the next batches if none is left, and advance."""
        if step % self._ahead == 0:
            self._draw(min(self._ahead, self._trainer.budget.train_steps - step))
        self._taken()

    def _draw(self, count: int) -> None:
        """Draw the next batches into the same memory, because a graph reads it."""
        size, generator = self._trainer.budget.batch_size, self._trainer.ctx.generator
        for number in range(count):
            batch = self._silo.batch(size, generator)
            parts = [_channels_at_the_end(part) for part in batch]
            if self._drawn is None:
                self._drawn = type(batch)(*(part.new_empty((self._ahead, *part.shape)) for part in parts))
            for kept, part in zip(self._drawn, parts, strict=True):
                kept[number].copy_(part)

    def advance(self) -> None:
        """One step on the batch and the schedule's row whose number is stored on the device; it never waits for the device."""
        trainer, budget = self._trainer, self._trainer.budget
        rate, moved, share = self._schedule.index_select(0, self._place)[0].unbind()
        self._rate.copy_(rate)
        if isinstance(self._silo, Ramp):
            self._silo.on_device.copy_(share)  # type: ignore[attr-defined]
        own = self._place % self._ahead
        batch = type(self._drawn)(*(_image(part.index_select(0, own)[0]) for part in self._drawn))
        with trainer.autocast():
            value = self._loss(self._velocity, trainer.laid_out(batch), trainer.generator)
        value.backward()
        nn.utils.clip_grad_norm_(trainer.parameters, budget.gradient_clip, foreach=True)
        trainer.optimiser.step()
        trainer.optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            away = torch._foreach_sub(trainer.parameters, trainer.average)
            torch._foreach_mul_(away, moved.float())
            torch._foreach_add_(trainer.average, away)
        self.losses.index_copy_(0, self._place % LOSS_WINDOW, value.detach()[None].float())
        self._place += 1


def schedule(budget: Budget, silo: object) -> Tensor:
    """Values that change from step to step, (steps, 3): learning rate, 1 - EMA decay, share of a penalty's weight (`Ramp`)."""
    steps = silo._num_steps if isinstance(silo, Ramp) else 0
    return torch.tensor(
        [
            (learning_rate(step, budget), 1 - ema_decay(step, budget), min(1.0, (step + 1) / steps) if steps else 1.0)
            for step in range(budget.train_steps)
        ],
        dtype=torch.float64,
    )


@contextmanager
def ramps_on_device() -> Iterator[None]:
    """While the block runs, a `Ramp` that a whole step reads returns its share as a tensor, which a graph can read."""
    plain = Ramp.share
    with mock.patch.object(Ramp, "share", lambda ramp: ramp.on_device if hasattr(ramp, "on_device") else plain(ramp)):
        yield


def captured(answer: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A request on a GPU as one graph: its answer must draw nothing and must not wait for the device.

    Returns:
        () -> the same answer; it is overwritten by the next call.
    """
    with aside():
        for _ in range(WARM_UP):
            answer()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = answer()

    def replayed() -> Tensor:
        graph.replay()
        return found

    return replayed


def _channels_at_the_end(part: Tensor) -> Tensor:
    """Images (B, C, H, W) as (B, H, W, C), so that the memory is channels-last for images."""
    return part.permute(0, 2, 3, 1) if part.ndim == 4 else part


def _image(part: Tensor) -> Tensor:
    return part.permute(0, 3, 1, 2) if part.ndim == 4 else part
