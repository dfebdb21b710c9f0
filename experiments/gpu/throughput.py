"""Measure the speed of the `paper` preset on a device, for each way of computing it; one JSON line per measurement.

    python experiments/gpu/throughput.py [--device cuda] [--seconds 400] [--out speed.jsonl] [--row NAME] [--way WAY] [--tiny]

A way (`ways.py`) determines how fits and samples are computed; the default is the harness's.  Training calls the method's own
`fit` on the task's own data and is stopped after some seconds; sampling calls its own `sample`.  Rows are in order of importance,
so that a limit cuts off the least important ones.  `--tiny` runs anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from compbench.api.context import Context, NoCheckpoints, Presets
from compbench.api.interfaces import Problem, Request, SamplePair, TaskContext
from compbench.flow.compiled_sampling import COMPILE_FROM, compiled_sampling
from compbench.flow.low_rank_maps import penalised_loss
from compbench.flow.silos import network
from compbench.metrics.image import kid, precision, recall
from compbench.registry.registry import Registry
from compbench.system import devices, profiling
from compbench.system.errors import Cancelled

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from many import train_many
from stacked_silos import train_silos
from ways import Way, applied
from whole_step import captured

REGISTRY = Registry()
STEPS = {"train": 10**5, "many": 3000, "silos": 3000, "sample": 1, "distances": 1, "host distances": 1}
"""Number of steps of a fit; if many networks are trained at once, all rows of their batches are drawn before the first step."""

FEATURES = 256
"""Dimension of the random features between which distances are computed."""

WINDOW = 10
"""Number of steps between readings of the clock; each reading waits for the device."""


class Row(NamedTuple):
    """A measurement.  `kind` is train, sample, many (networks at once), silos (at once), or distances of samples, on the device
    or the host; `goal_ms` is the number of milliseconds per step that an H100 should reach.  `rows` is the number of rows of a
    request, of samples on each side of distances, or of networks or silos that are trained at once.
    """

    name: str
    kind: str
    method: str
    task: str
    precision: str = "bf16"
    compile: bool = True
    rows: int = 512
    goal_ms: float | None = None


ROWS = [
    Row("factored", "train", "factored", "shapes3d-heavy", goal_ms=14),
    Row("factored samples", "sample", "factored", "shapes3d-heavy"),
    Row("swarms of vectors", "sample", "fkc", "gauss2d-fact-id", rows=5000, goal_ms=0.7),
    Row("200 networks", "many", "low-rank", "bump-center", rows=200, goal_ms=0.3),
    Row("peers", "train", "dcfm-a", "cmnist-noniid", goal_ms=3),
    Row("10 silos of vectors at once", "silos", "ddm", "blobs-noniid", rows=10, goal_ms=3),
    Row("factored eager", "train", "factored", "shapes3d-heavy", compile=False),
    Row("factored samples eager", "sample", "factored", "shapes3d-heavy", compile=False),
    Row("swarms of vectors eager", "sample", "fkc", "gauss2d-fact-id", rows=5000, compile=False),
    Row("200 networks eager", "many", "low-rank", "bump-center", rows=200, compile=False),
    Row("10 silos of vectors at once, eager", "silos", "ddm", "blobs-noniid", rows=10, compile=False),
    Row("20 networks", "many", "low-rank", "bump-center", rows=20, goal_ms=0.3),
    Row("1 network", "many", "low-rank", "bump-center", rows=1, goal_ms=0.3),
    Row("mixture of experts", "sample", "ddm", "cmnist-noniid"),
    Row("mixture of experts eager", "sample", "ddm", "cmnist-noniid", compile=False),
    Row("experts", "train", "ddm", "cmnist-noniid"),
    Row("silos of vectors", "train", "ddm", "blobs-noniid"),
    Row("swarms of the oracle", "sample", "fkc-oracle", "gauss2d-fact-id", rows=5000),
    Row("noise network", "train", "fkc", "gauss2d-fact-id"),
    Row("noise network eager", "train", "fkc", "gauss2d-fact-id", compile=False),
    Row("factored tf32", "train", "factored", "shapes3d-heavy", "tf32"),
    Row("factored fp32", "train", "factored", "shapes3d-heavy", "fp32"),
    Row("distances of 5,000 images", "distances", "mono", "blobs-noniid", rows=5000),
    Row("distances of 5,000 images, on the host", "host distances", "mono", "blobs-noniid", rows=5000),
    Row("maps", "train", "low-rank", "bump-center"),
    Row("slices", "sample", "slice-cfg", "shapes3d-heavy"),
    Row("swarms of images", "sample", "fkc", "shapes3d-heavy", rows=32),
]


def problem_of(row: Row, device: torch.device, home: Path, *, preset: Presets = "paper", steps: int = 0) -> Problem:
    """The problem of a row's task, with `steps` training steps, or the row's number if it is 0."""
    task = REGISTRY.load("tasks", row.task)
    budget = task.budgets[preset].model_copy(update={"checkpoint_seconds": 1e9, "train_steps": steps or STEPS[row.kind]})
    precision = "bf16" if row.precision == "bf16" else "fp32"
    source = task.source(home / "data", "embedded")
    ctx = TaskContext(device, precision, 0, home / "cache", home / "data", source, preset=preset)
    found = task.open(ctx).problem(budget)
    return found if REGISTRY.load("methods", row.method).oracle else replace(found, oracle=None)


def context(row: Row, device: torch.device) -> Context:
    torch.manual_seed(0)
    precision = "bf16" if row.precision == "bf16" else "fp32"
    compiles = row.compile and device.type == "cuda"
    return Context(device, precision, torch.Generator().manual_seed(0), NoCheckpoints(), compile=compiles)


def train(row: Row, problem: Problem, device: torch.device, seconds: float) -> dict[str, Any]:
    """Median seconds per step over windows, and seconds of the first step, which compiles."""
    method = REGISTRY.load("methods", row.method)
    return watched(row, problem, device, seconds, lambda ctx: method.fit(method.settings(), problem, ctx))


def train_together(row: Row, problem: Problem, device: torch.device, seconds: float) -> dict[str, Any]:
    """The same for many networks of one task, each with all of the data, in one step."""
    silos, generators = [problem.federation.pooled()] * row.rows, [torch.Generator().manual_seed(k) for k in range(row.rows)]
    method = REGISTRY.load("methods", row.method)

    settings = method.settings()

    def work(ctx: Context) -> None:
        build = network if row.kind == "silos" else method.build
        nets = [build(settings, problem) for _ in range(row.rows)]
        if row.kind == "silos":
            ways = {"masking": settings.masking, "independence": settings.ci_weight}
            train_silos(nets, silos, problem.budget, ctx, generators=generators, **ways)
        else:
            weights = torch.tensor([[0.1, 0.01]] * row.rows)
            train_many(nets, penalised_loss, silos, problem.budget, ctx, generators=generators, weights=weights)

    return watched(row, problem, device, seconds, work)


def watched(
    row: Row, problem: Problem, device: torch.device, seconds: float, work: Callable[[Context], object]
) -> dict[str, Any]:
    """Median seconds per step, over windows, of work that reports its progress, and seconds of the first step; `compiled` is 0
    if a warning said that the network runs without compilation.
    """
    ctx = context(row, device)
    begin, marks = time.perf_counter(), []

    def progress(done: int, total: int) -> None:
        if not marks or done - marks[-1][0] >= WINDOW:
            profiling.synchronise(device)
            marks.append((done, time.perf_counter()))
            if len(marks) > 3 and marks[-1][1] - marks[0][1] > seconds:
                raise Cancelled("watched long enough")

    ctx.progress = progress
    with warnings.catch_warnings(record=True) as caught, contextlib.suppress(Cancelled):
        warnings.simplefilter("always")
        work(ctx)
    compiled = float(not any("without compilation" in str(warning.message) for warning in caught)) if ctx.compile else None
    windows = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(marks[1:])]
    step = statistics.median(windows)
    facts = {"ms_a_step": 1000 * step, "samples_per_second": problem.budget.batch_size / step, "steps": marks[-1][0]}
    return {**facts, "first_step_seconds": marks[0][1] - begin, "compiled": compiled}


def sample(row: Row, problem: Problem, device: torch.device, seconds: float, *, whole: bool = False) -> dict[str, Any]:
    """Median seconds of a request to an untrained model, after a warm-up; with `whole`, as one CUDA graph if possible."""
    method = REGISTRY.load("methods", row.method)
    settings, ctx = method.settings(), context(row, device)
    model = method.fit(settings, problem, ctx) if method.oracle else method.build(settings, problem).to(device).eval()
    condition = torch.zeros(row.rows, len(problem.space), dtype=torch.long, device=device)
    request = Request(condition, torch.randn(row.rows, *problem.event.shape).to(device))

    def answer() -> torch.Tensor:
        return method.sample(settings, model, request, context(row, device))

    compiled = compiled_sampling(model, device) if row.compile else None
    if compiled is not None:
        compiled.warmed_up(answer, COMPILE_FROM)
    if whole and device.type == "cuda" and row.name in CAPTURED:
        answer = captured(answer)
    times: list[float] = []
    while len(times) < 4 or sum(times[1:]) < seconds:
        with profiling.timed(device) as clock:
            answer()
        times.append(clock.wall[0])
    took = statistics.median(times[1:])
    facts = {"seconds": took, "ms_a_step": 1000 * took / problem.budget.sample_steps, "samples_per_second": row.rows / took}
    return {**facts, "compiled": compiled.note.get("compiled") if compiled else None}


def distances(row: Row, problem: Problem, device: torch.device, seconds: float) -> dict[str, Any]:
    """Median seconds of precision, recall and KID of random features, real pictures where the referee has them."""
    place = device if row.kind == "distances" else torch.device("cpu")
    rng = numpy.random.default_rng(0)
    known = {which: rng.normal(size=(row.rows, FEATURES)).astype(numpy.float32) for which in ("real", "generated", "floor")}
    picture = torch.zeros(1, 3, 8, 8, dtype=torch.uint8, device=place)
    pair = SamplePair(picture, picture, picture, lambda extractor, which: known[which])
    times: list[float] = []
    while len(times) < 3 or sum(times[1:]) < seconds:
        with profiling.timed(device) as clock:
            values = [metric(pair, numpy.random.default_rng(0)).value for metric in (precision, recall, kid)]
        times.append(clock.wall[0])
    took = statistics.median(times[1:])
    return {"seconds": took, "ms_a_step": 1000 * took, "samples_per_second": row.rows / took, "values": values}


CAPTURED = frozenset({"factored samples"})
"""Rows whose requests draw no random numbers and never wait for the device, so that a graph can capture them."""

MEASURES = {"distances": distances, "host distances": distances} | {
    "train": train,
    "sample": sample,
    "many": train_together,
    "silos": train_together,
}


def measured(row: Row, device: torch.device, folder: Path, way: Way, *, tiny: bool, seconds: float) -> dict[str, Any]:
    """The measurement of a row in a way; with `tiny`, at the smoke preset."""
    devices.set_up(device, row.precision)
    row = row._replace(compile=row.compile and way is not Way.EAGER)
    problem = problem_of(row, device, folder, preset="smoke" if tiny else "paper")
    with applied(way, device):
        if row.kind == "sample":
            return sample(row, problem, device, seconds, whole=way.value.step == "whole")
        return MEASURES[row.kind](row, problem, device, seconds)


def kernels(problem: Problem, device: torch.device, path: Path) -> None:
    """Write a table of the device time by kernel in some steps of `factored`."""
    from torch.profiler import profile

    with profile() as found:
        train(ROWS[0]._replace(compile=True), problem, device, 1.0)
    path.write_text(
        found.key_averages().table(sort_by="self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=400, help="seconds for all rows together")
    parser.add_argument("--each", type=float, default=6, help="seconds for which a row is measured")
    parser.add_argument("--only", default="", help="only rows whose names contain this text")
    parser.add_argument("--row", default="", help="only the row of this name")
    parser.add_argument("--way", default="harness", choices=[way.label for way in Way], help="way of computing fits and samples")
    parser.add_argument("--out", type=Path, help="file to which lines are appended")
    parser.add_argument("--tiny", action="store_true", help="the smoke preset and 8 samples, which only show that all rows run")
    asked = parser.parse_args()
    device, begin, failed = devices.resolve(asked.device), time.monotonic(), False
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            if asked.only not in row.name or asked.row not in ("", row.name) or time.monotonic() - begin > asked.seconds:
                continue
            row = row._replace(rows=8) if asked.tiny else row
            torch.compiler.reset()
            facts: dict[str, Any] = {**row._asdict(), "way": asked.way, "device": devices.device_class(device)}
            facts["torch"] = torch.__version__
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats(device)
            try:
                facts |= measured(row, device, Path(folder), Way.named(asked.way), tiny=asked.tiny, seconds=asked.each)
                facts["peak_memory_bytes"] = profiling.peak_memory(device)
                if row is ROWS[0] and asked.out and device.type == "cuda":
                    with applied(Way.named(asked.way), device):
                        kernels(problem_of(row, device, Path(folder)), device, asked.out.with_name(f"kernels-{asked.way}.txt"))
            except Exception as error:  # a failed row must not stop the others
                traceback.print_exc()
                failed = True
                facts["error"] = f"{type(error).__name__}: {error}"[:500]
            line = json.dumps(facts)
            print(line, flush=True)
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(line + "\n")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
