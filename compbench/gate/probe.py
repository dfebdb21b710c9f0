"""Measure a method in its own process for the gate and `profile`: exact facts, all costs, or slices of a race.

    python -P probe.py ORDER      prints one JSON object on its last line; in a race, one for each line that it reads

Base and head both run *this* file, each with its own interpreter, so that both are measured in the same way.  The file uses only
what `compbench` has had since its first release, imports nothing else of the gate, and gets its order as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import json
import os
import runpy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.api.context import Context
    from compbench.api.interfaces import Problem, Request

T = TypeVar("T")
Clock = Callable[[], float]
Progress = Callable[[int, int], None]
Cancelled = Callable[[], bool]

FACT_STEPS = 3
"""Number of optimiser steps of the fit whose memory and samples are compared."""
FACT_ROWS = 8
LONG_FIT = 1_000_000
"""Number of steps of the timed fit, which is cancelled as soon as it has been timed for long enough."""
WINDOW_SECONDS = 0.02
"""Training is timed in windows of this length, long enough for the clock's resolution and for work done only every few steps."""
WARM_UP = 0.2
"""Windows count only after this share of the time."""
SAMPLE_ROWS = {"vector": 1024, "image": 32, "trajectory": 32}
RACE_ROWS = {"vector": 256, "image": 16, "trajectory": 16}
"""Number of samples per request in a race, which consists of many short turns."""
GPU_ROWS = 512
"""Number of samples per request whose cost is published; a GPU needs large batches."""
FEWEST, MOST, SHORTEST_FIT = 3, 500, 1e-3
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
"""Clocks; they are bound before a plugin is loaded, because a plugin could replace the functions of `time`."""


class Border(TypedDict):
    """The sandbox's source file, the folder that a probe may write to, and folders that it may not read."""

    file: str
    folder: str
    closed: list[str]


class Order(TypedDict, total=False):
    """An order (`sides.order_of`, `sides.code`); each kind of order uses some of these fields."""

    kind: Literal["code", "race", "costs", "facts", "described"]
    border: Border
    method: str
    task: str
    overrides: dict[str, object]
    preset: str
    seed: int
    plugins: list[str]
    home: str
    device: str
    source: str
    clock: Literal["cpu", "wall"]
    seconds: float
    precision: str
    threads: int
    pairs: list[tuple[str, str]]


