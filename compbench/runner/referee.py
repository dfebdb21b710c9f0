"""The referee runs only our own code: it prepares judges and references, requests samples, and checks and scores them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from compbench.api.context import generator_of
from compbench.api.interfaces import Evaluation, Event, OpenTask, Request
from compbench.api.schemas import RunRequest, Shots, Stage
from compbench.api.shots import WithShots, examples_of
from compbench.registry.registry import Registry
from compbench.registry.resolve import budget_of, check_extra, metrics_of, task_context, task_of
from compbench.runner.heldout_pictures import HeldoutSamples, small_png, to_uint8
from compbench.runner.messages import WARM_UP, Evaluate, Evaluated, Message, Prepared, RefereeDescribed
from compbench.store.samples import KEPT, SAMPLES_FILE, Recorder, write_pool
from compbench.system import devices, profiling
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

if TYPE_CHECKING:
    from torch import Tensor


class Answer(Protocol):
    """(request, stream, number of requests of its shape that follow a warm-up) -> samples."""

    def __call__(self, request: Request, stream: str, follow: int = ..., /) -> Tensor: ...


Note = Callable[[Request, str, "Tensor"], None]
"""A function that receives each request, its stream and its checked samples."""
CPU_BATCH = 64
GPU_BATCH = 512
TRAJECTORY_BATCH = 256
VECTOR_BATCH = 8192
"""Samples per request: small image batches fit CPU caches, a GPU needs large batches, and vectors cost mostly per step."""
OWN_PROCESSES = 2
"""A run has two processes on a GPU, contestant and referee.  If there are more, other work contributes to the GPU's energy."""
MOST_VALUE = 1e9
"""Largest absolute value of a sample; a larger one has diverged, and a record cannot hold its square (`interfaces.LARGEST`)."""


