"""How bump images are scored: MSE, position, and how far held-out images are superpositions of seen ones."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from compbench.api.factors import Holdout
from compbench.api.interfaces import Evaluation, Sampler, Score
from compbench.data.bumps import as_upright, blank_level, bumps
from compbench.data.pictures import coloured, outlined
from compbench.metrics.localisation import Localisation, localise, shaped
from compbench.metrics.superposition_error import as_superposition, kernel_alignments, superposition_score

ENLARGED = 8
"""Pixels per cell in the picture of the error landscape."""
GRID_COLUMNS, GRID_PAIRS = 10, 2


def evaluate(sampler: Sampler, holdout: Holdout, *, size: int, sigma: float) -> Evaluation:
    """Request every held-out and every seen cell once, and score the answers."""
    heldout = torch.zeros(size, size, dtype=torch.bool)
    heldout[tuple(torch.tensor(holdout.cells).T)] = True
    outputs = torch.zeros(size, size, size, size)
    scores: list[Score] = []
    for split, mask in (("heldout", heldout), ("seen", ~heldout)):
        cells = mask.nonzero()  # (n, 2), x first
        made = as_upright(sampler(cells, stream=split))
        outputs[mask] = made
        scores += _split_scores(split, made, cells, size=size, sigma=sigma)
    truth = bumps(torch.cartesian_prod(torch.arange(size), torch.arange(size)), size=size, sigma=sigma).unflatten(0, (size, size))
    scores += _superposition_scores(outputs.flatten(2).double(), truth.flatten(2).double(), heldout)
    error = (outputs - truth).square().mean((2, 3))  # (x, y)
    landscape = coloured(error.clamp(min=1e-9).log10().T.numpy())  # rows are y
    pictures = {
        "samples": grid(truth[heldout], outputs[heldout]),
        "landscape": outlined(landscape, heldout.T.numpy(), ENLARGED),
    }
    return Evaluation(tuple(scores), pictures)


def _split_scores(split: str, made: Tensor, cells: Tensor, *, size: int, sigma: float) -> list[Score]:
    truth = bumps(cells, size=size, sigma=sigma)
    blank = blank_level(cells, size=size, sigma=sigma)
    mse = (made - truth).square().mean().item()
    found, ideal = localise(made, cells), localise(truth, cells)
    scores = [
        _score(f"{split}_mse", "mse", split, mse, len(cells), "lower", floor=0.0),
        _score(f"{split}_mse_blank", "mse_blank", split, mse / blank, len(cells), "lower", floor=0.0),
    ]
    for name in Localisation._fields:
        metric = "accuracy" if name == "both" else f"{name}_accuracy"
        value, ceiling = (getattr(which, name).float().mean().item() for which in (found, ideal))
        scores.append(_score(f"{split}_{metric}", metric, split, value, len(cells), "higher", ceiling=ceiling))
    value = shaped(made, truth, cells).float().mean().item()
    known = {"ceiling": 1.0, "primary": split == "heldout"}
    return [*scores, _score(f"{split}_shape_accuracy", "shape_accuracy", split, value, len(cells), "higher", **known)]


def _superposition_scores(outputs: Tensor, truth: Tensor, heldout: Tensor) -> list[Score]:
    """Superposition and kernel alignments; true bumps give the floor, exact superpositions of seen images the ceiling."""
    count = int(heldout.sum())
    points = (outputs, truth, as_superposition(truth, heldout))
    value, floor, ceiling = (superposition_score(point, heldout) for point in points)
    scores = [_score("heldout_superposition", "superposition", "heldout", value, count, "lower", floor=floor, ceiling=ceiling)]
    aligned = [kernel_alignments(point, heldout) for point in points]
    for name in ("seen", "heldout", "compositional"):
        value, floor, ceiling = (getattr(each, name) for each in aligned)
        how = "higher" if name == "compositional" else "lower"
        metric = f"kernel_alignment_{name}"
        scores.append(_score(metric, metric, "heldout", value, count, how, floor=floor, ceiling=ceiling))
    return scores


def _score(name: str, metric: str, split: str, value: float, n: int, direction: str, **known: object) -> Score:
    return Score.model_validate(
        {"name": name, "metric": metric, "split": split, "value": value, "n": n, "direction": direction, **known}
    )


def grid(truth: Tensor, made: Tensor) -> numpy.ndarray:
    """Rows of true images, each above the image generated for the same position, enlarged, uint8 (H, W, 3)."""
    step = max(1, len(truth) // (GRID_COLUMNS * GRID_PAIRS))
    chosen = torch.arange(0, len(truth), step)[: GRID_COLUMNS * GRID_PAIRS]
    rows = []
    for own in chosen.split(GRID_COLUMNS):
        for block in (truth, made):
            tiles = torch.nn.functional.pad(block[own].clamp(0, 1), (1, 1, 1, 1), value=0.5)  # each gets a frame
            rows.append(torch.cat([*tiles, *torch.ones_like(tiles[:1]).expand(GRID_COLUMNS - len(own), -1, -1)], dim=1))
    grey = torch.cat(rows).mul(255).round().to(torch.uint8).numpy()
    return numpy.repeat(grey.repeat(2, 0).repeat(2, 1)[:, :, None], 3, axis=2)
