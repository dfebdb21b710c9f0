"""Choose the guidance weight of a task's composed samples, on seen combinations only.

    python experiments/guidance_weights.py --task cmnist-iid --method centralised
    python experiments/guidance_weights.py --task shapes3d-medium --method slice-cfg
    python experiments/guidance_weights.py --task cmnist-iid --method fkc \
        --settings '{"g_clip": 15, "resample_below": 1, "ess_floor": 0}' '{"ess_floor": 0}' '{}'

One model is fitted and sampled on seen combinations at each weight (or under each of some sampling settings); held-out
combinations are never requested.  If a judge ranks the task, the task declares the smallest weight whose seen score is within one
standard error of the best (`Task.guidance_weights`).  On vectors it declares w = 1, which is the composition itself; any other
weight would change the composition.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Method, OpenTask, Problem, Request, Score, Task, TaskContext
from compbench.registry.registry import Registry
from compbench.system.devices import Precision
from compbench.system.home import Home

BATCH = 64
WEIGHTS = (1.0, 1.5, 2.0, 3.0, 5.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", required=True, help="a method that composes: centralised, slice-cfg, naive-ode ...")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="training steps; default: the preset's")
    parser.add_argument("--weights", default=",".join(map(str, WEIGHTS)))
    parser.add_argument("--settings", nargs="+", type=json.loads, help="JSON of sampling settings to compare instead of weights")
    asked = parser.parse_args()
    registry = Registry()
    task, method = registry.load("tasks", asked.task), registry.load("methods", asked.method)
    with tempfile.TemporaryDirectory() as cache:
        ctx = context_of(task, registry, asked.preset, asked.seed, Path(cache))
        budget = task.budgets[asked.preset]
        opened = task.open(ctx)
        problem = opened.problem(budget.model_copy(update={"train_steps": asked.steps or budget.train_steps}))
        torch.manual_seed(asked.seed)
        model = method.fit(method.settings(), problem, stage(asked.seed))
        opened.prepare()
        name = "holdout_weight" if "holdout_weight" in method.settings.model_fields else "weight"
        weights = [float(weight) for weight in asked.weights.split(",")]
        found = []
        for settings in asked.settings or [{name: weight} for weight in weights]:
            sampler = SeenOnly(method, model, problem, settings, asked.seed)
            found.append(seen_scores(opened, sampler))
            print(f"{task.name} {method.name} {settings}: {words(found[-1])} {sampler.notes}", flush=True)
    if not asked.settings:
        ranks = task.primary.replace("heldout", "seen")
        chosen = choose({weight: scores[ranks] for weight, scores in zip(weights, found, strict=True)})
        print(f"{task.name}: w = {chosen:g} by {ranks}")


class SeenOnly:
    """A sampler with given settings that draws only seen combinations; for others it returns zeros without a call of the model.

    `notes` are those of the last batch, without lists (for example, how many ancestors survived).
    """

    def __init__(self, method: Method, model: object, problem: Problem, settings: dict[str, object], seed: int) -> None:
        self.method, self.model, self.settings = method, model, method.settings(**settings)
        self.shape, self.seed = problem.event.shape, seed
        self.notes: dict[str, float] = {}

    def __call__(self, condition: Tensor, *, stream: str, **known: Tensor | None) -> Tensor:
        if not stream.startswith("seen"):
            return torch.zeros(len(condition), *self.shape)
        x0 = torch.randn(len(condition), *self.shape, generator=Generator().manual_seed(self.seed + 1))
        parts = []
        for rows in torch.arange(len(condition)).split(BATCH):
            given = {name: value[rows] for name, value in known.items() if value is not None}
            ctx = stage(self.seed + 2 + int(rows[0]))
            parts.append(self.method.sample(self.settings, self.model, Request(condition[rows], x0[rows], **given), ctx))
            self.notes = {name: round(value, 3) for name, value in ctx.notes.items() if isinstance(value, float)}
        return torch.cat(parts)


def choose(scores: dict[float, Score]) -> float:
    """The smallest weight whose score is within one (binomial) standard error of the best; for a distance, the best weight."""
    sign = 1 if next(iter(scores.values())).direction == "higher" else -1
    best = max(scores.values(), key=lambda score: sign * score.value)
    slack = math.sqrt(max(best.value * (1 - best.value), 0) / best.n) if sign > 0 else 0.0
    return min(weight for weight, score in scores.items() if sign * (best.value - score.value) <= slack)


def seen_scores(opened: OpenTask, sampler: SeenOnly) -> dict[str, Score]:
    found = opened.evaluate(sampler).scores
    return {score.name: score for score in found if score.split == "seen" and score.value is not None}


def words(scores: dict[str, Score]) -> str:
    return ", ".join(f"{name.removeprefix('seen_')} {score.value:.3f}" for name, score in scores.items() if "judge_" not in name)


def stage(seed: int, precision: Precision = "fp32") -> Context:
    return Context(torch.device("cpu"), precision, Generator().manual_seed(seed), NoCheckpoints())


def context_of(task: Task, registry: Registry, preset: str, seed: int, cache: Path) -> TaskContext:
    home = Home.of_user()
    metrics = {name: registry.load("metrics", name) for name in registry.names("metrics")}
    source = task.source(home.data, "auto")
    ctx = TaskContext(torch.device("cpu"), "fp32", seed, cache, home.data, source, metrics=metrics)
    return replace(ctx, preset=preset)


if __name__ == "__main__":
    main()
