"""How images are scored: two judges with their accuracy on real images, distances with their noise floors, and a sample grid.

The full-data judge ranks.  The seen-split judge is kept for comparison with the paper.  It is trained without the held-out pairs
and therefore fails on many *real* held-out images; its ceiling is the share that it names correctly.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy
import torch
from torch import Generator, Tensor

from compbench.api.factors import FactorSpace, Holdout
from compbench.api.interfaces import Evaluation, SamplePair, Sampler, Score, TaskContext
from compbench.metrics.inception import InceptionFeatures
from compbench.metrics.judge import Judge, JudgeSettings, load_judge, save_judge, train_judge
from compbench.registry.meaning import of_definitions
from compbench.system.errors import CompbenchError
from compbench.system.files import held
from compbench.tasks.split_scores import count_cells, distance

GRID_COLUMNS, GRID_PAIRS = 10, 2


class Sizes(NamedTuple):
    """How many images a preset requests.

    Attributes:
        per_split: images of each split for accuracies, spread evenly over its cells (at least one per cell).
        per_cell: if not 0, images per cell instead (100 in the paper).
        distances: images on each side of a distance; 0 reuses the images of the accuracies.
        seen_judge: whether the seen-split judge is trained and its accuracies are kept.
    """

    per_split: int
    per_cell: int
    distances: int
    seen_judge: bool = True


SIZES = {"smoke": Sizes(40, 0, 0), "quick": Sizes(320, 0, 0), "standard": Sizes(480, 0, 0), "paper": Sizes(0, 100, 10_000)}

DIGIT_SIZES = {"smoke": Sizes(50, 0, 0), "quick": Sizes(300, 0, 0), "standard": Sizes(500, 0, 0), "paper": Sizes(0, 100, 10_000)}
"""Sizes for coloured digits, which are small enough to request more of them."""

JUDGES = {
    ("shapes3d", "smoke"): JudgeSettings(width=16, num_steps=30, batch_size=64),
    ("shapes3d", "quick"): JudgeSettings(width=24, num_steps=700, batch_size=64),
    ("shapes3d", "standard"): JudgeSettings(width=24, num_steps=1400, batch_size=64),
    ("shapes3d", "paper"): JudgeSettings(width=64, num_steps=4000, batch_size=256),
    ("mpi3d", "smoke"): JudgeSettings(width=16, num_steps=30, batch_size=64),
    ("mpi3d", "quick"): JudgeSettings(width=24, num_steps=2200, batch_size=64, learning_rate=4e-3),
    ("mpi3d", "standard"): JudgeSettings(width=32, num_steps=6000, batch_size=64, learning_rate=3e-3),
    ("mpi3d", "paper"): JudgeSettings(width=64, num_steps=20_000, batch_size=256),
    ("cmnist", "smoke"): JudgeSettings(width=16, num_steps=60, batch_size=64),
    ("cmnist", "quick"): JudgeSettings(width=24, num_steps=1200, batch_size=128),
    ("cmnist", "standard"): JudgeSettings(width=24, num_steps=2400, batch_size=128),
    ("cmnist", "paper"): JudgeSettings(width=64, num_steps=6000, batch_size=256),
}
"""Training settings of judges by dataset and preset.  MPI3D's objects are 8 to 12 pixels wide: a judge needs
three times as long there to classify six shapes."""


class RealImages(Protocol):
    """Real images for the referee's comparisons, all uint8 on the device.

    Attributes:
        shape: (C, H, W).
    """

    shape: tuple[int, int, int]

    def of(self, condition: Tensor, generator: Generator) -> Tensor:
        """A random real image for each full condition (N, F) of any split: (N, C, H, W)."""
        ...

    def labelled(self, size: int, generator: Generator, *, seen_only: bool) -> tuple[Tensor, Tensor]:
        """Images and conditions for training a judge, from all combinations or only from the seen ones."""
        ...


class ImageEvaluation:
    """The judges and scores of one image task under one preset."""

    def __init__(
        self,
        *,
        real: RealImages,
        space: FactorSpace,
        holdout: Holdout,
        judge: JudgeSettings,
        sizes: Sizes,
        dataset: str,
        ctx: TaskContext,
        added: str = "",
    ) -> None:
        """`added` is the factor that an extension task adds, whose accuracy then ranks; "" if none is added."""
        self.real, self.space, self.holdout = real, space, holdout
        self.settings, self.sizes, self.dataset, self.ctx, self.added = judge, sizes, dataset, ctx, added

    def prepare(self) -> None:
        """Train the judge that ranks, or load it from the cache.  The seen-split judge, which never ranks, waits for the fit."""
        self._judge(seen_only=False)

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Scores of every split, and the sample grid."""
        judges = {"": self._judge(seen_only=False)}
        if self.holdout.cells and self.sizes.seen_judge:
            judges["_seen_judge"] = self._judge(seen_only=True)
        scores: list[Score] = []
        pictures = {}
        for split in ("heldout", "seen") if self.holdout.cells else ("all",):
            asked = self._conditions(split)
            generated = to_uint8(sampler(asked, stream=split))
            real = self._real(asked, f"ceiling {split}")
            for suffix, judge in judges.items():
                scores += self._accuracies(split, suffix, judge, asked, generated, real)
            if split in ("heldout", "all"):
                pictures["samples"] = grid(real, generated)
            if self.sizes.distances:
                generated = to_uint8(sampler(self._drawn(split, self.sizes.distances, "fid"), stream=f"{split} fid"))
            scores += self._distances(split, generated, judges[""])
        return Evaluation(tuple(scores), pictures)

    def _conditions(self, split: str) -> Tensor:
        """Conditions requested for accuracies: equally many for each cell of the split, other factors at random, (N, F)."""
        if split == "all":
            return self._drawn(split, self.sizes.per_split or 10_000, "accuracy")
        cells = torch.tensor(self.holdout.cells if split == "heldout" else self.holdout.seen_cells)
        per_cell = self.sizes.per_cell or max(1, round(self.sizes.per_split / len(cells)))
        asked = self.space.uniform(per_cell * len(cells), self.ctx.generator(f"asked {split}"))
        asked[:, list(self.holdout.factors)] = cells.repeat(per_cell, 1)
        return asked

    def _drawn(self, split: str, count: int, purpose: str) -> Tensor:
        generator = self.ctx.generator(f"{purpose} {split}")
        return self.holdout.draw(count, generator, heldout=split == "heldout")

    def _real(self, condition: Tensor, purpose: str) -> Tensor:
        """Real images of conditions, uint8 (N, C, H, W) on the device."""
        return self.real.of(condition, self.ctx.generator(purpose))

    def _accuracies(self, split: str, suffix: str, judge: Judge, asked: Tensor, generated: Tensor, real: Tensor) -> list[Score]:
        """The joint accuracy over the holdout's factors (all factors if there is no holdout), and the accuracy of each."""
        positions = list(self.holdout.factors) or list(range(len(self.space)))
        target = asked[:, positions]
        with torch.autocast(self.ctx.device.type, dtype=torch.bfloat16, enabled=False):
            right, ceiling = (
                judge.predict(block.to(self.ctx.device)).cpu()[:, positions] == target for block in (generated, real)
            )
        name = f"{split}_accuracy{suffix}"
        ranks = not suffix and split != "seen"
        joint = self._score(name, "accuracy", split, right.all(1), ceiling.all(1), primary=ranks and not self.added)
        if not suffix and self.holdout.factors:
            joint = joint.model_copy(update={"by_cell": count_cells(target, right.all(1))})
        each = [
            self._score(f"{name}_{_slug(own)}", "accuracy", split, right[:, k], ceiling[:, k], primary=own == self.added)
            for k, own in enumerate(self.space.names[position] for position in positions)
        ]
        return [joint, *each]

    def _score(self, name: str, metric: str, split: str, right: Tensor, ceiling: Tensor, *, primary: bool = False) -> Score:
        return Score(
            name=name,
            metric=metric,
            metric_version=self.ctx.metrics[metric].version if metric in self.ctx.metrics else 1,
            split=split,
            value=right.float().mean().item(),
            n=len(right),
            direction="higher",
            ceiling=ceiling.float().mean().item(),
            primary=primary,
        )

    def _distances(self, split: str, generated: Tensor, judge: Judge) -> list[Score]:
        """All registered metrics that compare images, against real images of the split, with noise floors."""
        real, floor = (self._real(self._drawn(split, len(generated), which), f"{which} {split}") for which in ("real", "floor"))
        pair = SamplePair(real, generated, floor, _Features(self.ctx, judge, real, generated, floor))
        return [
            distance(metric, split, pair, self.ctx)
            for metric in self.ctx.metrics.values()
            if metric.compute is not None and "image" in metric.kinds
        ]

    def _judge(self, *, seen_only: bool) -> Judge:
        """The judge trained on all images or on the seen split, from the cache if it was trained before.

        Parallel runs that need the same judge train it once.
        """
        path = self.ctx.cache / f"judge-{self._judge_hash(seen_only)}.safetensors"
        with held(path):
            return self._cached_judge(path, seen_only=seen_only)

    def _cached_judge(self, path: Path, *, seen_only: bool) -> Judge:
        if path.is_file():
            try:
                return load_judge(path, self.ctx.device)
            except CompbenchError:
                path.unlink()  # a damaged cache file is written again
        stage = "seen-split judge" if seen_only else "full-data judge"
        judge = train_judge(
            partial(self.real.labelled, seen_only=seen_only),
            self.space.sizes,
            settings=self.settings,
            generator=Generator().manual_seed(0),
            device=self.ctx.device,
            autocast=self.ctx.precision == "bf16",
            shape=self.real.shape,
            progress=lambda done, total: self.ctx.progress(stage, done, total),
        )
        save_judge(judge, path)
        return judge

    def _judge_hash(self, seen_only: bool) -> str:
        facts = {
            "code": of_definitions(train_judge, Judge, type(self.real)),
            "dataset": self.dataset,
            "fingerprint": self.ctx.source.fingerprint,
            "sizes": self.space.sizes,
            "without": self.holdout.cells if seen_only else (),
            "settings": dataclasses.asdict(self.settings),
            "precision": self.ctx.precision,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


class _Features:
    """features(extractor, which): computed once each; the extractor is "inception" or "judge"."""

    def __init__(self, ctx: TaskContext, judge: Judge, real: Tensor, generated: Tensor, floor: Tensor) -> None:
        self._ctx, self._judge = ctx, judge
        self._images = {"real": real, "generated": generated, "floor": floor}
        self._known: dict[tuple[str, str], numpy.ndarray] = {}

    def __call__(self, extractor: str, which: str) -> numpy.ndarray:
        key = (extractor, which)
        if key not in self._known:
            images = self._images[which].to(self._ctx.device)
            if extractor == "inception":
                self._known[key] = InceptionFeatures(self._ctx.data, self._ctx.device)(images)
            else:
                self._known[key] = self._judge.embed_all(images).cpu().numpy()
        return self._known[key]


def to_uint8(samples: Tensor) -> Tensor:
    """Samples in [-1, 1] as uint8 images, clipped and rounded, as every metric sees them."""
    return samples.clamp(-1, 1).add(1).mul(127.5).round().to(torch.uint8)


def grid(real: Tensor, generated: Tensor) -> numpy.ndarray:
    """Rows of real images, each above the image generated for the same condition, uint8 (H, W, 3)."""
    step = max(1, len(real) // (GRID_COLUMNS * GRID_PAIRS))
    chosen = list(range(0, len(real), step))[: GRID_COLUMNS * GRID_PAIRS]
    rows = []
    for first in range(0, len(chosen), GRID_COLUMNS):
        own = chosen[first : first + GRID_COLUMNS]
        for block in (real, generated):
            tiles = [block[index].cpu().permute(1, 2, 0).numpy() for index in own]
            tiles += [numpy.full_like(tiles[0], 255)] * (GRID_COLUMNS - len(tiles))
            rows.append(numpy.concatenate(tiles, axis=1))
        rows.append(numpy.full((4, rows[-1].shape[1], 3), 255, numpy.uint8))
    return numpy.concatenate(rows[:-1])


def _slug(name: str) -> str:
    return name.replace(" ", "_")
