"""The smallest training budget at which a task's seen combinations are mastered: what `--preset standard` stands on.

    python experiments/standard_budgets.py --task shapes3d-medium
    python experiments/standard_budgets.py --task planning-noniid --from 1500 --to 12000 --set width=32

The reference method of the task's family is fitted at `--from` steps, twice as many, and so on, until it has 0.9 of the ceiling
on seen combinations: of the judge on real images, of replayed plans; of a distance, 0.97 of the way from noise to its floor,
because the first nine tenths of that way cost next to nothing.
Held-out combinations are never asked for.  Each line says the steps, the share and the seconds of the fit.
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
"""A plain method that models what its family has seen; of silos one whose experts train alone, without corrections."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", default="", help="instead of the reference of the task's family")
    parser.add_argument("--preset", default="standard", help="whose model, batch and sizes")
    parser.add_argument("--from", dest="first", type=int, default=0, help="fewest steps; quick's")
    parser.add_argument("--to", dest="last", type=int, default=20_000, help="most steps")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], metavar="NAME=VALUE", help="of the budget; JSON values")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of the fit; bf16 is what a run takes")
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
    """The method whose seen scores settle the budget of a task, by its family."""
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
    """Gives back the noise that it is handed."""

    def __call__(self, condition: Tensor, *, stream: str, **known: Tensor | None) -> Tensor:
        return torch.randn(len(condition), *self.shape, generator=torch.Generator().manual_seed(self.seed))


if __name__ == "__main__":
    main()
