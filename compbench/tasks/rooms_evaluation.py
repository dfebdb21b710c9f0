"""How rooms are scored: the four classes' shares according to a judge against the exact shares, and image distances.

TV = 1/2 sum_c |judged share of c - exact share of c|.  The floor is the TV of equally many real pictures with the exact shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from compbench.api.interfaces import Evaluation, Sampler, Score
from compbench.data.room_images import RoomPictures
from compbench.data.room_shares import Cell, Shares, drawn_classes
from compbench.flow.transfer import send
from compbench.metrics.judge import Judge, JudgeSettings
from compbench.metrics.shares import total_variation
from compbench.tasks.image_evaluation import ImageEvaluation, Sizes, grid, to_uint8

if TYPE_CHECKING:
    from typing import Literal

NUM_SAMPLES = {
    "smoke": Sizes(36, 0, 0),
    "quick": Sizes(128, 0, 0),
    "standard": Sizes(600, 0, 0),
    "paper": Sizes(2000, 0, 0),
}
"""Number of samples of the target, by preset; each source gets a quarter of that number."""

JUDGES = {
    "smoke": JudgeSettings(width=16, num_steps=30, batch_size=64),
    "quick": JudgeSettings(width=24, num_steps=600, batch_size=64),
    "standard": JudgeSettings(width=24, num_steps=1500, batch_size=64),
    "paper": JudgeSettings(width=64, num_steps=4000, batch_size=256),
}

ALONE, BOTH = (1, 2), (3,)
"""The classes with exactly one object, and the class with both."""


class RealRooms:
    """Real rooms for the referee: pictures from a condition's mixture; judges learn the two objects from training pictures.

    Args:
        pictures: pictures of the four classes.
        laws: class shares of each condition, including the target.
        side: pixels per side.
        device: device of the pictures.
    """

    def __init__(self, pictures: RoomPictures, laws: dict[Cell, Shares], side: int, device: torch.device) -> None:
        self._pictures, self.laws, self._device = pictures, laws, device
        self.shape = (3, side, side)

    def of(self, condition: Tensor, generator: Generator) -> Tensor:
        """A picture from each condition's mixture, (N, 3, H, W)."""
        return self._pictures.reference(drawn_classes(condition, self.laws, generator), generator)

    def labelled(self, size: int, generator: Generator, *, seen_only: bool) -> tuple[Tensor, Tensor]:
        """Equally many pictures of all four classes, and which of the two objects they show, (N, 2)."""
        classes = torch.randint(4, (size,), generator=generator)
        labels = torch.stack([classes % 2, classes // 2], 1)
        return self._pictures.training(classes, generator), send(labels, self._device)


class RoomsEvaluation(ImageEvaluation):
    """The judge and scores of one room task under one preset."""

    real: RealRooms

    def prepare(self) -> None:
        """Train the judge, or load it from the cache."""
        self._judge(seen_only=False)

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Shares and distances for target and sources, and pictures of the target."""
        judge = self._judge(seen_only=False)
        target = torch.ones(self.sizes.per_split, 2, dtype=torch.long)
        heldout = to_uint8(sampler(target, stream="heldout"))
        found, floor = self._judged(judge, heldout), self._judged(judge, self._real(target, "ceiling heldout"))
        exact = self.real.laws[1, 1]
        distances = total_variation(found, exact), total_variation(floor, exact)
        scores = [self._variation("heldout", distances, len(heldout))]
        scores += [self._share(name, classes, found, exact, len(heldout)) for name, classes in (("both", BOTH), ("alone", ALONE))]
        seen, values = [], []
        for cell in self.holdout.seen_cells:
            asked = torch.tensor(cell).repeat(self.sizes.per_split // 4, 1)
            samples = to_uint8(sampler(asked, stream=f"seen {cell[0]}{cell[1]}"))
            law = self.real.laws[cell[0], cell[1]]
            real = self._real(asked, f"ceiling {cell}")
            values.append(tuple(total_variation(self._judged(judge, images), law) for images in (samples, real)))
            seen.append(samples)
        value, least = (sum(column) / len(values) for column in zip(*values, strict=True))
        scores.append(self._variation("seen", (value, least), sum(map(len, seen))))
        for split, generated in (("heldout", heldout), ("seen", torch.cat(seen))):
            scores += self._distances(split, generated, judge)
        return Evaluation(tuple(scores), {"samples": grid(self._real(target, "grid"), heldout)})

    def _judged(self, judge: Judge, images: Tensor) -> list[float]:
        """Share of each class among images (N, 3, H, W) according to the judge."""
        objects = judge.predict(images.to(self.ctx.device)).cpu()  # (N, 2)
        return (torch.bincount(objects[:, 0] + 2 * objects[:, 1], minlength=4) / len(images)).tolist()

    def _variation(self, split: Literal["heldout", "seen"], values: tuple[float, float], n: int) -> Score:
        metric = self.ctx.metrics["total_variation"]
        return Score(
            name=f"{split}_total_variation",
            metric=metric.name,
            metric_version=metric.version,
            split=split,
            value=values[0],
            n=n,
            direction="lower",
            floor=values[1],
            primary=split == "heldout",
        )

    def _share(self, name: str, classes: tuple[int, ...], found: list[float], exact: Shares, n: int) -> Score:
        """The share of some classes; their exact share is the ceiling if it is over one half, otherwise the floor."""
        truth = sum(exact[index] for index in classes)
        metric = self.ctx.metrics["class_share" if truth > 0.5 else "rare_share"]
        return Score(
            name=f"heldout_share_{name}",
            metric=metric.name,
            metric_version=metric.version,
            split="heldout",
            value=sum(found[index] for index in classes),
            n=n,
            direction=metric.direction,
            ceiling=truth if truth > 0.5 else None,
            floor=None if truth > 0.5 else truth,
        )
