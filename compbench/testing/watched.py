"""Run a method on one tiny problem as the harness does, and record what it does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from compbench.api.context import Checkpoints, Context, NoCheckpoints
from compbench.api.interfaces import Method, MethodSettings, Problem, Request
from compbench.runner import asked_conditions, counted
from compbench.runner.checkpoints import FileCheckpoints
from compbench.system.bf16 import arithmetic
from compbench.system.condition_counts import ConditionCounts, counting
from compbench.system.errors import Cancelled, Refused
from compbench.testing import side_effects
from compbench.testing.called_conditions import called_conditions
from compbench.testing.tiny_problems import ROWS, Tiny

if TYPE_CHECKING:
    from compbench.api.factors import FactorSpace

FIT_SEED, SAMPLE_SEED, NOISE_SEED = 11, 12, 13

MAX_LATE_STEPS = 3
"""A fit may still report this many steps after it was asked to stop."""

CUTS = (0.7, 0.3)
"""A fit is stopped after these shares of its steps and then resumed: at both if there are silos, whose stages take turns."""


DIFFERENT = " with different conditions"
"""Text in a finding about a wrong answer to a request with another condition in each row."""


class Broken(Exception):
    """A clause is broken.  `found` says how; `fix` replaces the clause's advice, and `clause` names another broken clause."""

    def __init__(self, found: str, fix: str = "", clause: str = "") -> None:
        super().__init__(found)
        self.found, self.fix, self.clause = found, fix, clause


class Skipped(Exception):
    """A clause does not apply here; the message says why."""


class RefusedProblem(Exception):
    """The method refused the problem before it saw any data."""


