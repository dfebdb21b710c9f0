"""Scores of the perturbation tasks: distances to exact samples, moments against the known target, density pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from compbench.api.interfaces import Evaluation, Sampler, Score, TaskContext
from compbench.data.gaussians import Mixture, Moments, base_composition, product_of_gaussians, quadrature
from compbench.tasks.split_scores import Compared, vector_distances

if TYPE_CHECKING:
    from collections.abc import Mapping

NUM_SAMPLES = {"smoke": 200, "quick": 2000, "standard": 2000, "paper": 5000}
"""Number of samples of the target, by preset; each source gets a quarter of that number."""

PICTURE_SIDE = 160


class GaussianEvaluation:
    """Judges samples of the target (held out) and of the three sources (seen)."""

    def __init__(self, sources: Mapping[tuple[int, ...], Mixture], ctx: TaskContext) -> None:
        self.sources, self.ctx, self.count = sources, ctx, NUM_SAMPLES[ctx.preset]
        parts = [sources[cell] for cell in ((1, 0), (0, 1), (0, 0))]
        self.parts = (parts[0], parts[1], parts[2])
        self.closed = product_of_gaussians(parts, (1.0, 1.0, -1.0)) if all(len(p.weights) == 1 for p in parts) else None

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Distances with floors, errors of moments, and a picture of the densities of target, sources and samples."""
        heldout = sampler(torch.ones(self.count, 2, dtype=torch.long), stream="heldout")
        real, floor = (self._target(which) for which in ("real", "floor"))
        scores = vector_distances("heldout", [Compared(real, heldout, floor)], self.ctx)
        scores += self._moments(heldout, floor)
        seen, panels = [], {"target": (real, heldout)}
        for cell, law in self.sources.items():
            asked = torch.tensor(cell).repeat(max(self.count // 4, 2), 1)
            samples = sampler(asked, stream=f"seen {cell[0]}{cell[1]}")
            draws = [law.sample(len(asked), self.ctx.generator(f"{which} {cell}")) for which in ("seen", "seen floor")]
            seen.append(Compared(draws[0], samples, draws[1]))
            panels[f"source {cell[0]}{cell[1]}"] = (draws[0], samples)
        scores += vector_distances("seen", seen, self.ctx)
        return Evaluation(tuple(scores), {"samples": densities(panels)})

    def _target(self, which: str) -> Tensor:
        generator = self.ctx.generator(f"target {which}")
        a1, a2, base = self.parts
        return self.closed.sample(self.count, generator) if self.closed else base_composition(a1, a2, base, self.count, generator)

    def _moments(self, generated: Tensor, floor: Tensor) -> list[Score]:
        """Errors of the samples' mean and covariance against the target's, which are known."""
        truth = self.closed.moments() if self.closed else quadrature(*self.parts).moments()
        own, other = _errors(generated.double(), truth), _errors(floor, truth)
        return [
            self.ctx.metrics[name].score("heldout", value, n=len(generated), floor=least)
            for name, value, least in zip(("mean_error", "covariance_error"), own, other, strict=True)
            if name in self.ctx.metrics
        ]


def densities(panels: Mapping[str, tuple[Tensor, Tensor]]) -> numpy.ndarray:
    """Histograms over one shared window, one column per panel: exact points above, generated ones below, uint8 (H, W, 3).

    The window contains all exact points except the farthest 0.5 %.

    Args:
        panels: title -> exact and generated points, (N, 2) each.
    """
    exact = torch.cat([real.double() for real, _ in panels.values()])
    low, high = exact.quantile(0.005, dim=0), exact.quantile(0.995, dim=0)
    centre, half = (low + high) / 2, float((high - low).max()) * 0.65
    columns: list[numpy.ndarray] = []
    for title, pair in panels.items():
        tiles = [_histogram(points, centre, half) for points in pair]
        column = numpy.concatenate([_words(title, PICTURE_SIDE), tiles[0], _gap(4, PICTURE_SIDE), tiles[1]])
        columns += [column, _gap(len(column), 4)]
    return numpy.concatenate(columns[:-1], axis=1)


def _words(text: str, width: int) -> numpy.ndarray:
    """A line of text as pixels, (16, width, 3)."""
    from PIL import Image, ImageDraw

    line = Image.new("RGB", (width, 16), "white")
    ImageDraw.Draw(line).text((4, 2), text, fill="black")
    return numpy.asarray(line)


def _histogram(points: Tensor, centre: Tensor, half: float) -> numpy.ndarray:
    """A histogram that is dark where points are dense; it shows the square root of the counts, so that tails are visible."""
    bins = 40
    places = ((points.double() - centre) / half + 1) / 2 * bins
    inside = ((places >= 0) & (places < bins)).all(1)
    column, row = places[inside].long().unbind(1)
    counts = torch.bincount((bins - 1 - row) * bins + column, minlength=bins * bins).view(bins, bins).double().sqrt()
    shade = 255 - 255 * counts / counts.max().clamp(min=1)
    tile = shade.round().to(torch.uint8).numpy().repeat(PICTURE_SIDE // bins, 0).repeat(PICTURE_SIDE // bins, 1)
    return numpy.stack([tile] * 3, axis=2)


def _gap(height: int, width: int) -> numpy.ndarray:
    return numpy.full((height, width, 3), (200, 60, 60), numpy.uint8)


def _errors(points: Tensor, truth: Moments) -> tuple[float, float]:
    """|mean - mean*| and |cov - cov*|_F / |cov*|_F."""
    mean_error = float((points.mean(0) - truth.mean).norm())
    return mean_error, float((points.T.cov() - truth.covariance).norm() / truth.covariance.norm())
