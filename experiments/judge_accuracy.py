"""The accuracy of a task's judge, factor by factor, on real images that it was not trained on.

    python experiments/judge_accuracy.py concept-space dsprites-light rooms-fc-id rooms-nfc-id
    python experiments/judge_accuracy.py dsprites-light --preset standard

The judge is the referee's own: it is trained with the preset's settings on all combinations, or read from the user's home if a
run has left it there.  It classifies images of combinations drawn uniformly from the whole lattice.  If the lattice is rendered,
it may have seen all of these pictures in training; its accuracy then measures memory, not generalisation.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch
from guidance_weights import context_of
from torch import Generator, Tensor

from compbench.api.interfaces import OpenTask, Task
from compbench.registry.registry import Registry
from compbench.system.devices import precision
from compbench.system.home import Home

ENOUGH = 0.95


def accuracies(judge: torch.nn.Module, images: Tensor, truth: Tensor) -> list[float]:
    """The judge's accuracy on images (N, C, H, W) with values (N, F), for each factor."""
    return (judge.predict(images).cpu() == truth).float().mean(0).tolist()


def real_images(task: Task, opened: OpenTask, count: int) -> tuple[Tensor, Tensor]:
    """Real images of combinations drawn uniformly, and the combinations; for rooms, the two objects replace the mixtures."""
    generator = Generator().manual_seed(1)
    condition = task.space.uniform(count, generator)
    if task.name.startswith("rooms"):
        return opened.pictures.reference(condition[:, 0] + 2 * condition[:, 1], generator), condition
    return opened.evaluation.real.of(condition, generator), condition


def opened_task(task: Task, registry: Registry, preset: str, seed: int = 0) -> OpenTask:
    """A task, opened with the judges of the user's home and with the precision that runs use here."""
    ctx = context_of(task, registry, preset, seed, Home.of_user().references)
    return task.open(replace(ctx, precision=precision("auto", ctx.device)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", metavar="TASK")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--images", type=int, default=2000)
    asked = parser.parse_args()
    registry = Registry()
    for name in asked.tasks:
        task = registry.load("tasks", name)
        opened = opened_task(task, registry, asked.preset)
        images, truth = real_images(task, opened, asked.images)
        found = accuracies(opened.evaluation._judge(seen_only=False), images, truth)
        said = ", ".join(f"{factor} {share:.3f}" for factor, share in zip(task.space.names, found, strict=True))
        print(
            f"{name}, {asked.preset}, {len(images)} images: {said}" + ("" if min(found) >= ENOUGH else "  BELOW 0.95"), flush=True
        )


if __name__ == "__main__":
    main()
