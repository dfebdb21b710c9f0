"""How pictures of two sprites are scored: R2 and mean squared error against the one true image of each condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compbench.api.interfaces import Evaluation, Sampler, Score, TaskContext
from compbench.tasks.image_evaluation import grid, to_uint8

if TYPE_CHECKING:
    from compbench.api.factors import Holdout
    from compbench.data.lattices import Images

NUM_SAMPLES = {"smoke": 64, "quick": 500, "standard": 1000, "paper": 5000}
SPLITS = ("heldout", "seen")


def r_squared(made: Tensor, true: Tensor) -> float:
    """1 - sum |made - true|^2 / sum |true - mean true image|^2, over all images (N, *D) and entries."""
    unexplained = (made.double() - true.double()).square().sum()
    return 1 - (unexplained / (true.double() - true.double().mean(0)).square().sum()).item()


def evaluate(sampler: Sampler, images: Images, holdout: Holdout, ctx: TaskContext) -> Evaluation:
    """Request combinations of both splits, drawn with the run's seed, and compare the answers with their true images."""
    scores: list[Score] = []
    pictures = {}
    for number, split in enumerate(SPLITS):
        generator = torch.Generator().manual_seed(ctx.seed * 1_000_003 + 53 + number)
        asked = holdout.draw(NUM_SAMPLES[ctx.preset], generator, heldout=split == "heldout")
        made = sampler(asked, stream=split)
        drawn = images(asked).cpu()
        true = drawn.float() / 127.5 - 1
        mse = (made - true).square().mean().item() / 4
        n = len(asked)
        scores += [
            Score(
                name=f"{split}_r2",
                metric="r2",
                split=split,
                value=r_squared(made, true),
                n=n,
                direction="higher",
                ceiling=1.0,
                primary=split == "heldout",
            ),
            Score(name=f"{split}_mse", metric="mse", split=split, value=mse, n=n, direction="lower", floor=0.0),
        ]
        if split == "heldout":
            pictures["samples"] = grid(drawn, to_uint8(made))
    return Evaluation(tuple(scores), pictures)
