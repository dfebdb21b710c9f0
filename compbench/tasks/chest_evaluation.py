"""How radiographs are scored: by a classifier that is trained on them and tested on real images, by findings, and by distances.

Grey images are repeated over three equal channels, because Inception takes three.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Generator, Tensor

from compbench.api.interfaces import Evaluation, Sampler, Score
from compbench.data.chest_images import Radiographs
from compbench.flow.transfer import send
from compbench.metrics.judge import JudgeSettings, train_judge
from compbench.metrics.utility import compositional_recall
from compbench.tasks.image_evaluation import ImageEvaluation, Sizes, grid, to_uint8

NUM_IMAGES = {
    "smoke": Sizes(0, 1, 0),
    "quick": Sizes(0, 8, 0),
    "standard": Sizes(0, 20, 0),
    "paper": Sizes(0, 100, 0),
}
"""Number of samples, and of real test images, of each feasible label set."""

JUDGES = {
    "smoke": JudgeSettings(width=16, num_steps=30, batch_size=64),
    "quick": JudgeSettings(width=24, num_steps=800, batch_size=64),
    "standard": JudgeSettings(width=24, num_steps=2500, batch_size=64),
    "paper": JudgeSettings(architecture="pooled", width=64, num_steps=20_000, batch_size=256),
}

CLASSIFIERS = {
    "smoke": JudgeSettings(width=8, num_steps=10, batch_size=32),
    "quick": JudgeSettings(width=16, num_steps=400, batch_size=64),
    "standard": JudgeSettings(width=24, num_steps=1000, batch_size=64),
    "paper": JudgeSettings(architecture="pooled", width=64, num_steps=4000, batch_size=128),
}
"""Training settings of the downstream classifier, which sees only samples."""


class RealRadiographs:
    """Real radiographs for the referee, (N, 3, H, W); its judge learns from training images."""

    def __init__(self, radiographs: Radiographs, side: int) -> None:
        self.radiographs, self.shape = radiographs, (3, side, side)

    def of(self, condition: Tensor, generator: Generator) -> Tensor:
        """For each requested label set, one image that no silo has."""
        return three(self.radiographs.of(condition, generator))

    def labelled(self, size: int, generator: Generator, *, seen_only: bool) -> tuple[Tensor, Tensor]:
        """Training images: half drawn with their natural frequencies, half drawn evenly over the feasible label sets."""
        stored, labels, decode = self.radiographs.training
        plain = torch.randint(len(labels), (size - size // 2,), generator=generator)
        chosen = torch.randint(len(self._by_set), (size // 2,), generator=generator).tolist()
        shares = torch.rand(size // 2, generator=generator).tolist()
        even = [self._by_set[k][int(share * len(self._by_set[k]))] for k, share in zip(chosen, shares, strict=True)]
        rows = send(torch.cat([plain, torch.tensor(even, dtype=torch.long)]), labels.device)
        return three(to_uint8(decode(stored[rows]))), labels[rows]

    @cached_property
    def _by_set(self) -> list[list[int]]:
        """Indices of training images for each feasible label set that has any."""
        rows: dict[tuple[int, ...], list[int]] = {tuple(found): [] for found in self.radiographs.feasible.tolist()}
        for row, found in enumerate(self.radiographs.training.labels.tolist()):
            if tuple(found) in rows:
                rows[tuple(found)].append(row)
        return [own for own in rows.values() if own]


class ChestEvaluation(ImageEvaluation):
    """The judge, classifier and scores of one chest task under one preset."""

    real: RealRadiographs

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Utility with its ceiling, accuracies of the findings, distances, and pictures of every feasible label set."""
        asked = self.real.radiographs.feasible.repeat(self.sizes.per_cell, 1)
        generated, judge = three(to_uint8(sampler(asked, stream="all"))), self._judge(seen_only=False)
        test = self._real(asked, "test")
        recalls = [self._utility(images, asked, test) for images in (generated, self._real(asked, "real for training"))]
        utility = self.ctx.metrics["utility"].score("all", recalls[0], n=len(asked), ceiling=recalls[1], primary=True)
        scores: list[Score] = [utility, *self._accuracies("all", "", judge, asked, generated, test)]
        scores += self._distances("all", generated, judge)
        return Evaluation(tuple(scores), {"samples": grid(test, generated)})

    def _utility(self, images: Tensor, labels: Tensor, test: Tensor) -> float:
        """Utility: train a classifier on `images` and measure its recall on the real `test` images of the same label sets."""
        images, known = images.to(self.ctx.device), labels.to(self.ctx.device)

        def batches(size: int, generator: Generator) -> tuple[Tensor, Tensor]:
            rows = send(torch.randint(len(images), (size,), generator=generator), images.device)
            return images[rows], known[rows]

        classifier = train_judge(
            batches,
            self.space.sizes,
            settings=CLASSIFIERS[self.ctx.preset],
            generator=self.ctx.generator("classifier"),
            device=self.ctx.device,
            autocast=self.ctx.precision == "bf16",
            shape=self.real.shape,
            progress=lambda done, total: self.ctx.progress("classifier", done, total),
        )
        return compositional_recall(classifier.predict(test.to(self.ctx.device)).cpu(), labels)

    def _drawn(self, split: str, count: int, purpose: str) -> Tensor:
        """Conditions drawn evenly over the feasible label sets, as in the requests."""
        feasible = self.real.radiographs.feasible
        return feasible.repeat(-(-count // len(feasible)), 1)[:count]


def three(grey: Tensor) -> Tensor:
    """Grey images (N, 1, H, W) as three equal channels."""
    return grey.expand(-1, 3, -1, -1)
