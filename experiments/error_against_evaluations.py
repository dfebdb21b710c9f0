"""Error of every sampler of compositions against its evaluations, on the six planar tasks, with exact scores and learnt ones.

    python experiments/error_against_evaluations.py --out docs/error_against_evaluations.png

Evaluations are particles x members x steps x inner steps of one sample.  The error is the sliced 2-Wasserstein distance to
exact samples; the grey band is what two exact samples have (5 to 95 %).  Learnt scores are one fit of the task's quick budget.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from compbench.context import NoCheckpoints
from compbench.data.gaussians import base_composition, product_of_gaussians
from compbench.interfaces import Context, Method, Problem, Request, Source, TaskContext
from compbench.metrics.transport import directions, sliced_wasserstein
from compbench.registry import Registry
from compbench.tasks.gaussian import distributions, make_task

TASKS = ("gauss2d-fact-id", "gauss2d-nonfact-id", "gauss2d-fact-ood", "gauss2d-nonfact-ood", "gmm-id", "gmm-ood")
NUM_SAMPLES, NUM_EXACT, NUM_DIRECTIONS = 2000, 8, 200
CPU = torch.device("cpu")


class Run(NamedTuple):
    """One point of a line: the method without '-oracle', the budget's steps, and settings."""

    label: str
    method: str
    steps: int
    settings: dict[str, Any]


RUNS = (
    *(Run("naive-sde", "naive-sde", steps, {}) for steps in (10, 30, 100)),
    *(Run("fkc, clipped", "fkc", 100, {"num_particles": k}) for k in (2, 4, 16)),
    *(Run("fkc", "fkc", 100, {"num_particles": k, "g_clip": "off"}) for k in (2, 4, 16)),
    *(Run("fkc, coarse", "fkc", steps, {"g_clip": "off"}) for steps in (10, 20, 50)),
    *(Run("rne", "rne", steps, {}) for steps in (10, 20, 50, 100)),
    *(Run("driftlite", "driftlite", 50, {"num_particles": k}) for k in (1, 4, 16)),
    *(Run("mala", "mcmc", 1, {"num_levels": 40, "num_inner": n}) for n in (1, 3, 10, 30)),
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


def error(method: Method, run: Run, name: str, model: Any, truth: Exact, along: numpy.ndarray) -> tuple[int, float]:
    """Evaluations and distance of one point, over the first exact samples."""
    settings, problem = method.settings(**run.settings), problem_of(name, run.steps)
    if model is None:
        model = method.fit(settings, problem, context(0))
    else:
        model.sample_steps = run.steps
    request = Request(
        torch.ones(NUM_SAMPLES, 2, dtype=torch.long), torch.randn(NUM_SAMPLES, 2, generator=torch.Generator().manual_seed(5))
    )
    x = method.sample(settings, model, request, context(1)).double().numpy()
    assert method.evaluations is not None
    return method.evaluations(settings, problem), float(
        numpy.mean([sliced_wasserstein(x, one, along) for one in truth.samples[:4]])
    )


def measure(names: tuple[str, ...], scores: tuple[str, ...]) -> list[dict[str, Any]]:
    """All points, as rows."""
    registry, along = Registry(), directions(2, NUM_DIRECTIONS, numpy.random.default_rng(0))
    rows = []
    for name in names:
        truth = exact(name, along)
        band = [float(numpy.quantile(truth.distances, share)) for share in (0.05, 0.5, 0.95)]
        for kind in scores:
            model = None
            if kind == "learnt":
                fitting = registry.load("methods", "naive-sde")
                model = fitting.fit(fitting.settings(), problem_of(name, 100), context(0))
            for run in RUNS:
                method = registry.load("methods", run.method + ("-oracle" if kind == "exact" else ""))
                count, value = error(method, run, name, model, truth, along)
                rows.append({"task": name, "scores": kind, "label": run.label, "evaluations": count, "sw2": value, "floor": band})
                print(
                    f"{name:20} {kind:6} {run.label:13} {count:6d} {value:7.3f}  (floor {band[1]:.3f}, 95 % {band[2]:.3f})",
                    flush=True,
                )
    return rows


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """A column a task, a row exact and a row learnt scores."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names, kinds = list(dict.fromkeys(row["task"] for row in rows)), list(dict.fromkeys(row["scores"] for row in rows))
    figure, axes = pyplot.subplots(len(kinds), len(names), figsize=(3 * len(names), 3 * len(kinds)), squeeze=False)
    for (i, kind), (j, name) in ((a, b) for a in enumerate(kinds) for b in enumerate(names)):
        here = [row for row in rows if row["task"] == name and row["scores"] == kind]
        axis = axes[i][j]
        axis.axhspan(here[0]["floor"][0], here[0]["floor"][2], color="0.85")
        for label in dict.fromkeys(row["label"] for row in here):
            points = sorted((row["evaluations"], row["sw2"]) for row in here if row["label"] == label)
            axis.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1, label=label)
        axis.set(xscale="log", yscale="log", title=f"{name}, {kind}")
    axes[-1][0].set(xlabel="evaluations a sample", ylabel="SW2")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(out, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="picture; the rows go beside it as JSON")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--scores", default="exact,learnt")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(tuple(asked.tasks.split(",")), tuple(asked.scores.split(",")))
    asked.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows, asked.out)


if __name__ == "__main__":
    main()
