"""Plot the error of each composing sampler against its evaluations, on the six planar tasks, with exact and with learnt scores.

    python experiments/error_against_evaluations.py --out docs/error_against_evaluations.png

Evaluations are particles x members x steps x inner steps of one sample.  The error is the sliced 2-Wasserstein distance to
exact samples; the grey band is the distance between two exact samples (5 to 95 %).  Learnt scores come from one fit with the
task's quick budget, which all samplers share.

    total error = inference-time error + estimation error

The error on exact scores is the inference-time part; the excess error of the same run on learnt scores is the estimation part.

Points in the JSON file next to the picture are not measured again, so a stopped command can continue.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Method, Problem, Request, Source, TaskContext
from compbench.data.gaussians import base_composition, product_of_gaussians
from compbench.metrics.transport import directions, sliced_wasserstein
from compbench.registry.registry import Registry
from compbench.tasks.gaussian import distributions, make_task

TASKS = ("gauss2d-fact-id", "gauss2d-nonfact-id", "gauss2d-fact-ood", "gauss2d-nonfact-ood", "gmm-id", "gmm-ood")
NUM_SAMPLES, NUM_EXACT, NUM_DIRECTIONS = 1000, 8, 200
MOST_LEARNT = 1300
"""Above this many evaluations per sample, only exact scores are used: those of a network cost some twenty times as much."""
CEILING = 10.0
"""Larger errors count as diverged and are drawn at this value."""
CPU = torch.device("cpu")


class Run(NamedTuple):
    """One point of a line: the method without '-oracle', the budget's steps, and settings."""

    label: str
    method: str
    steps: int
    settings: dict[str, Any]


RUNS = (
    *(Run("naive-ode", "naive-ode", steps, {}) for steps in (10, 30, 100)),
    *(Run("naive-sde", "naive-sde", steps, {}) for steps in (10, 30, 100)),
    *(Run("fkc, clipped", "fkc", 100, {"num_particles": k}) for k in (2, 4, 16)),
    *(Run("fkc", "fkc", 100, {"num_particles": k, "g_clip": "off"}) for k in (2, 4, 16)),
    *(Run("fkc, coarse", "fkc", steps, {"g_clip": "off"}) for steps in (10, 20, 50)),
    *(Run("rne", "rne", steps, {}) for steps in (10, 20, 50, 100)),
    *(Run("driftlite", "driftlite", 50, {"num_particles": k}) for k in (1, 4, 16)),
    *(Run("ula", "mcmc", 1, {"num_levels": 40, "num_inner": n, "kernel": "ula"}) for n in (3, 10)),
    *(Run("mala", "mcmc", 1, {"num_levels": 40, "num_inner": n}) for n in (1, 3, 10, 30)),
    *(Run("uhmc", "mcmc", 1, {"num_levels": 40, "num_inner": n, "kernel": "uhmc"}) for n in (1, 3)),
    *(Run("hmc", "mcmc", 1, {"num_levels": 40, "num_inner": n, "kernel": "hmc"}) for n in (1, 3, 10)),
    Run("superdiff", "superdiff", 100, {}),
)


class Exact(NamedTuple):
    """Exact samples of a task's target, and the distances between them."""

    samples: list[numpy.ndarray]
    distances: list[float]


def exact(name: str, along: numpy.ndarray) -> Exact:
    laws = distributions(name, make_task(name).settings)
    parts = [laws[cell] for cell in ((1, 0), (0, 1), (0, 0))]
    generator = torch.Generator().manual_seed(1)
    gaussians = all(len(part.weights) == 1 for part in parts)
    closed = product_of_gaussians(parts, (1.0, 1.0, -1.0)) if gaussians else None
    drawn = [
        (closed.sample(NUM_SAMPLES, generator) if closed else base_composition(*parts, NUM_SAMPLES, generator)).numpy()
        for _ in range(NUM_EXACT)
    ]
    pairs = [(i, j) for i in range(NUM_EXACT) for j in range(i)]
    return Exact(drawn, [sliced_wasserstein(drawn[i], drawn[j], along) for i, j in pairs])


def problem_of(name: str, steps: int) -> Problem:
    task = make_task(name)
    ctx = TaskContext(CPU, "fp32", 0, Path(), Path(), Source("embedded", "exact sampler", "gaussians-1"))
    return task.open(ctx).problem(task.budgets["quick"].model_copy(update={"sample_steps": steps}))


def context(seed: int) -> Context:
    return Context(CPU, "fp32", torch.Generator().manual_seed(seed), NoCheckpoints())


def error(method: Method, run: Run, name: str, model: Any, truth: Exact, along: numpy.ndarray) -> float:
    """The error of one point, against the first exact samples."""
    settings, problem = method.settings(**run.settings), problem_of(name, run.steps)
    if model is None:
        model = method.fit(settings, problem, context(0))
    else:
        model.sample_steps = run.steps
    request = Request(
        torch.ones(NUM_SAMPLES, 2, dtype=torch.long), torch.randn(NUM_SAMPLES, 2, generator=torch.Generator().manual_seed(5))
    )
    x = method.sample(settings, model, request, context(1)).double().numpy()
    return float(numpy.mean([sliced_wasserstein(x, one, along) for one in truth.samples[:4]]))


def evaluations(method: Method, run: Run, name: str) -> int:
    """Evaluations per sample of a run."""
    assert method.evaluations is not None
    return method.evaluations(method.settings(**run.settings), problem_of(name, run.steps))


