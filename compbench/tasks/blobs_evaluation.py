"""Scores of the blobs: distances to the requested mode, the share of samples inside it, and the panel of figure 3.

The sliced Wasserstein distance ranks.  The share does not rank: a sampler that collapses to a mode's centre has more of its
samples inside the mode than real data have.
"""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from compbench.api.interfaces import Evaluation, Sampler, Score, TaskContext
from compbench.data.blob_mixture import HOLDOUT, MISSING, Settings, centre
from compbench.tasks.split_scores import Compared, vector_distances

NUM_SAMPLES = {"smoke": 100, "quick": 1000, "standard": 1000, "paper": 5000}
"""Number of samples drawn for each mode, by preset."""

NUM_SIGMAS = 3.0
"""A sample counts as inside a mode within this many standard deviations of its centre; 98.9 % of real points are."""

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
        """Distances and the share inside the mode for each split, and a panel of samples by mode."""
        samples: dict[tuple[int, ...], Tensor] = {}
        scores: list[Score] = []
        for split, cells in (("heldout", HOLDOUT.cells), ("seen", HOLDOUT.seen_cells)):
            asked = torch.tensor(cells).repeat_interleave(self.count, 0)
            drawn = sampler(asked, stream=split)
            own = dict(zip(cells, drawn.split(self.count), strict=True))
            samples |= own
            scores.append(self._share(split, own))
            compared = [Compared(self._real(cell, "real"), points, self._real(cell, "floor")) for cell, points in own.items()]
            scores += vector_distances(split, compared, self.ctx)
        return Evaluation(tuple(scores), {"samples": panel(samples, self.settings)})

    def _share(self, split: str, samples: dict[tuple[int, ...], Tensor]) -> Score:
        radius = NUM_SIGMAS * self.settings.std
        inside = [_distance(points, cell, self.settings) <= radius for cell, points in samples.items()]
        real = [_distance(self._real(cell, "ceiling"), cell, self.settings) <= radius for cell in samples]
        return self.ctx.metrics["mode_share"].score(
            split,
            torch.cat(inside).float().mean().item(),
            n=sum(map(len, inside)),
            ceiling=torch.cat(real).float().mean().item(),
        )

    def _real(self, cell: tuple[int, ...], purpose: str) -> Tensor:
        """As many exact points of a mode as samples were requested, (N, 2)."""
        noise = torch.randn(self.count, 2, generator=self.ctx.generator(f"{purpose} {cell}"))
        return torch.tensor(centre(cell, self.settings)) + self.settings.std * noise


def panel(samples: dict[tuple[int, ...], Tensor], settings: Settings) -> numpy.ndarray:
    """Samples coloured by the requested mode, with a ring at 3 sigma around every mode, bold around the missing one.

    Args:
        samples: points (N, 2) by mode.
        settings: where the modes are.

    Returns:
        uint8 (H, W, 3), as a panel of DCFM's figure 3.
    """
    from PIL import Image, ImageDraw

    half = 2 * settings.side
    image = Image.new("RGB", (2 * PANEL, 2 * PANEL), "white")  # drawn at twice the size and halved, for smooth edges
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