class Subject:
    """A method on a task, loaded by the `compbench` of this interpreter."""

    def __init__(self, order: Order) -> None:
        import torch

        RunRequest = ours("schemas").RunRequest
        Registry = ours("registry").Registry
        devices = ours("devices")

        names = ("method", "task", "overrides", "preset", "seed", "source", "plugins", "home")
        request = RunRequest(**{name: value for name, value in order.items() if name in names})
        self.registry = registry = Registry(tuple(Path(file) for file in request.plugins))
        self.device, self.seed, resolve = devices.resolve(order["device"]), int(order["seed"]), _resolve()
        self.method = registry.load("methods", request.method)
        self.task = resolve.task_of(request, registry)
        why_not = getattr(resolve, "why_not", None)  # older code lacks it
        if why_not is not None and (reason := why_not(self.method, self.task)):
            raise ours("errors").CompbenchError(reason)
        self.settings = resolve.settings_of(request, self.method)
        self.budget = resolve.budget_of(request, self.task)
        source = self.task.source(Path(request.home) / "data", request.source)
        self.source, self.precision = source, devices.precision(order.get("precision", "fp32"), self.device)
        cache = Path(order["border"]["folder"]) / "cache"
        context = resolve.task_context(request, source, self.device, precision=self.precision, cache=cache)
        if self.device.type == "cuda":  # as in `devices.set_up`, which older code lacks
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
            torch.backends.cudnn.benchmark = True
        torch.manual_seed(self.seed)
        problem = self.task.open(context).problem(self.budget)
        self.problem: Problem = problem if self.method.oracle else replace(problem, oracle=None)

    def fit(self, steps: int, *, progress: Progress | None = None, cancelled: Cancelled | None = None) -> object:
        """A model after `steps` optimiser steps, with its extension if the task has one."""
        budget = self.budget.model_copy(update={"train_steps": steps, "extend_steps": min(steps, self.budget.extend_steps)})
        problem = replace(self.problem, budget=budget, federation=self.problem.federation.unmetered())
        with self._arithmetic():
            model = self.method.fit(self.settings, problem, self._context("fit", progress, cancelled))
            if self.problem.extension is None:
                return model
            extension = self.problem.extension
            larger = replace(extension.problem, budget=budget)
            context = self._context("extend", progress, cancelled)
            if self.method.extend is None:
                return self.method.fit(self.settings, larger, context)
            return self.method.extend(self.settings, model, extension.factor, larger, context)

    def request(self, rows: int) -> Request:
        """`rows` combinations, spread over the lattice, and noise; the same for base and head."""
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        columns = [torch.randint(size, (rows,), generator=generator) for size in self.final.space.sizes]
        x0 = torch.randn(rows, *self.task.event.shape, generator=generator)
        request: Request = ours("interfaces").Request(torch.stack(columns, 1).to(self.device), x0.to(self.device))
        return request

    def sample(self, model: object, request: Request) -> Tensor:
        with self._arithmetic():
            samples: Tensor = self.method.sample(self.settings, model, request, self._context("sample"))
        return samples

    def _arithmetic(self) -> contextlib.AbstractContextManager[object]:
        """The context in which a run of this compbench computes; one without it computed as torch does."""
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            found: contextlib.AbstractContextManager[object] = ours("bf16").arithmetic(self.device, self.precision)
            return found
        return contextlib.nullcontext()

    @property
    def final(self) -> Problem:
        """The problem that requests belong to; for an extension task, the larger one."""
        return self.problem.extension.problem if self.problem.extension else self.problem

    def _context(self, purpose: str, progress: Progress | None = None, cancelled: Cancelled | None = None) -> Context:
        import torch

        own = ours("context")

        seed = own.seed_of(f"{self.seed} {purpose}")
        torch.manual_seed(seed)
        precision: Literal["bf16", "fp32"] = "bf16" if self.precision == "bf16" else "fp32"  # as in a run
        context: Context = own.Context(self.device, precision, torch.Generator().manual_seed(seed), own.NoCheckpoints())
        context.progress = progress or context.progress
        context.cancelled = cancelled or context.cancelled
        context.compile = self.device.type == "cuda"
        return context


def facts(subject: Subject) -> dict[str, object]:
    """Exact facts: the same on every run of the same code on one machine."""
    import torch

    devices = ours("devices")
    profiling = ours("profiling")

    gc.collect()
    gc.disable()  # the moment of collection depends on other imports
    model, training_bytes = peak_bytes(lambda: subject.fit(FACT_STEPS))
    request = subject.request(FACT_ROWS)
    samples, sampling_bytes = peak_bytes(lambda: subject.sample(model, request))
    found = {
        "parameters": profiling.num_parameters(model),
        "flops_per_fit": profiling.count_flops(lambda: subject.fit(1)),
        "flops_per_sample": profiling.count_flops(lambda: subject.sample(model, request)) / FACT_ROWS,
        "training_bytes": training_bytes,
        "sampling_bytes": sampling_bytes,
        "samples_sha256": hashlib.sha256(samples.detach().float().contiguous().numpy().tobytes()).hexdigest(),
    }
    if subject.method.evaluations is not None:
        found["evaluations"] = int(subject.method.evaluations(subject.settings, subject.final))
    capability = getattr(torch.backends.cpu, "get_cpu_capability", lambda: "")()
    return {"facts": found, "torch": torch.__version__, "cpu": " ".join(filter(None, [devices.cpu_name(), capability]))}


