"""Scores of the blobs: distances to the mode that was asked for, the share of samples in it, and figure 3's panel.

The sliced Wasserstein distance ranks.  A sampler that collapses on a mode's centre has more of its samples in the mode than real
data have, so the share stands beside it and ranks nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Generator, Tensor

from compbench.data.blobs import HOLDOUT, MISSING, Settings, centre
from compbench.interfaces import Evaluation, SamplePair, Sampler, Score, TaskContext

if TYPE_CHECKING:
    from compbench.interfaces import Metric

NUM_SAMPLES = {"smoke": 100, "quick": 1000, "standard": 1000, "paper": 5000}
"""Samples of each mode."""

NUM_SIGMAS = 3.0
"""A sample is in a mode within so many standard deviations of its centre; 98.9 % of the mode itself is."""

PANEL, DRAWN = 240, 400
COLOURS: dict[tuple[int, ...], tuple[int, int, int]] = {
    (0, 0): (31, 119, 180),
    (0, 1): (44, 160, 44),
    (1, 1): (148, 103, 189),
    (1, 0): (214, 39, 40),
}


class BlobsEvaluation:
    """Judges samples of the missing mode (held out) and of the three others (seen)."""

    def __init__(self, settings: Settings, ctx: TaskContext) -> None:
        self.settings, self.ctx, self.count = settings, ctx, NUM_SAMPLES[ctx.preset]

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Distances and the share in the mode, each split, and a panel of samples by mode."""
        samples: dict[tuple[int, ...], Tensor] = {}
        scores: list[Score] = []
        for split, cells in (("heldout", HOLDOUT.cells), ("seen", HOLDOUT.seen_cells)):
            asked = torch.tensor(cells).repeat_interleave(self.count, 0)
            drawn = sampler(asked, stream=split)
            own = dict(zip(cells, drawn.split(self.count), strict=True))
            samples |= own
            scores.append(self._share(split, own))
            scores += self._distances(split, own)
        return Evaluation(tuple(scores), {"samples": panel(samples, self.settings)})

    def _share(self, split: str, samples: dict[tuple[int, ...], Tensor]) -> Score:
        metric = self.ctx.metrics["mode_share"]
        radius = NUM_SIGMAS * self.settings.std
        inside = [_distance(points, cell, self.settings) <= radius for cell, points in samples.items()]
        real = [_distance(self._real(cell, "ceiling"), cell, self.settings) <= radius for cell in samples]
        return Score(
            name=f"{split}_mode_share",
            metric=metric.name,
            metric_version=metric.version,
            split="heldout" if split == "heldout" else "seen",
            value=torch.cat(inside).float().mean().item(),
            n=sum(map(len, inside)),
            unit=metric.unit,
            direction=metric.direction,
            ceiling=torch.cat(real).float().mean().item(),
        )

    def _distances(self, split: str, samples: dict[tuple[int, ...], Tensor]) -> list[Score]:
        """Each registered vector metric, averaged over the split's modes."""
        scores = []
        for metric in self.ctx.metrics.values():
            if metric.compute is None or "vector" not in metric.kinds:
                continue
            found = [self._compared(metric, cell, points) for cell, points in samples.items()]
            scores.append(
                Score(
                    name=f"{split}_{metric.name}",
                    metric=metric.name,
                    metric_version=metric.version,
                    split="heldout" if split == "heldout" else "seen",
                    value=sum(value for value, _ in found) / len(found),
                    n=sum(map(len, samples.values())),
                    unit=metric.unit,
                    direction=metric.direction,
                    floor=sum(floor for _, floor in found) / len(found),
                    primary=split == "heldout" and metric.name == "sw2",
                )
            )
        return scores

    def _compared(self, metric: Metric, cell: tuple[int, ...], points: Tensor) -> tuple[float, float]:
        assert metric.compute is not None
        pair = SamplePair(self._real(cell, "real"), points, self._real(cell, "floor"), _no_features)
        found = metric.compute(pair, numpy.random.default_rng(self.ctx.seed))
        return found.value, found.floor or 0.0

    def _real(self, cell: tuple[int, ...], purpose: str) -> Tensor:
        """As many exact points of a mode as were asked for, (N, 2)."""
        digest = hashlib.sha256(f"referee {self.ctx.seed} {purpose} {cell}".encode()).digest()
        generator = Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        noise = torch.randn(self.count, 2, generator=generator)
        return torch.tensor(centre(cell, self.settings)) + self.settings.std * noise


def panel(samples: dict[tuple[int, ...], Tensor], settings: Settings) -> numpy.ndarray:
    """Samples coloured by the mode that was asked for; a ring at 3 sigma of every mode, bold at the missing one.

    Args:
        samples: points (N, 2) by mode.
        settings: where the modes are.

    Returns:
        uint8 (H, W, 3), as a panel of DCFM's figure 3.
    """
    from PIL import Image, ImageDraw

    half = 2 * settings.side
    image = Image.new("RGB", (2 * PANEL, 2 * PANEL), "white")  # drawn at twice the size, then halved: smooth edges
    draw = ImageDraw.Draw(image)

    def place(x: float, y: float) -> tuple[float, float]:
        return (x / half + 1) * PANEL, (1 - y / half) * PANEL

    for cell, points in samples.items():
        for x, y in points[:DRAWN].tolist():
            column, row = place(x, y)
            draw.ellipse((column - 3, row - 3, column + 3, row + 3), fill=COLOURS[cell])
    radius = NUM_SIGMAS * settings.std / half * PANEL
    for cell, colour in COLOURS.items():
        column, row = place(*centre(cell, settings))
        bold = cell == MISSING
        ring = (column - radius, row - radius, column + radius, row + radius)
        draw.ellipse(ring, outline="black" if bold else colour, width=6 if bold else 2)
    draw.rectangle((0, 0, 2 * PANEL - 1, 2 * PANEL - 1), outline="black", width=2)
    return numpy.asarray(image.resize((PANEL, PANEL), Image.Resampling.LANCZOS))


def _distance(points: Tensor, cell: tuple[int, ...], settings: Settings) -> Tensor:
    return (points - torch.tensor(centre(cell, settings))).norm(dim=1)


def _no_features(extractor: str, which: str) -> numpy.ndarray:
    raise KeyError(extractor)