class Progress:
    """The recorded progress of a fit; `stop_at` is the number of reports after which the fit is asked to stop."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.reports: list[tuple[int, int]] = []
        self._stop_at = stop_at

    def __call__(self, done: int, total: int) -> None:
        self.reports.append((int(done), int(total)))

    def cancelled(self) -> bool:
        return self._stop_at is not None and len(self.reports) >= self._stop_at

    @property
    def late(self) -> int:
        """Reports after the fit was asked to stop."""
        return len(self.reports) - (self._stop_at or 0)


class Stop(NamedTuple):
    """A fit that was asked to stop: its reports, its checkpoint, and whether it continued to its end."""

    progress: Progress
    path: Path
    went_on: bool


class Resumed(NamedTuple):
    """Samples of a resumed fit, and whether it loaded a checkpoint."""

    samples: Tensor
    stored: bool


class Subject:
    """One method on one problem on one device.

    Args:
        method: the method whose functions are called.
        tiny: the problem.
        device: the device to run on.
        room: an empty folder for checkpoints.
    """

    def __init__(self, method: Method, tiny: Tiny, device: torch.device, room: Path) -> None:
        self.method, self.tiny, self.device, self.room = method, tiny, device, room
        self.few = {name: few or tiny.make(device).budget.sample_steps for name, few in STEPS_OF_ITS_OWN.items()}
        self.settings = shortened(method.settings(), self.few)
        self.changes: list[str] = []
        self.fault: Broken | None = None
        self.imports = side_effects.Imports()
        self.used = counted.Tally()
        self.regressed = ConditionCounts()
        self.trained = ConditionCounts()
        self.fitted_on = counted.counted(self.fresh(), self.used)
        self.progress = Progress()
        self.precision = "fp32"
        self.fits_as_before = False  # whether fits were stopped and repeated on an earlier problem of this kind, in one silo
        self.fit_precision = ""  # for a fit in a precision other than `precision`
        self._at: dict[tuple[int, int], Tensor] = {}
        self._stops: dict[float, Stop] = {}
        self._resumed: dict[float, Resumed] = {}

    def fresh(self, make: Callable[[torch.device], Problem] | None = None) -> Problem:
        """A fresh problem; only oracles get its oracle."""
        problem = (make or self.tiny.make)(self.device)
        return problem if self.method.oracle else replace(problem, oracle=None)

    def stopped(self, cut: float) -> Stop:
        """The fit, stopped after a share of its steps with a checkpoint at every step, and then resumed; computed once."""
        if cut not in self._stops:
            path, progress = self.room / f"resume-{cut:g}.safetensors", Progress(max(1, round(cut * len(self.progress.reports))))
            try:
                self.fit(progress=progress, checkpoints=FileCheckpoints(path, resume=False), checkpoint_seconds=1e-9)
            except Cancelled:
                self._stops[cut] = Stop(progress, path, went_on=False)
            else:
                self._stops[cut] = Stop(progress, path, went_on=True)
        return self._stops[cut]

    def resumed(self, cut: float) -> Resumed:
        """Samples of `condition` after the stopped fit was resumed in a fresh problem; computed once."""
        if cut not in self._resumed:
            checkpoints = FileCheckpoints(self.stopped(cut).path, resume=True)
            model = self.fit(checkpoints=checkpoints)
            self._resumed[cut] = Resumed(self.sample(self.condition, self.x0, model=model), checkpoints.resumed)
        return self._resumed[cut]

    @contextlib.contextmanager
    def shortened(self, most: dict[str, int]) -> Iterator[None]:
        """Sample with at most the given numbers of steps and particles; the model keeps its original settings."""
        self.model  # noqa: B018 - fits
        settings, self.settings = self.settings, shortened(self.settings, most)
        try:
            yield
        finally:
            self.settings = settings

    @property
    def trains(self) -> bool:
        """Whether the fit has steps between which it can be stopped."""
        return not self.method.oracle and (len(self.progress.reports) > MAX_LATE_STEPS or self.used.optimiser_steps > 0)

    @property
    def space(self) -> FactorSpace:
        return self.fitted_on.space

    @cached_property
    def model(self) -> object:
        """The fitted model.  Raises RefusedProblem if the method refuses, and any other error of the fit."""
        try:
            return self.fit(problem=self.fitted_on, progress=self.progress)
        except Refused as error:
            if not self.used.examples:
                raise RefusedProblem(str(error)) from error
            raise

    @cached_property
    def condition(self) -> Tensor:
        """The first value of every factor, (ROWS, F)."""
        return torch.zeros(ROWS, len(self.space), dtype=torch.long, device=self.device)

    @cached_property
    def x0(self) -> Tensor:
        """Noise for ROWS samples."""
        return self.noise(ROWS)

    @cached_property
    def first(self) -> Tensor:
        """Samples of `condition` from `x0`."""
        return self.sample(self.condition, self.x0)

    def at(self, column: int, value: int) -> Tensor:
        """Samples of `condition` with another value of one factor, from `x0`; computed once."""
        if value == 0:
            return self.first
        if (column, value) not in self._at:
            asked = self.condition.clone()
            asked[:, column] = value
            self._at[column, value] = self.sample(asked, self.x0)
        return self._at[column, value]

    def noise(self, rows: int) -> Tensor:
        generator = torch.Generator().manual_seed(NOISE_SEED)
        return torch.randn(rows, *self.fitted_on.event.shape, generator=generator).to(self.device)

    def fit(
        self,
        *,
        seed: int = FIT_SEED,
        problem: Problem | None = None,
        progress: Progress | None = None,
        checkpoints: Checkpoints | None = None,
        steps: int | None = None,
        checkpoint_seconds: float | None = None,
        fit: Callable[..., object] | None = None,
    ) -> object:
        """Fit as the contestant does, after seeding torch's global generator and the context's; `fit` replaces the method's."""
        given = problem = problem or self.fresh()
        changed: dict[str, object] = {"train_steps": steps} if steps else {}
        if checkpoint_seconds is not None:
            changed["checkpoint_seconds"] = checkpoint_seconds
        problem = replace(problem, budget=problem.budget.model_copy(update=changed)) if changed else problem
        ctx = self.context(seed, progress or Progress(), checkpoints, self.fit_precision)
        tally = self.used if given is self.fitted_on else counted.Tally()
        with (
            self.watched("fit"),
            arithmetic(self.device, ctx.precision),
            tally.counting_steps(),
            counting() as regressed,
            called_conditions(len(problem.space), graded=True) as trained,
        ):
            found = (fit or self.method.fit)(self.settings, problem, ctx)
        if given is self.fitted_on:
            self.regressed, self.trained = regressed, trained
        return found

    def extend(self, base: object, problem: Problem) -> object:
        """The second stage on `problem.extension`."""
        assert self.method.extend is not None
        assert problem.extension is not None
        ctx = self.context(FIT_SEED, Progress(), None)
        with self.watched("extend"), arithmetic(self.device, ctx.precision):
            return self.method.extend(self.settings, base, problem.extension.factor, problem.extension.problem, ctx)

    def sample(
        self,
        condition: Tensor,
        x0: Tensor,
        *,
        model: object = None,
        seed: int = SAMPLE_SEED,
        stray: int = 0,
        known: Tensor | None = None,
        known_mask: Tensor | None = None,
        precision: str = "",
    ) -> Tensor:
        """Samples; `stray` changes torch's global generator, on which they must not depend."""
        ctx = self.context(seed, Progress(), None, precision)
        torch.manual_seed(seed + stray)
        asked = Request(condition, x0, known, known_mask)
        request = Request(condition.clone(), x0.clone(), _copy(known), _copy(known_mask))
        with self.watched("sample"), arithmetic(self.device, ctx.precision):
            made = self.method.sample(self.settings, self.model if model is None else model, request, ctx)
        for name, own, given in zip(Request._fields, request, asked, strict=True):
            if own is not None and given is not None and not torch.equal(own, given):
                raise self._wrong(f"sample wrote into request.{name}", f"work on a copy: request.{name}.clone()", "shape")
        if not isinstance(made, Tensor):
            raise self._wrong(f"sample returned a {type(made).__name__}", "return one tensor, (B, *D)")
        if made.dtype in (torch.bfloat16, torch.float16) and ctx.precision == "bf16":
            raise self._wrong(f"in bf16, which published runs use: {made.dtype}", "end with samples.float()", "precision")
        if made.dtype != torch.float32 or made.device != x0.device:
            found = f"{made.dtype} on {made.device} for {len(x0)} rows, requested on {x0.device}"
            raise self._wrong(found, "end with samples.float()", "dtype")
        if made.shape != x0.shape:
            found = f"{tuple(made.shape)} for x0 of {tuple(x0.shape)}" + self._varied(condition)
            raise self._wrong(found, "return one sample (*D) for each row, for any number of rows", "shape")
        return made.detach()

    def asked_for(self) -> ConditionCounts:
        """The conditions at which the model's networks are evaluated while `condition` is sampled."""
        with asked_conditions.watched(self.model) as counts, self.shortened(self.few):
            self.sample(self.condition, self.x0)
        return counts

    def called_for(self) -> ConditionCounts:
        """The conditions at which any module is called while `condition` is sampled, whatever its arguments are called."""
        with called_conditions(len(self.space)) as counts, self.shortened(self.few):
            self.sample(self.condition, self.x0)
        return counts

    @staticmethod
    def _varied(condition: Tensor) -> str:
        return DIFFERENT if bool((condition != condition[:1]).any()) else ""

    def _wrong(self, found: str, fix: str, clause: str = "") -> Broken:
        """Record the error that ends all requests; it fails the check even if the check catches the exception."""
        self.fault = Broken(found, fix, clause)
        return self.fault

    def context(self, seed: int, progress: Progress, checkpoints: Checkpoints | None, precision: str = "") -> Context:
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        return Context(
            device=self.device,
            precision="bf16" if (precision or self.precision) == "bf16" else "fp32",
            generator=generator,
            checkpoints=checkpoints or NoCheckpoints(),
            progress=progress,
            cancelled=progress.cancelled,
        )

    @contextlib.contextmanager
    def watched(self, stage: str) -> Iterator[None]:
        """Record what the stage changes and imports, and restore what it changed."""
        before = side_effects.global_state()
        try:
            with self.imports.watching():
                yield
        finally:
            found = side_effects.changes(before, side_effects.global_state())
            if found:
                self.changes += [f"{stage}: {line}" for line in found if f"{stage}: {line}" not in self.changes]
                side_effects.restore(before)

    def alike(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors are equal: bit for bit on a CPU, up to the order of sums on a GPU."""
        if self.device.type == "cpu" or one.shape != other.shape:
            return torch.equal(one, other)
        return bool(torch.allclose(one, other, rtol=0, atol=1e-2 * float(other.abs().max())))

    def differ(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors differ by more than rounding."""
        return one.shape != other.shape or not bool((one - other).abs().max() <= 1e-6 * other.abs().max())

    @staticmethod
    def drawn(problem: Problem) -> list[Tensor]:
        """All x1 that were drawn from the problem's silos."""
        silos = [*problem.federation._silos, *([problem.singles] if problem.singles is not None else [])]
        return [x1 for silo in silos for x1 in getattr(silo, "drawn", [])]


def _copy(given: Tensor | None) -> Tensor | None:
    return None if given is None else given.clone()


STEPS_OF_ITS_OWN = {"num_levels": 0, "num_steps": 0, "num_inner": 1, "num_particles": 4}
"""Settings by which a sampler takes another number of steps than the budget's, or many particles, each with the limit for it; 0
stands for the budget's number of steps."""

FEWEST_STEPS = {"num_levels": 2, "num_steps": 2, "num_inner": 1, "num_particles": 2}
"""The smallest values of these settings, for checks that compare rows of one request or measure what requests leave in memory,
and do not judge the law of the samples."""


def shortened(settings: MethodSettings, most: dict[str, int]) -> MethodSettings:
    """Settings with the named values reduced to at most those given, which also replace words like "auto"."""
    for name, few in most.items():
        own = getattr(settings, name, None)
        if isinstance(own, str) or (isinstance(own, int) and own > few):
            with contextlib.suppress(ValueError):
                settings = type(settings)(**{**settings.model_dump(), name: few})
    return settings
