"""The whole step ends where the training loop ends, in every way, and nothing in it waits for the device."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from support import stand_in
from support.stand_in import needs_newer_torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "gpu"))
import whole_step
from ways import Way, applied
from whole_step import AHEAD, WholeStep

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.flow.train import _Trainer, flow_matching_loss
from compbench.registry.registry import Registry
from compbench.testing.tiny_problems import BUDGET, PROBLEMS

CPU, STEPS = torch.device("cpu"), 20
REGISTRY = Registry()
TINY = {tiny.name: tiny for tiny in PROBLEMS}
LONGER = BUDGET.model_copy(update={"train_steps": STEPS, "warmup_steps": 5, "gradient_clip": 0.5})


class Fit(NamedTuple):
    """Weights that each training loop of a fit ended with, and their averages."""

    weights: list[Tensor]
    averages: list[Tensor]


def fits(name: str, kind: str, device: torch.device = CPU, steps: int = STEPS) -> list[Fit]:
    """The training loops of a method's fit, one a silo and stage."""
    method, found = REGISTRY.load("methods", name), []
    plain = _Trainer.finish

    def finish(trainer: _Trainer) -> nn.Module:
        found.append(Fit(*([_numbers(part) for part in parts] for parts in (trainer.parameters, trainer.average))))
        return plain(trainer)

    torch.manual_seed(0)
    problem = replace(TINY[kind].make(device), oracle=None, budget=LONGER.model_copy(update={"train_steps": steps}))
    with mock.patch.object(_Trainer, "finish", finish):
        method.fit(method.settings(), problem, Context(device, "fp32", torch.Generator().manual_seed(0), NoCheckpoints()))
    return found


def _numbers(part: Tensor) -> Tensor:
    return (part.inner if isinstance(part, stand_in.OnGPU) else part).detach().clone()


def assert_same(found: list[Fit], plain: list[Fit]) -> None:
    """Weights are equal to the bit, averages to 1e-6."""
    for one, other in zip(found, plain, strict=True):
        assert all(map(torch.equal, one.weights, other.weights))
        torch.testing.assert_close(one.averages, other.averages, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "kind"), [("factored", "vector"), ("factored", "image"), ("ddm", "silos"), ("fkc", "perturbation")]
)
def test_a_fit_by_whole_steps_is_the_plain_fit_to_the_bit(name: str, kind: str) -> None:
    """A rate that is a tensor, rows of a schedule on the device, an optimiser that can be captured."""
    plain = fits(name, kind)
    with applied(Way.WHOLE, CPU):
        assert_same(fits(name, kind), plain)


def test_a_penalty_that_grows_grows_in_whole_steps_too() -> None:
    """dcfm-a's lambda; its first stage, as the second starts from averages."""
    plain = fits("dcfm-a", "silos")
    with applied(Way.WHOLE, CPU):
        found = fits("dcfm-a", "silos")
    assert len(found) == len(plain) == 6
    assert_same(found[:3], plain[:3])
    torch.testing.assert_close(found[3:], plain[3:], rtol=0, atol=1e-4)


def test_batches_drawn_ahead_are_those_of_the_plain_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU in name only, where batches and noise have a generator each; more steps than are drawn at once, and a rest."""
    monkeypatch.setattr(whole_step.Captured, "__call__", lambda captured: captured._advance())
    monkeypatch.setattr(whole_step, "AHEAD", 3)
    monkeypatch.setitem(whole_step.RATES, "cuda", torch.float64)  # the numbers are a CPU's
    with stand_in.gpu():
        plain = fits("factored", "vector", stand_in.GPU, steps=5)
        with applied(Way.WHOLE, stand_in.GPU):
            assert_same(fits("factored", "vector", stand_in.GPU, steps=5), plain)


class Still:
    """A silo of one example."""

    name, size = "still", 1

    def __init__(self, x1: Tensor, condition: Tensor) -> None:
        self.data = Batch(x1, condition)

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        return Batch(*(part.expand(size, *part.shape[1:]).clone() for part in self.data))


def test_a_step_makes_the_host_wait_for_nothing() -> None:
    """Loss, backward, clip, optimiser and average, on a GPU in name only."""
    with stand_in.gpu() as log:
        problem = replace(TINY["image"].make(stand_in.GPU), budget=LONGER)
        ctx = Context(stand_in.GPU, "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
        method = REGISTRY.load("methods", "factored")
        trainer = _Trainer(method.build(method.settings(), problem), LONGER, ctx, weight_decay=0.01, fast=True)
        whole = WholeStep(trainer, trainer.net, flow_matching_loss, problem.federation.pooled())
        whole._draw(AHEAD)
        whole.advance()  # makes the optimiser's moments
        log.waits.clear()
        before = log.operations
        whole.advance()
        assert log.operations > before + 50
        assert log.waits == Counter()


class Seen(TorchDispatchMode):
    """Counts operations; the fused optimiser, for which fake tensors have no rule, does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return None if "_fused_adamw_" in str(func) else func(*args, **(kwargs or {}))


@contextmanager
def fake_gradients(parameters: list[Tensor]) -> Iterator[None]:
    """`backward` gives each parameter an empty gradient: fake tensors of a GPU have no backward where there is no GPU."""

    def backward(loss: Tensor) -> None:
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "backward", backward)
        yield


@needs_newer_torch
def test_the_captured_operations_hold_none_that_reads_a_number_on_the_host() -> None:
    """Under FakeTensorMode on "cuda", where a read raises as well."""
    problem = replace(TINY["image"].make(CPU), budget=LONGER)
    method = REGISTRY.load("methods", "factored")
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        made = method.build(method.settings(), problem)
        example = Batch(torch.empty(1, *problem.event.shape), torch.empty(1, len(problem.space), dtype=torch.long))
        ctx = Context(torch.device("cuda", 0), "fp32", torch.Generator(), NoCheckpoints())
        trainer = faked(made, ctx)
        whole = WholeStep(trainer, made, without_noise, Still(*example))
        whole._draw(AHEAD)
        with fake_gradients(trainer.parameters), Seen() as seen:
            whole.advance()
    assert seen.counts["aten.convolution.default"] > 5
    assert seen.counts["aten._fused_adamw_.tensor_lr"] == 1
    assert not [name for name in seen.counts if "_local_scalar_dense" in name or "is_nonzero" in name]


def faked(made: nn.Module, ctx: Context) -> Any:
    """A trainer without generators of a GPU, which cannot be made where there is none."""
    trainer = object.__new__(_Trainer)
    parameters = list(made.parameters())
    trainer.net, trainer.budget, trainer.ctx, trainer.fast = made, LONGER, ctx, True
    trainer.memory_format, trainer.parameters, trainer.generator = torch.channels_last, parameters, ctx.generator
    trainer.optimiser = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    trainer.average = [torch.empty_like(parameter) for parameter in parameters]
    return trainer


def without_noise(velocity: nn.Module, batch: Batch, generator: torch.Generator) -> Tensor:
    return velocity(batch.x1, batch.x1.mean((1, 2, 3)), batch.condition).square().mean()
