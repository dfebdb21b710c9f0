"""Kernels of outputs besides the cosine kernel: distance, and overlap of pixels.

    distance_ij = |a_i - a_j|        overlap_ij = sum_p min(a_ip, a_jp) / sum_p max(a_ip, a_jp),  of parts above 0

Forced rendering, figure 8; the paper does not define its overlap, and this one (Jaccard's, of grey pixels) is our choice.
"""

from __future__ import annotations

import torch
from torch import Tensor


def distances(outputs: Tensor) -> Tensor:
    """Euclidean distances of outputs (N, P) from one another, (N, N)."""
    return torch.cdist(outputs, outputs)


def overlaps(outputs: Tensor) -> Tensor:
    """Overlap of upright outputs (N, P) with one another, (N, N) in [0, 1]; of two black ones 1."""
    bright = outputs.clamp(min=0)
    total = bright.sum(1)
    rows = []
    for row, own in zip(bright, total, strict=True):
        both = torch.minimum(row, bright).sum(1)
        either = own + total - both
        rows.append(torch.where(either > 0, both / either.clamp(min=1e-12), 1.0))
    return torch.stack(rows)
