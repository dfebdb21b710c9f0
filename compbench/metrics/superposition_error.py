"""How far held-out outputs are superpositions of seen ones, and what the outputs' kernel looks like.

    s(x, y) = mean of f over seen cells with this x + mean of f over seen cells with this y

Forced rendering, section 3.  The paper shows pictures; the scores are ours: the cosine between f and s, and the centred
alignment between the cosine kernel of the outputs and the binary factorised kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class KernelAlignments(NamedTuple):
    """Centred alignments of the outputs' cosine kernel.

    Attributes:
        seen: the block held-out x seen, aligned with the binary factorised kernel (dx + dy) / 2.
        heldout: the block held-out x held-out, aligned with the same kernel.
        compositional: the block held-out x held-out, aligned with dx dy.
    """

    seen: float
    heldout: float
    compositional: float


def superposition(outputs: Tensor, heldout: Tensor) -> Tensor:
    """s: the superposition of remembered seen outputs in each cell.

    Args:
        outputs: upright outputs on the grid, (X, Y, P).
        heldout: which cells are held out, bool (X, Y).

    Returns:
        (X, Y, P); a coordinate that is never seen adds nothing.
    """
    seen = (~heldout).to(outputs.dtype)
    same_x = torch.einsum("xyp,xy->xp", outputs, seen) / seen.sum(1).clamp(min=1)[:, None]
    same_y = torch.einsum("xyp,xy->yp", outputs, seen) / seen.sum(0).clamp(min=1)[:, None]
    return same_x[:, None] + same_y[None]


def superposition_score(outputs: Tensor, heldout: Tensor) -> float:
    """Mean over held-out cells of the cosine between the output and s; 1 if the model only superposes memories."""
    explained = superposition(outputs, heldout)
    return F.cosine_similarity(outputs[heldout], explained[heldout], dim=-1).mean().item()


def as_superposition(outputs: Tensor, heldout: Tensor) -> Tensor:
    """The outputs with every held-out output replaced by s, as of an ideal model that only superposes, (X, Y, P)."""
    return torch.where(heldout[..., None], superposition(outputs, heldout), outputs)


def cosine_kernel(a: Tensor, b: Tensor) -> Tensor:
    """k_ij = a_i . b_j / (|a_i| |b_j|) of rows (M, P) and (N, P), (M, N)."""
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T


def binary_factorised_kernel(a: Tensor, b: Tensor) -> Tensor:
    """(delta_xx' + delta_yy') / 2 of cells (M, 2) and (N, 2), (M, N)."""
    return (a[:, None] == b).double().mean(-1)


def centred_alignment(k: Tensor, target: Tensor) -> float:
    """<HkH, HtH> / (|HkH| |HtH|) of two equally large matrices, rows and columns centred; 1 if they agree up to scale."""
    k, target = _centred(k.double()), _centred(target.double())
    return ((k * target).sum() / (k.norm() * target.norm()).clamp(min=1e-300)).item()


def kernel_alignments(outputs: Tensor, heldout: Tensor) -> KernelAlignments:
    """Alignments of the cosine kernel of upright outputs (X, Y, P); `heldout` is bool (X, Y)."""
    held, seen = outputs[heldout], outputs[~heldout]
    held_cells, seen_cells = heldout.nonzero(), (~heldout).nonzero()
    within = cosine_kernel(held, held)
    same = (held_cells[:, None] == held_cells).all(-1)
    return KernelAlignments(
        centred_alignment(cosine_kernel(held, seen), binary_factorised_kernel(held_cells, seen_cells)),
        centred_alignment(within, binary_factorised_kernel(held_cells, held_cells)),
        centred_alignment(within, same),
    )


def _centred(k: Tensor) -> Tensor:
    return k - k.mean(0, keepdim=True) - k.mean(1, keepdim=True) + k.mean()
