"""What a method gets for one stage of a run (device, precision, generator, checkpoints, progress), and the types around it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from compbench.system.files import Json

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor, nn

Presets = Literal["smoke", "quick", "standard", "paper"]
PRESETS: tuple[Presets, ...] = ("smoke", "quick", "standard", "paper")


def seed_of(purpose: str, *, num_bytes: int = 7) -> int:
    """A seed for one purpose: the first bytes of its SHA-256, so that different purposes draw independently."""
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:num_bytes], "big")


def generator_of(purpose: str) -> Generator:
    """A generator on the CPU for one purpose."""
    import torch

    return torch.Generator().manual_seed(seed_of(purpose))


class Batch(NamedTuple):
    """Training examples: data x1 (B, *D) float32 on the device, and conditions (B, F) long on the device."""

    x1: Tensor
    condition: Tensor


class Silo(Protocol):
    """One party's shard of the training data; `batch` draws examples with replacement.

    A silo may also have `condition`, the conditions (N, F) of all its examples; these labels may leave the silo.
    """

    name: str
    size: int

    def batch(self, size: int, generator: Generator) -> Batch: ...


class Window(NamedTuple):
    """A window of steps of a training loop whose losses a method has just read.

    Attributes:
        losses: losses of the steps begin, ..., done - 1, on the device where the loop keeps them.
        begin, done: steps of this loop before the window, and up to its end.
        batch_size: examples per step.
    """

    losses: Tensor
    begin: int
    done: int
    batch_size: int


class Checkpoints(Protocol):
    """Storage for the state from which a fit resumes; every array is a tensor, nothing is pickled.

    `name` is the name of a part of the fit; "" for the whole fit.
    """

    @property
    def name(self) -> str: ...

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None: ...

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Json]) -> None: ...

    def part(self, name: str) -> Checkpoints:
        """Checkpoints of one part of the fit (a silo, a round), next to the others."""
        ...

    def empty(self) -> None:
        """Free the space of this checkpoint and of its parts, which a resumed fit does not need."""
        ...


class NoCheckpoints:
    """Checkpoints for probes and tests, which keep nothing."""

    name = ""

    def load(self) -> None:
        return None

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Json]) -> None:
        return None

    def part(self, name: str) -> NoCheckpoints:
        return self

    def empty(self) -> None:
        return None


@dataclass
class Context:
    """What the harness gives a method for one stage: device, precision, one generator, progress and checkpoints.

    Attributes:
        device: where models and data live.
        precision: "fp32" or "bf16" (autocast); see `autocast()`.
        generator: the stage's random numbers, on the CPU; the only source of randomness that a method may use.
        progress: call it as progress(done, total) once per step; it is cheap.
        checkpoints: the stage's checkpoints.
        cancelled: returns true once the run was asked to stop; a training loop then saves and raises `Cancelled`.
        compile: whether compiling a network pays for this fit; the notes then say whether it was compiled (`compiled`).
        notes: numbers (or short lists of numbers) for the record, for example how many weights were clipped.
        watched: receives what `watch` reports, with the name of the part of the fit; None if it is not kept.
    """

    device: torch.device
    precision: Literal["fp32", "bf16"]
    generator: Generator
    checkpoints: Checkpoints
    progress: Callable[[int, int], None] = lambda done, total: None
    cancelled: Callable[[], bool] = lambda: False
    compile: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    watched: Callable[[str, Window], None] | None = None

    def watch(self, losses: Tensor, first: int, done: int, batch_size: int) -> None:
        """Report the latest losses of a training loop, for the curves of loss and throughput that a record keeps.

        A call belongs to the method's code, so adding one changes the identity of its runs.  It reads the losses from the device,
        so call it where the loop has just waited for the device, and not in every step.

        Args:
            losses: finite losses of the last W steps, (W,); the loss of step s (from 0) is at s % W.
            first: the step at which the loop began: 0, or the step at which a fit resumed.
            done: number of steps done.
            batch_size: examples per step.
        """
        if self.watched is None or done <= first:
            return
        start = (done - 1) // len(losses) * len(losses)
        begin = max(first, start)
        self.watched(self.checkpoints.name, Window(losses[begin - start : done - start], begin, done, batch_size))

    def part(self, name: str, *, progress: Callable[[int, int], None] | None = None) -> Context:
        """The context of one of several loops of a fit, with its own checkpoints and, if given, its own progress."""
        return replace(self, checkpoints=self.checkpoints.part(name), progress=progress or self.progress)

    def autocast(self) -> torch.autocast:
        """The autocast context of this precision: bf16 if the precision is bf16, off otherwise."""
        import torch

        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")


class Steps:
    """A count of steps over several loops, for the progress of a fit with silos, rounds or stages.

    Args:
        progress: called as progress(done, total).
        total: steps of all loops together.
    """

    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress, self._total = progress, total
        self._done, self._lock = 0, Lock()

    def part(self) -> Callable[[int, int], None]:
        """The progress function of the next loop, which counts its own steps from 0; loops may run side by side."""
        last = 0

        def progress(done: int, total: int) -> None:
            nonlocal last
            self.add(done - last)
            last = done

        return progress

    def add(self, count: int) -> None:
        """Add finished steps."""
        with self._lock:
            self._done += count
            self._progress(self._done, max(self._total, self._done))


class Notes:
    """Means of a method's notes over the requests of a stream; notes are numbers and short lists of numbers."""

    LONGEST, MOST = 1000, 64

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, list[float], bool]] = {}

    def add(self, stream: str, rows: int, notes: Mapping[str, object]) -> None:
        """Add the notes of a request of `rows` rows; values that are not finite numbers are ignored."""
        for name, value in notes.items():
            many = isinstance(value, list | tuple)
            entries = value if isinstance(value, list | tuple) else [value]
            values = [float(entry) for entry in entries if isinstance(entry, int | float)]
            key = re.sub(r"[^a-z0-9_ ]", "_", f"{stream} {name}".lower().strip())[:80]
            known = self._sums.get(key)
            fits = values and len(values) <= self.LONGEST and all(map(math.isfinite, values))
            if not fits or (known is None and len(self._sums) >= self.MOST) or (known and len(known[1]) != len(values)):
                continue
            total, sums, _ = known or (0.0, [0.0] * len(values), many)
            self._sums[key] = (total + rows, [a + rows * b for a, b in zip(sums, values, strict=True)], many)

    def means(self) -> dict[str, float | list[float]]:
        """The mean of each note, weighted by rows."""
        return {
            key: [value / total for value in sums] if many else sums[0] / total for key, (total, sums, many) in self._sums.items()
        }


class FitParts(NamedTuple):
    """A fit in two parts: a long one that several methods share, and each method's own second part.

    Attributes:
        fit: (settings, problem, ctx) -> the shared part, an `nn.Module`.
        build: (settings, problem) -> the same module untrained, so that a kept fit can be loaded into it.
        finish: (settings, problem, shared) -> model that `Method.sample` understands; it takes no optimiser steps.
    """

    fit: Callable[..., nn.Module]
    build: Callable[..., nn.Module]
    finish: Callable[..., nn.Module]

    def whole(self, settings: object, problem: object, ctx: Context) -> nn.Module:
        """Run both parts; this is a `Method.fit`."""
        return self.finish(settings, problem, self.fit(settings, problem, ctx))
