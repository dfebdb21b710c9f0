"""Further scores of dSprites samples: how well a sample overlaps a true image of its condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compbench.api.interfaces import Score
from compbench.metrics.judge import JudgeSettings

if TYPE_CHECKING:
    from compbench.data.lattices import Images
    from compbench.tasks.lattice_images import Lattices

JUDGES = {
    "smoke": JudgeSettings(width=16, num_steps=30, batch_size=64),
    "quick": JudgeSettings(width=24, num_steps=450, batch_size=64, learning_rate=4e-3),
    "standard": JudgeSettings(width=24, num_steps=900, batch_size=64, learning_rate=4e-3),
    "paper": JudgeSettings(width=64, num_steps=4000, batch_size=256),
}
"""Judge training by preset.  At `quick`, `pooled` is right on 0.97 of orientations and at least 0.985 of each other factor;
`plain` after 700 steps is right on only 0.61 of scales."""

BLOCK = 32
"""Number of samples compared at a time, each with all true images of its condition."""


def overlap(samples: Tensor, truth: Tensor) -> Tensor:
    """Intersection over union of black and white images, the best over several true ones; 1 if both are all black.

    Args:
        samples: bool (B, H, W).
        truth: bool (B, K, H, W).

    Returns:
        (B,) in [0, 1].
    """
    ours, true = samples.flatten(1).float(), truth.flatten(2).float()
    both = torch.einsum("bp,bkp->bk", ours, true)
    either = ours.sum(1, keepdim=True) + true.sum(2) - both
    return torch.where(either > 0, both / either.clamp(min=1), torch.ones_like(both)).amax(1)


def overlap_scores(asked: Tensor, samples: Tensor, split: str, *, images: Images, lattices: Lattices) -> list[Score]:
    """The mean overlap of samples (N, 1, 64, 64) uint8 with the true images of their conditions (N, F)."""
    found = []
    for first in range(0, len(asked), BLOCK):
        own = asked[first : first + BLOCK]
        fine = all_refined(own, lattices)  # (B, K, F')
        truth = images(fine.flatten(0, 1)).cpu()[:, 0].unflatten(0, fine.shape[:2]) > 127
        found.append(overlap(samples[first : first + BLOCK, 0].cpu() > 127, truth))
    value = torch.cat(found).mean().item()
    return [Score(name=f"{split}_iou", metric="iou", split=split, value=value, n=len(asked), direction="higher", ceiling=1.0)]


def all_refined(condition: Tensor, lattices: Lattices) -> Tensor:
    """All fine combinations of full conditions (B, F): (B, K, F')."""
    widths = [
        lattices.fine.sizes[lattices.fine.index(name)] // size
        for name, size in zip(lattices.space.names, lattices.space.sizes, strict=True)
    ]
    offsets = torch.cartesian_prod(*(torch.arange(width) for width in widths)).view(-1, len(widths))  # (K, F)
    base = condition.cpu() * torch.tensor(widths)
    refined = base[:, None] + offsets
    return refined[:, :, [lattices.space.index(name) for name in lattices.fine.names]]
