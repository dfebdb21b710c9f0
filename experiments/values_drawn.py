"""Which value of each factor a judge finds in the samples of a run, for each requested value.

    python experiments/values_drawn.py shapes3d-medium.cross-attention.standard.s1
    python experiments/values_drawn.py shapes3d-medium.cross-attention.standard.s1 --split heldout --samples 480

The samples are drawn again, for combinations of the split, and classified by the referee's full-data judge, which is trained
first if the user's home has none.  The record's weights must be in COMPBENCH_HOME.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from judge_accuracy import opened_task
from torch import Tensor

from compbench.notebook.stored_model import load
from compbench.registry.registry import Registry
from compbench.tasks.image_evaluation import to_uint8

SHOWN = 3
"""Largest number of wrongly drawn values that are printed for each requested value."""


def counts(asked: Tensor, drawn: Tensor, size: int) -> Tensor:
    """How often each value (column) was drawn for each requested value (row): two (N,) tensors -> (size, size)."""
    return torch.bincount(asked * size + drawn, minlength=size * size).view(size, size)


def mistakes(table: Tensor) -> Iterator[str]:
    """For each value that was not always drawn on request: how often it was, and the most frequent values drawn instead."""
    for value, row in enumerate(table):
        others = row.clone()
        others[value] = 0
        if others.any():
            most = [int(other) for other in others.argsort(descending=True, stable=True)[:SHOWN] if others[other]]
            said = ", ".join(f"{other} ({int(others[other])})" for other in most)
            yield f"{value}: {int(row[value])} of {int(row.sum())}; else {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record")
    parser.add_argument("--split", choices=("seen", "heldout"), default="seen")
    parser.add_argument("--samples", type=int, default=128)
    asked = parser.parse_args()
    stored = load(asked.record)
    spec, space = stored.record.spec, stored.task.space
    conditions = stored.task.holdout.draw(asked.samples, torch.Generator().manual_seed(1), heldout=asked.split == "heldout")
    judge = opened_task(stored.task, Registry(), spec.preset, spec.seed).evaluation._judge(seen_only=False)
    images = to_uint8(stored.sample(conditions))
    found = judge.predict(images.expand(-1, judge.channels, -1, -1)).cpu()  # the judge gets grey images as colour
    print(f"{stored.record.name}: {asked.samples} samples, {asked.split}")
    for place, (factor, size) in enumerate(zip(space.names, space.sizes, strict=True)):
        table = counts(conditions[:, place], found[:, place], size)
        print(f"{factor}: {table.trace().item() / asked.samples:.2f}")
        for line in mistakes(table):
            print(f"    {line}")


if __name__ == "__main__":
    main()
