"""Train the judges that come with compbench, so that runs need not train their own, and print each judge's accuracy.

    python experiments/frozen_judges.py emoji            trains and measures a new judge, and measures the stored one
    python experiments/frozen_judges.py glyph --write    also writes it to leaderboards/judges, and prints the task's entry

A judge is measured on the real picture of every combination, clean and corrupted as in training, never on generated pictures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from guidance_weights import context_of

from compbench.metrics.small_judge import STORED, SmallJudge, corrupted, save_small_judge
from compbench.registry.registry import Registry
from compbench.tasks.drawn_evaluation import DrawnEvaluation

TASKS = {"emoji": "emoji-medium", "glyph": "glyph-light"}
"""One task of each data set; all tasks of a data set share its judge."""
REPEATS = 4


def accuracies(judge: SmallJudge, evaluation: DrawnEvaluation, *, spoilt: bool) -> list[float]:
    """The judge's accuracy on real pictures, some of each combination: for each factor, and for all factors at once."""
    generator = torch.Generator().manual_seed(1)
    every = torch.cartesian_prod(*(torch.arange(size) for size in evaluation.space.sizes)).repeat(REPEATS, 1)
    pictures = evaluation._pictures(evaluation.lattices.refined(every, generator)).cpu()
    if spoilt:
        pictures = corrupted(pictures.float() / 127.5 - 1, generator).add(1).mul(127.5).round().to(torch.uint8)
    right = judge.predict(pictures) == every
    return [*right.float().mean(0).tolist(), right.all(1).float().mean().item()]


def said(evaluation: DrawnEvaluation, found: list[float]) -> str:
    return ", ".join(f"{name} {share:.4f}" for name, share in zip([*evaluation.space.names, "all"], found, strict=True))


def show(which: str, judge: SmallJudge, evaluation: DrawnEvaluation) -> None:
    """Print a judge's accuracies on real and on corrupted pictures."""
    for what, spoilt in (("real", False), ("corrupted", True)):
        print(f"{which}, {what} pictures: {said(evaluation, accuracies(judge, evaluation, spoilt=spoilt))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=sorted(TASKS))
    parser.add_argument("--steps", type=int, default=0, help="number of steps; default: the task's own")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    registry = Registry()
    task = registry.load("tasks", TASKS[asked.data])
    ctx = context_of(task, registry, "standard", 0, Path(tempfile.mkdtemp()))
    evaluation = task.open(replace(ctx, device=torch.device("cpu"), precision="fp32")).evaluation
    began = time.perf_counter()
    judge = evaluation.trained_judge(asked.steps or evaluation.referee.judge_steps)
    seconds = time.perf_counter() - began
    show("new judge", judge, evaluation)
    name = evaluation.referee.stored.get(ctx.source.fingerprint)
    if name:
        show(f"stored judge {name}", evaluation.judge, evaluation)
    else:
        print(f"compbench has no judge for this data ({ctx.source.name})")
    folder = STORED if asked.write else Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    path = save_small_judge(judge, folder)
    print(f"{seconds:.0f} s on {torch.get_num_threads()} threads, {path.stat().st_size:,} bytes")
    print(f'    "{ctx.source.fingerprint}": "{path.stem}",')


if __name__ == "__main__":
    main()
