"""What distances in fixed features say of runs whose accuracy is blind to blur: accuracy, recall and distances side by side.

    compbench sweep --method mono,pixel-decoder --task dsprites-light --preset quick --seed 0-1 --keep-samples
    python experiments/blind_accuracies.py --task dsprites-light

A judge names a blurred mean right, so accuracy cannot tell it from a picture.  For each kept run of the task (COMPBENCH_HOME) the
script compares its samples of held-out combinations with as many real pictures: `fwd` and `fd_imagenet`, in multiples of the
distance between two sets of real pictures, next to the record's accuracy, recall (as a part of real data's) and `fd_judge`.
Nothing is trained.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch
from claims import rows
from guidance_weights import context_of
from torch import Generator, Tensor

from compbench.api.interfaces import SamplePair
from compbench.api.schemas import Record
from compbench.board.statistics import mean
from compbench.metrics.efficientnet import ImageNetFeatures
from compbench.registry.registry import Registry
from compbench.store.records import read_records
from compbench.store.samples import SAMPLES_FILE
from compbench.system.errors import CompbenchError
from compbench.system.home import Home
from compbench.tasks.image_evaluation import to_uint8

HEADS = ("method", "right", "recall", "`fd_judge`", "`fwd`", "`fd_imagenet`")


class Measured(NamedTuple):
    """One run: accuracy, recall as a part of real data's, and distances in multiples of their floors."""

    right: float
    recall: float
    fd_judge: float
    fwd: float
    fd_imagenet: float


def relative(record: Record, name: str) -> float:
    """A score of a record, divided by that of real data."""
    found = record.score(name)
    return found.value / found.floor if found and found.value is not None and found.floor else numpy.nan


class Pictures:
    """Two sets of real pictures of a task's held-out combinations, with their ImageNet features."""

    def __init__(self, name: str, registry: Registry, count: int) -> None:
        task = registry.load("tasks", name)
        evaluation = task.open(context_of(task, registry, "quick", 0, Home.of_user().references)).evaluation
        self.holdout, self.count, self.network = task.holdout, count, ImageNetFeatures(torch.device("cpu"))
        self.metrics = {name: registry.load("metrics", name) for name in ("fwd", "fd_imagenet")}
        drawn = [task.holdout.draw(count, Generator().manual_seed(seed), heldout=True) for seed in (0, 1)]
        self.real, self.floor = (evaluation.real.of(one, Generator().manual_seed(2 + k)).cpu() for k, one in enumerate(drawn))
        self.features = {"real": self.network(self.real).numpy(), "floor": self.network(self.floor).numpy()}

    def distances(self, samples: Tensor) -> dict[str, float]:
        """`fwd` and `fd_imagenet` of uint8 pictures (N, C, H, W), in multiples of the distance between the two real sets."""
        own = self.features | {"generated": self.network(samples).numpy()}
        pair = SamplePair(self.real, samples, self.floor, lambda extractor, which: own[which])
        found = {}
        for name, metric in self.metrics.items():
            assert metric.compute is not None
            value = metric.compute(pair, numpy.random.default_rng(0))
            assert value.floor is not None
            found[name] = value.value / value.floor
        return found

    def of_run(self, record: Record, home: Home) -> Measured:
        """Measure the kept samples of a record's run."""
        kept = numpy.load(home.runs / record.identity / SAMPLES_FILE)
        unseen = self.holdout.contains(torch.from_numpy(kept["conditions"]))
        samples = to_uint8(torch.from_numpy(kept["samples"]).float())[unseen].expand(-1, self.real.shape[1], -1, -1)
        chosen = samples[torch.randperm(len(samples), generator=Generator().manual_seed(4))[: self.count]]
        right = record.score("heldout_accuracy")
        return Measured(
            right.value if right and right.value is not None else numpy.nan,
            relative(record, "heldout_recall"),
            relative(record, "heldout_fd_judge"),
            **self.distances(chosen),
        )


def table(found: dict[str, Sequence[Measured]]) -> str:
    """Means over the runs of each method; the most accurate method comes first."""
    means = {name: Measured(*map(mean, zip(*runs, strict=True))) for name, runs in found.items()}
    order = sorted(means, key=lambda name: -means[name].right)
    lines = [
        (f"`{name}`", f"{own.right:.2f}", f"{own.recall:.2f}", f"{own.fd_judge:.1f}", f"{own.fwd:.1f}", f"{own.fd_imagenet:.1f}")
        for name, own in ((name, means[name]) for name in order)
    ]
    return rows([HEADS, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True)
    parser.add_argument("--pictures", type=int, default=1000, help="number of pictures of each set")
    asked = parser.parse_args()
    registry, home = Registry(), Home.of_user()
    made, _ = read_records(home.records.glob("*.json"))
    kept = [
        record
        for record in made
        if record.spec.task == asked.task and record.status == "ok" and (home.runs / record.identity / SAMPLES_FILE).is_file()
    ]
    if not kept:
        raise SystemExit(f"no run of {asked.task} has kept samples (compbench run --keep-samples).")
    pictures = Pictures(asked.task, registry, asked.pictures)
    found: dict[str, list[Measured]] = defaultdict(list)
    for record in kept:
        found[record.spec.method].append(pictures.of_run(record, home))
        print(f"{record.name}: {found[record.spec.method][-1]}", flush=True)
    print(table({name: tuple(runs) for name, runs in found.items()}))


if __name__ == "__main__":
    try:
        main()
    except CompbenchError as error:
        raise SystemExit(str(error)) from error