Row = dict[str, Any]
"""One point: task, scores, label, evaluations, sw2, floor (5, 50 and 95 %)."""


def measure(name: str, kind: str, known: list[Row], keep: Callable[[Row], None]) -> None:
    """Measure the points of one task on one kind of scores that are not in `known`, and pass each to `keep`."""
    registry, along = Registry(), directions(2, NUM_DIRECTIONS, numpy.random.default_rng(0))
    have = {(row["label"], row["evaluations"]) for row in known if (row["task"], row["scores"]) == (name, kind)}
    asked = []
    for run in RUNS:
        method = registry.load("methods", run.method + ("-oracle" if kind == "exact" else ""))
        count = evaluations(method, run, name)
        if (run.label, count) not in have and (kind == "exact" or count <= MOST_LEARNT):
            asked.append((run, method, count))
    if not asked:
        return
    truth, model = exact(name, along), None
    band = [float(numpy.quantile(truth.distances, share)) for share in (0.05, 0.5, 0.95)]
    if kind == "learnt":
        fitting = registry.load("methods", "naive-sde")
        model = fitting.fit(fitting.settings(), problem_of(name, 100), context(0))
    for run, method, count in asked:
        value = error(method, run, name, model, truth, along)
        keep({"task": name, "scores": kind, "label": run.label, "evaluations": count, "sw2": value, "floor": band})
        print(f"{name:20} {kind:6} {run.label:13} {count:6d} {value:7.3f}  (floor {band[1]:.3f}, 95 % {band[2]:.3f})", flush=True)


def split(rows: list[Row]) -> list[Row]:
    """The total error and its parts, of each run on both kinds of scores; evaluations are those on learnt scores.

    Runs are paired by label in the order of their evaluations: exact densities cost one evaluation more at the end.
    """
    found = []
    for name, label in dict.fromkeys((row["task"], row["label"]) for row in rows):
        own = {
            kind: sorted(
                (row for row in rows if (row["task"], row["label"], row["scores"]) == (name, label, kind)),
                key=lambda row: row["evaluations"],
            )
            for kind in ("exact", "learnt")
        }
        for inference, total in zip(own["exact"], own["learnt"], strict=False):
            parts = {"total": total["sw2"], "inference": inference["sw2"], "estimation": total["sw2"] - inference["sw2"]}
            found.append({"task": name, "label": label, "evaluations": total["evaluations"], **parts})
    return found


def draw(rows: list[Row], out: Path) -> None:
    """Draw a column per task; the rows are the error on exact scores, on learnt scores, and their difference."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names, kinds = list(dict.fromkeys(row["task"] for row in rows)), list(dict.fromkeys(row["scores"] for row in rows))
    parts = split(rows)
    height = len(kinds) + bool(parts)
    figure, axes = pyplot.subplots(height, len(names), figsize=(3 * len(names), 3 * height), squeeze=False)
    labels = list(dict.fromkeys(row["label"] for row in rows))
    colours = dict(zip(labels, pyplot.get_cmap("tab20").colors, strict=False))

    def lines(axis: Any, points: list[tuple[str, int, float]]) -> None:
        for label in dict.fromkeys(label for label, *_ in points):
            own = sorted((count, min(value, CEILING)) for own, count, value in points if own == label)
            axis.plot(*zip(*own, strict=True), marker="o", markersize=3, linewidth=1, label=label, color=colours[label])

    for (i, kind), (j, name) in ((a, b) for a in enumerate(kinds) for b in enumerate(names)):
        here = [row for row in rows if row["task"] == name and row["scores"] == kind]
        if here:
            axes[i][j].axhspan(here[0]["floor"][0], here[0]["floor"][2], color="0.85")
        lines(axes[i][j], [(row["label"], row["evaluations"], row["sw2"]) for row in here])
        axes[i][j].set(xscale="log", yscale="log", title=f"{name}, {kind}")
    for j, name in enumerate(names if parts else []):
        lines(axes[-1][j], [(row["label"], row["evaluations"], row["estimation"]) for row in parts if row["task"] == name])
        axes[-1][j].axhline(0, color="0.7", linewidth=0.8)
        axes[-1][j].set(xscale="log", title=f"{name}, estimation")
    axes[-1][0].set(xlabel="evaluations a sample", ylabel="SW2, learnt less exact" if parts else "SW2")
    handles, names_of = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names_of, loc="lower center", ncol=len(names_of), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(out, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="picture; the rows are written next to it as JSON")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--scores", default="exact,learnt")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    kept = asked.out.with_suffix(".json")
    rows: list[Row] = json.loads(kept.read_text()) if kept.is_file() else []

    def keep(row: Row) -> None:
        rows.append(row)
        kept.write_text(json.dumps(rows, indent=1) + "\n")

    for name in asked.tasks.split(","):
        for kind in asked.scores.split(","):
            measure(name, kind, rows, keep)
    rows.sort(key=order_of)
    draw(rows, asked.out)
    for part in split(rows):
        values = "  ".join(f"{name} {part[name]:6.3f}" for name in ("total", "inference", "estimation"))
        print(f"{part['task']:20} {part['label']:13} {part['evaluations']:6d}  {values}")


def order_of(row: Row) -> tuple[int, str, int]:
    """Sort key: tasks in their listed order, exact before learnt, runs in their listed order."""
    labels = [run.label for run in RUNS]
    return TASKS.index(row["task"]), row["scores"], labels.index(row["label"])


if __name__ == "__main__":
    main()