def peak_bytes(call: Callable[[], T]) -> tuple[T, int]:
    """The result of `call`, and the peak number of bytes that torch's CPU allocator held for it, beyond those held before.

    The peak is that of the running sum of recorded allocations and frees, so it depends on neither timing nor memory pages.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    held = peak = 0
    for event in events:
        held += event.nbytes()
        peak = max(peak, held)
    return result, peak


def described(subject: Subject) -> dict[str, object]:
    """The circumstances of a cost: settings of the runs that it applies to, size of a request, torch version and threads."""
    import torch

    devices = ours("devices")
    return {
        "rows": _rows(subject),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "metrics": sorted(_resolve().metrics_of(subject.task, subject.registry)),
        "spec": {
            "task_version": subject.task.version,
            "task_settings": subject.task.settings.model_dump(mode="json"),
            "method_version": subject.method.version,
            "settings": subject.settings.model_dump(mode="json"),
            "budget": subject.budget.model_dump(mode="json"),
            "device_class": devices.device_class(subject.device),
            "precision": subject.precision,
            "source": subject.source.kind,
            "fingerprint": subject.source.fingerprint,
        },
    }


def costs(subject: Subject, clock: Clock, seconds: float) -> dict[str, object]:
    """Durations, the memory used, and how many cores other processes kept busy meanwhile (None if unknown).

    `train` is the median seconds per step; it is missing if a fit reports no steps.  `single` and `batch` are the seconds of each
    request of one sample, and of as many samples as `described` says, after a first request that does not count.
    """
    import torch

    devices = ours("devices")
    profiling = ours("profiling")

    if subject.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(subject.device)
    ticks, wall, cpu = devices.core_ticks(), CLOCKS["wall"](), CLOCKS["cpu"]()
    train = _train_seconds(subject, clock, seconds)
    model = subject.fit(2)
    single, batch = subject.request(1), subject.request(_rows(subject))
    found = {
        "train": train,
        "single": _repeat(lambda: subject.sample(model, single), subject, clock, seconds),
        "batch": _timed(lambda: subject.sample(model, batch), subject, clock, seconds, fewest=1),
    }
    own = (CLOCKS["cpu"]() - cpu) / (CLOCKS["wall"]() - wall)
    return {
        "seconds": {name: value for name, value in found.items() if value is not None},
        "peak_memory_bytes": profiling.peak_memory(subject.device),
        "other_cores": round(max(0.0, devices.cores_busy(ticks, devices.core_ticks()) - own), 2) if ticks else None,
    }


def _rows(subject: Subject) -> int:
    rows = SAMPLE_ROWS[subject.task.event.kind]
    return max(rows, GPU_ROWS) if subject.device.type == "cuda" else rows


class Turns:
    """Train or sample for one slice whenever a line requests it, and answer with the seconds of a step or of a request.

    Between slices the process waits inside its own fit and uses no CPU time.  Two such processes take turns of a fraction of a
    second, so other work on the machine slows both.  `receive` waits for the next line ("train", "sample", or "" for the end);
    `send` takes the seconds, or None if a fit takes no time.
    """

    def __init__(
        self, subject: Subject, clock: Clock, seconds: float, receive: Callable[[], str], send: Callable[[float | None], None]
    ) -> None:
        self._subject, self._clock, self._seconds = subject, clock, seconds
        self._receive, self._send = receive, send
        self._order = receive()

    def serve(self) -> None:
        """Answer requests until the end."""
        while self._order in ("train", "sample"):
            self._train() if self._order == "train" else self._sample()

    def _answer(self, seconds: float | None) -> None:
        self._send(seconds)
        self._order = self._receive()

    def _train(self) -> None:
        """Time slices of one long fit, which pauses while it reports a step; if a fit reports no steps, time whole fits."""
        Cancelled = ours("errors").Cancelled

        start, counted = None, 0

        def progress(done: int, total: int) -> None:
            nonlocal start, counted
            if start is not None and self._clock() - start >= self._seconds and done > counted:
                _synchronise(self._subject)
                self._answer((self._clock() - start) / (done - counted))
                start = None
            if start is None:
                start, counted = self._clock(), done

        try:
            self._subject.fit(LONG_FIT, progress=progress, cancelled=lambda: self._order != "train")
        except Cancelled:
            return
        while self._order == "train":
            began = self._clock()
            self._subject.fit(LONG_FIT)
            _synchronise(self._subject)
            self._answer(took if (took := self._clock() - began) > SHORTEST_FIT else None)

    def _sample(self) -> None:
        subject, clock = self._subject, self._clock
        model, request = subject.fit(2), subject.request(RACE_ROWS[subject.task.event.kind])
        subject.sample(model, request)
        while self._order == "sample":
            start, count = clock(), 0
            while not count or clock() - start < self._seconds:
                subject.sample(model, request)
                count += 1
            _synchronise(subject)
            self._answer((clock() - start) / count)


def _race(order: Order) -> None:
    """Load, report that, and take turns.  Answers have their own descriptor, so a plugin's output cannot look like one."""
    lines, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def send(answer: object) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        subject = Subject(order)
        send("ready")
        Turns(subject, CLOCKS[order["clock"]], order["seconds"], lambda: lines.readline().strip(), send).serve()
    except Exception as error:
        send(_error(error))