class Referee:
    """One task: `describe`, then `prepare`, then `evaluate`.  Pictures go to `folder`, where no contestant writes."""

    def __init__(
        self,
        request: RunRequest,
        folder: Path,
        *,
        progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
        note: Note = lambda request, stream, samples: None,
        registry: Registry | None = None,
    ) -> None:
        self.request, self.folder, self.progress, self._note = request, folder, progress, note
        self.registry = registry or Registry(tuple(Path(file) for file in request.plugins))
        self.stages: list[Stage] = []
        self.opened: OpenTask | None = None
        self.draws_shots = True  # False where only an identity is needed
        self._joules: float | None = None

    def describe(self) -> RefereeDescribed:
        """Load the task and determine its data, device and precision."""
        self.task = task_of(self.request, self.registry)
        self.device = devices.resolve(self.request.device)
        self.precision = devices.precision(self.request.precision, self.device)
        devices.set_up(self.device, self.precision)
        home, metrics = Home(Path(self.request.home)), metrics_of(self.task, self.registry, self.request.metrics)
        check_extra(self.registry.entry("tasks", self.request.task), home.data, self.request.source)
        source = self.task.source(home.data, self.request.source)
        lent = partial(task_context, precision=self.precision, cache=home.references, metrics=metrics)
        self.context = replace(lent(self.request, source, self.device), progress=self.progress)
        budget = budget_of(self.request, self.task)
        default = self.task.budgets[self.request.preset]
        return RefereeDescribed(
            task_version=self.task.version,
            task_settings=self.task.settings.model_dump(mode="json"),
            budget=budget,
            budget_changed=tuple(name for name in type(budget).model_fields if getattr(budget, name) != getattr(default, name)),
            device=str(self.device),
            device_class=devices.device_class(self.device),
            precision=self.precision,
            source=source,
            metrics={name: metric.version for name, metric in sorted(self.context.metrics.items())},
            num_silos=self.task.silos,
            shots=self._shots(),
        )

    def _shots(self) -> Shots | None:
        """The shots of a task with shots.  The task is opened here, so that a request for too many shots fails before any fit."""
        if not self.draws_shots or not isinstance(self.task.open, WithShots):
            return None
        opened = self.task.open(self.context)
        self.opened = opened
        return opened.shots

    def obey(self, order: Message, answer: Answer) -> Message:
        """Carry out one of the parent's orders, `Prepare` or `Evaluate`."""
        from compbench.system.bf16 import arithmetic

        with arithmetic(self.device, self.precision):
            if isinstance(order, Evaluate):
                return self.evaluate(answer)
            self.prepare()
        return Prepared(parameters=self._parameters())

    def _parameters(self) -> int:
        """Number of parameters of the budget's backbone, counted without allocating them."""
        from compbench.flow.matching import parameters_of
        from compbench.flow.nets import backbone

        return parameters_of(partial(backbone, self.task.event, budget_of(self.request, self.task)))

    def prepare(self) -> None:
        """Render, train and cache what the evaluation needs, before the contestant is timed."""
        with profiling.timed(self.device) as clock:
            if self.opened is None:
                self.opened = self.task.open(self.context)
            self.opened.prepare()
        self.stages.append(Stage(name="prepare", seconds=clock.wall[0], cpu_seconds=clock.cpu[0]))
        self._joules = self._energy()

    def evaluate(self, answer: Answer) -> Evaluated:
        """Score a contestant, after a check of each answer.  Pictures go to the referee's folder."""
        import torch

        joules, recorder = self._energy(), Recorder()
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        sampler = CheckedSampler(
            answer, self.task.event, self.request, batch=self._batch(), progress=self.progress, warm_up=self.device.type == "cuda"
        )
        shown = HeldoutSamples(self.task.holdout)

        def note(request: Request, stream: str, samples: Tensor) -> None:
            (recorder.note if self.request.keep_samples else self._note)(request, stream, samples)
            if self.task.event.kind == "image":
                shown.note(request, stream, samples)

        sampler.note = note
        with profiling.timed(self.device) as clock:
            assert self.opened is not None
            found: Evaluation = self.opened.evaluate(sampler)
        score_seconds = max(0.0, clock.wall[0] - sampler.seconds - sampler.warm_up_seconds)
        if sampler.warm_up_seconds:
            self.stages.append(Stage(name="warm_up", seconds=sampler.warm_up_seconds))
        self.stages.append(Stage(name="sample", seconds=sampler.seconds))
        self.stages.append(Stage(name="score", seconds=score_seconds, cpu_seconds=clock.cpu[0]))
        self.folder.mkdir(parents=True, exist_ok=True)
        pictures = {name: small_png(picture) for name, picture in found.pictures.items()}
        pictures |= shown.pictures(self._real_pictures, film=self.request.curve > 0)
        for name, content in pictures.items():
            (self.folder / f"{name}.png").write_bytes(content)
        if self.request.keep_samples:
            write_pool(self.folder / SAMPLES_FILE, recorder.arrays(*KEPT))
        return Evaluated(
            scores=tuple(found.scores),
            stages=tuple(self.stages),
            referee_memory_bytes=profiling.peak_memory(self.device),
            **sampler.usual()._asdict(),
            num_bytes=sampler.num_bytes,
            peak_flops_per_second=profiling.measured_peak(self.device, dtype),
            energy_joules=None if joules is None or self._joules is None else max(0.0, joules - self._joules),
            pictures=tuple(sorted(pictures)),
        )

    def _real_pictures(self, condition: Tensor) -> Tensor | None:
        """A real picture of each full condition (B, F), uint8 (B, C, H, W); None if the task has none."""
        examples = examples_of(self.task, self.opened)
        if examples is None:
            return None
        found = examples(condition, generator_of(f"real pictures {self.request.seed}"))
        return to_uint8(found) if found.is_floating_point() else found

    def _energy(self) -> float | None:
        """Energy in joules that the device has used so far; None if other runs use it too."""
        alone = self.request.slots == 1 and profiling.num_processes(self.device) <= OWN_PROCESSES
        return profiling.energy(self.device) if alone else None

    def _batch(self) -> int:
        if self.task.event.kind == "vector":
            return VECTOR_BATCH
        if self.device.type == "cuda":
            return GPU_BATCH
        return TRAJECTORY_BATCH if self.task.event.kind == "trajectory" else CPU_BATCH


class Usual(NamedTuple):
    """Requests on which speeds are measured, in order: number of samples of each, and its seconds by the referee's clock."""

    batch: int = 0
    request_seconds: tuple[float, ...] = ()


