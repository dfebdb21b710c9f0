"""How additive the vectors of some cells are in the cells' factors, and how orthogonal the factors' effects are.

    a(c) = mean + sum_k u_k(c_k) + rest(c)                  equal-weight least squares over M cells
    R2 = 1 - sum_c |rest(c)|^2 / sum_c |a(c) - mean a|^2
    cosine = mean over pairs of factors of the mean of cos(theta_i) between the spans of their effects

theta_i are principal angles (Bjorck & Golub 1973).  The span of a factor's effects contains the contrasts of its values that the
cells determine; in a disconnected design, values of different components are never compared.  Everything follows from the Gram
matrix of the vectors, G = A A^T, so G can be summed over blocks of A (M, P), and A need not be in memory as a whole.

Additive, orthogonal components of factors are what Uselis, Dittadi and Oh (arXiv 2602.24264) derive as necessary for composition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-9
"""A singular value of the design below this share of the largest one counts as zero (rounding)."""
NOISE = 1e-9
"""Differences with less than this share of a vector's energy count as rounding in single precision."""
FAINT = 1e-6
"""A direction with less than this share of the largest energy of a factor's effects does not belong to their span."""


class Effects(NamedTuple):
    """The additive structure of vectors at some cells.

    Attributes:
        r2: in [0, 1]; None if the design can fit any vectors at these cells, or all vectors are equal.
        cosine: in [0, 1]; None for fewer than two factors with effects.
        num_effects: degrees of freedom of the effects: number of independent effects besides the mean.  Vectors without
            structure have an R2 of about num_effects / (M - 1).
    """

    r2: float | None
    cosine: float | None
    num_effects: int


def effects(gram: Tensor, cells: Tensor, sizes: Sequence[int]) -> Effects:
    """The additive decomposition of vectors at some cells.

    Args:
        gram: inner products of the cells' vectors, (M, M), float64.
        cells: values of K factors, (M, K) long, each cell once.
        sizes: number of values of each factor.
    """
    design = torch.cat(
        [torch.nn.functional.one_hot(cells[:, k], size).double() for k, size in enumerate(sizes)], dim=1
    )  # (M, N), N = sum of sizes
    left, values, right = torch.linalg.svd(design, full_matrices=False)
    kept = values > TOLERANCE * values.max()
    left, values, right = left[:, kept], values[kept], right[kept]  # (M, R), (R,), (R, N)
    count, rank = len(cells), len(values)
    centre = torch.eye(count, dtype=torch.float64) - 1 / count
    around = centre @ gram @ centre
    total, fitted = around.trace(), (left.T @ around @ left).trace()
    r2 = None if rank == count or total <= NOISE * gram.trace() else min(1.0, max(0.0, (fitted / total).item()))
    solve = right.T @ (left / values).T  # the pseudo-inverse, (N, M)
    spans = [span for k in range(len(sizes)) if (span := _span(k, sizes, right, solve, gram)) is not None]
    cosines = [torch.linalg.svdvals(one @ gram @ other.T).clamp(max=1).mean().item() for one, other in combinations(spans, 2)]
    return Effects(r2, sum(cosines) / len(cosines) if cosines else None, rank - 1)


def _span(k: int, sizes: Sequence[int], right: Tensor, solve: Tensor, gram: Tensor) -> Tensor | None:
    """Combinations of the cells' vectors that are an orthonormal basis of the span of factor k's effects, (D, M).

    None if the cells determine no contrast of its values, or if none of its values has an effect.
    """
    first = sum(sizes[:k])
    own = torch.eye(sum(sizes), dtype=torch.float64)[:, first : first + sizes[k]]  # (N, n)
    outside = own - right.T @ (right @ own)  # directions of effects that the cells do not determine, (N, n)
    _, open_parts, contrasts = torch.linalg.svd(outside)
    contrasts = contrasts[open_parts < 1e-8]  # (C, n), each determined
    if not len(contrasts):
        return None
    weights = contrasts @ solve[first : first + sizes[k]]  # (C, M)
    energies, axes = torch.linalg.eigh(weights @ gram @ weights.T)
    strong = energies > FAINT * energies.max().clamp(min=1e-300)
    if energies.max() <= NOISE * gram.trace() / len(gram):
        return None
    return axes[:, strong].T @ weights / energies[strong, None].sqrt()