ROOMS = ("api.", "system.", "registry.", "identity.", "run.", "")
"""Packages in which to look for a module of the harness, first in today's layout and then in the layouts of older bases."""


def ours(name: str) -> ModuleType:
    """A module of this interpreter's compbench, in whichever package its release has it."""
    for room in ROOMS:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"compbench.{room}{name}")
    raise ModuleNotFoundError(f"this compbench has no module '{name}'")


def _resolve() -> ModuleType:
    """The module that resolves requests."""
    return ours("resolve")


def _code(order: Order) -> dict[str, str]:
    """Hashes of everything that a run of each cell executes here: code by its meaning, packages and Python by their versions."""
    executed = ours("meaning").executed
    Registry = ours("registry").Registry

    registry = Registry(tuple(map(Path, order["plugins"])))
    scoring = {task: _resolve().metrics_of(registry.load("tasks", task), registry) for _, task in order["pairs"]}
    return {f"{m}/{t}": executed(registry, method=m, task=t, metrics=scoring[t]) for m, t in order["pairs"]}


def _train_seconds(subject: Subject, clock: Clock, seconds: float) -> float | None:
    """Median over windows of the seconds per step; None if a method reports (nearly) no steps."""
    Cancelled = ours("errors").Cancelled

    windows: list[tuple[float, float]] = []  # end of the window since the first step, seconds per step
    first = start = None
    counted = 0

    def progress(done: int, total: int) -> None:
        nonlocal first, start, counted
        now = clock()
        if start is None:
            first, start, counted = now, now, done
        elif now - start >= WINDOW_SECONDS and done > counted:
            _synchronise(subject)
            now = clock()
            windows.append((now - first, (now - start) / (done - counted)))
            start, counted = now, done

    def cancelled() -> bool:
        return bool(windows) and windows[-1][0] > seconds and len(windows) >= 2 * FEWEST

    try:
        subject.fit(LONG_FIT, progress=progress, cancelled=cancelled)
    except Cancelled:
        pass
    else:
        if len(windows) < 2 * FEWEST:
            return None
    return statistics.median(each for end, each in windows if end > WARM_UP * windows[-1][0])


def _repeat(call: Callable[[], object], subject: Subject, clock: Clock, seconds: float) -> list[float]:
    """Seconds of calls, after a first one that does not count; if a call takes long, there is only one."""
    (first,) = _timed(call, subject, clock, 0.0, fewest=1)
    return _timed(call, subject, clock, seconds, fewest=FEWEST if first < FEWEST * seconds else 1)


def _timed(call: Callable[[], object], subject: Subject, clock: Clock, seconds: float, *, fewest: int) -> list[float]:
    times: list[float] = []
    while len(times) < fewest or (sum(times) < seconds and len(times) < MOST):
        _synchronise(subject)
        start = clock()
        call()
        _synchronise(subject)
        times.append(clock() - start)
    return times


def _synchronise(subject: Subject) -> None:
    if subject.device.type == "cuda":
        import torch

        torch.cuda.synchronize(subject.device)


def close_border(file: str, folder: str, closed: list[str], *, device: str) -> None:
    """Start CUDA, then put up the sandbox of the head's `compbench.runner.sandbox`, which older code may not have."""
    import torch

    if device != "cpu" and torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
    runpy.run_path(file)["put_up"](forbidden=map(Path, closed), writable=[Path(folder)])


def main(text: str) -> dict[str, object]:
    """Carry out the order; an error is returned as an answer."""
    order: Order = json.loads(text)
    try:
        if order["kind"] == "code":
            return {"code": _code(order)}
        import torch

        torch.set_num_threads(order.get("threads", 1))
        close_border(**order["border"], device=order["device"])
        if order["kind"] == "race":
            _race(order)
            return {}
        subject = Subject(order)
        if order["kind"] == "costs":
            return costs(subject, CLOCKS[order["clock"]], order["seconds"])
        return facts(subject) if order["kind"] == "facts" else described(subject)
    except Exception as error:
        return _error(error)


def _error(error: Exception) -> dict[str, object]:
    return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}


if __name__ == "__main__":
    print(f"\n{json.dumps(main(sys.argv[1]))}", flush=True)
