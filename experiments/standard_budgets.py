"""Find the smallest training budget that masters a task's seen combinations, on which `--preset standard` is based.

    python experiments/standard_budgets.py --task shapes3d-medium
    python experiments/standard_budgets.py --task planning-noniid --from 1500 --to 12000 --set width=32

The reference method of the task's family is fitted with `--from` steps, twice as many, and so on, until it has 0.9 of the ceiling
on seen combinations: the judge's accuracy on real images, or the success of replayed plans.  For a distance, it must reach 0.97
of the way from noise to its floor, because the first nine tenths of that way are cheap.  Held-out combinations are never
requested.  Each line has the steps, the share and the seconds of the fit.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from guidance_weights import SeenOnly, context_of, seen_scores, stage
from torch import Tensor

from compbench.api.interfaces import Budget, Method, OpenTask, Score, Task
from compbench.registry.declared import declared
from compbench.registry.registry import Registry
from compbench.system.bf16 import arithmetic
from compbench.system.devices import Precision

ENOUGH = {"accuracy": 0.9, "distance": 0.97}

REFERENCES = {"images": "factored", "plane": "naive-sde", "bumps": "factored", "silos": "ddm", "planning": "ddm"}
"""A plain method for the seen combinations of each family; for silos, one whose experts train separately, without corrections."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", default="", help="use this method instead of the reference of the task's family")
    parser.add_argument("--preset", default="standard", help="preset that sets model, batch and sizes")
    parser.add_argument("--from", dest="first", type=int, default=0, help="smallest number of steps; default: that of quick")
    parser.add_argument("--to", dest="last", type=int, default=20_000, help="most steps")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], metavar="NAME=VALUE", help="budget entries; JSON values")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="precision of the fit; runs use bf16")
    asked = parser.parse_args()
    registry = Registry()
    task = registry.load("tasks", asked.task)
    method = registry.load("methods", asked.method or reference(task.name))
    changes = {name: json.loads(value) for name, value in (word.split("=", 1) for word in asked.changes)}
    with tempfile.TemporaryDirectory() as cache:
        opened = task.open(context_of(task, registry, asked.preset, asked.seed, Path(cache)))
        opened.prepare()
        for steps in doubled(asked.first or task.budgets["quick"].train_steps, asked.last):
            budget = task.budgets[asked.preset].model_copy(update={**changes, "train_steps": steps})
            share, score, seconds = attained(task, method, opened, budget, asked.seed, asked.precision)
            found = f"{score.name} {score.value:.3f}, {share:.2f} ({seconds:.0f} s)"
            print(f"{task.name} {method.name} {steps} steps: {found}", flush=True)
            if share >= ENOUGH["distance" if score.ceiling is None else "accuracy"]:
                print(f"{task.name}: {steps} steps are enough")
                return
    print(f"{task.name}: not mastered within {asked.last} steps")


def reference(task: str) -> str:
    """The method whose seen scores determine the budget of a task, by the task's family."""
    return REFERENCES.get(declared(Registry().entry("tasks", task)).family, "factored")


def doubled(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


def attained(
    task: Task, method: Method, opened: OpenTask, budget: Budget, seed: int, precision: Precision = "fp32"
) -> tuple[float, Score, float]:
    """Share of the ceiling on seen combinations, the score itself, and the seconds of a fit."""
    problem = opened.problem(budget)
    torch.manual_seed(seed)
    started = time.perf_counter()
    ctx = stage(seed, precision)
    with arithmetic(ctx.device, precision):
        model = method.fit(method.settings(), problem, ctx)
    seconds = time.perf_counter() - started
    name = task.primary.replace("heldout", "seen")
    score = seen_scores(opened, SeenOnly(method, model, problem, {}, seed))[name]
    if score.ceiling is not None:
        return score.value / score.ceiling, score, seconds
    noise = seen_scores(opened, Noise(method, model, problem, {}, seed))[name]
    return (noise.value - score.value) / (noise.value - score.floor), score, seconds


class Noise(SeenOnly):
    """A sampler that returns its noise unchanged."""

    def __call__(self, condition: Tensor, *, stream: str, **known: Tensor | None) -> Tensor:
        return torch.randn(len(condition), *self.shape, generator=torch.Generator().manual_seed(self.seed))


if __name__ == "__main__":
    main()