class CheckedSampler:
    """Draw x0, ask in batches, time each request, and accept only samples of the right shape with finite values.

    x0 depends on seed, stream and row alone, so every method gets the same noise for the same request.  On a GPU (`warm_up`) a
    request that is larger than those before it is asked twice and counts once, because its first use loads and chooses kernels.
    """

    def __init__(
        self,
        answer: Answer,
        event: Event,
        request: RunRequest,
        *,
        batch: int,
        progress: Callable[[str, int, int], None],
        warm_up: bool = False,
    ) -> None:
        self._answer, self._event, self._request, self._batch = answer, event, request, batch
        self._progress, self._warmed = progress, {True: 0, False: 0} if warm_up else {}
        self.note: Note = lambda request, stream, samples: None
        self.seconds, self.warm_up_seconds, self.num_bytes = 0.0, 0.0, 0
        self._times: list[tuple[bool, int, float]] = []

    def __call__(
        self, condition: Tensor, *, stream: str, known: Tensor | None = None, known_mask: Tensor | None = None
    ) -> Tensor:
        """Samples (B, *D) float32 on the CPU for conditions (B, F), around the `known` entries if there are any.

        In a request with known entries, a sample that is not finite becomes all NaN if other samples are finite, so that a single
        failed plan fails its trial but not the run.

        Raises CompbenchError if the shape or type is wrong, values are not finite, or known entries changed (with the share).
        """
        import torch

        generator = generator_of(f"x0 {self._request.seed} {stream}")
        parts = []
        start = time.perf_counter()
        for first in range(0, len(condition), self._batch):
            part = slice(first, first + self._batch)
            rows = condition[part]
            x0 = torch.randn(len(rows), *self._event.shape, generator=generator)
            request = Request(rows, x0, *(() if known is None or known_mask is None else (known[part], known_mask[part])))
            if len(rows) > self._warmed.get(request.known is None, len(rows)):
                pause = time.perf_counter()
                self._answer(request, WARM_UP, (len(condition) - first) // len(rows))
                self._warmed[request.known is None] = len(rows)
                took = time.perf_counter() - pause
                start, self.warm_up_seconds = start + took, self.warm_up_seconds + took
            began = time.perf_counter()
            answer = self._answer(request, stream)
            self._times.append((request.known is None, len(rows), time.perf_counter() - began))
            parts.append(self._checked(answer, request))
            self.note(request, stream, parts[-1])
            self._progress(f"sample {stream}", first + len(rows), len(condition))
        made, seconds = torch.cat(parts), time.perf_counter() - start
        if known is not None and len(made) and bool(made.isnan().all()):  # only with known entries; else the first batch raises
            raise self._not_finite(1.0)
        self.seconds += seconds
        self.num_bytes += 2 * made.numel() * made.element_size()  # noise is sent one way, samples the other
        return made

    def usual(self) -> Usual:
        """The requests that speeds are measured on: the largest ones, and those without known entries if there are any."""
        free = any(free for free, _, _ in self._times)
        sizes = [rows for entry, rows, _ in self._times if entry == free]
        largest = max(sizes, default=0)
        return Usual(largest, tuple(seconds for entry, rows, seconds in self._times if (entry, rows) == (free, largest)))

    def _checked(self, samples: Tensor, request: Request) -> Tensor:
        shape, known, mask = tuple(request.x0.shape), request.known, request.known_mask
        if tuple(samples.shape) != shape:
            raise self._wrong(f"have shape {shape}, got {tuple(samples.shape)}.")
        if not samples.is_floating_point():
            raise self._wrong(f"be floating point, got {samples.dtype}.")
        samples = samples.float()
        finite = samples.abs() <= MOST_VALUE  # also False for NaN
        sound = finite.flatten(1).all(1)
        if not bool(sound.all()):
            if known is None:
                raise self._not_finite(1 - finite.float().mean().item())
            samples = samples.clone()
            samples[~sound] = float("nan")
        if known is not None and mask is not None and bool((changed := (samples != known)[sound][mask[sound]]).any()):
            share = changed.float().mean().item()
            what = f"keep the request's known entries, {share:.1%} of them were changed"
            raise self._wrong(f"{what}; compbench.flow.solver.answer keeps them.")
        return samples

    def _not_finite(self, share: float) -> CompbenchError:
        return self._wrong(f"be finite, {share:.1%} of the values are NaN, infinite or beyond {MOST_VALUE:g}.")

    def _wrong(self, what: str) -> CompbenchError:
        which = self._request.method
        entries = Registry(tuple(Path(file) for file in self._request.plugins)).entries("methods")
        files = [entry.file.name for entry in entries if entry.name == which and entry.version == "file" and entry.file]
        check = f"--plugin {files[0]}" if files else which
        return CompbenchError(f"samples of '{which}' must {what} `compbench check {check}` says what its file has to change.")
