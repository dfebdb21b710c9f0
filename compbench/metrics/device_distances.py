"""Nearest-neighbour and kernel distances on a GPU; `manifold.precision_recall` and `kernel.kid` are their plain references.

Both compute in float64 and from the same random subsets as the references, and wait for the device once.
"""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from compbench.metrics.kernel import KidEstimate
from compbench.metrics.manifold import PrecisionRecall

BLOCK = 8192
"""Number of rows in one block of distances; it bounds the memory at 8192 x N float64 numbers."""


def precision_recall(real: Tensor, generated: Tensor, *, k: int = 3) -> PrecisionRecall:
    """Precision and recall of features (M, D) and (N, D), with balls that reach the k-th nearest neighbour.

    Kynkaanniemi et al. 2019.

    Raises:
        ValueError: a side has at most k samples.
    """
    if min(len(real), len(generated)) <= k:
        raise ValueError(f"k = {k} nearest neighbours need more than {k} samples on each side.")
    real, generated = real.double(), generated.double()
    shares = [_share_covered(generated, real, _radii(real, k)), _share_covered(real, generated, _radii(generated, k))]
    return PrecisionRecall(*torch.stack(shares).tolist())


def kid(real: Tensor, generated: Tensor, *, num_subsets: int, subset_size: int, generator: numpy.random.Generator) -> KidEstimate:
    """The mean unbiased squared MMD over random subsets of features (M, D) and (N, D), kernel (x.y / D + 1)^3.

    Binkowski et al. 2018.

    Raises:
        ValueError: there is no subset, or a subset has fewer than 2 rows.
    """
    size = min(subset_size, len(real), len(generated))
    if size < 2 or num_subsets < 1:
        raise ValueError(f"KID needs subsets of 2 rows or more, got {num_subsets} of {size}.")
    real, generated = real.double(), generated.double()
    drawn = [[generator.choice(len(side), size, replace=False) for side in (real, generated)] for _ in range(num_subsets)]
    rows = torch.from_numpy(numpy.array(drawn)).to(real.device)  # (subsets, 2, size)
    values = torch.stack([_mmd2(real[one], generated[other]) for one, other in rows])
    found = values.cpu().numpy()
    spread = numpy.std(found, ddof=1) if num_subsets > 1 else 0.0
    return KidEstimate(float(found.mean()), float(spread / numpy.sqrt(num_subsets)))


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    return torch.addmm(x.square().sum(1)[:, None] + y.square().sum(1), x, y.T, alpha=-2).clamp_(min=0)


def _radii(points: Tensor, k: int) -> Tensor:
    """Squared distance of each point to its k-th nearest other point, (N,); the nearest is the point itself."""
    return torch.cat([_squared_distances(block, points).kthvalue(k + 1, dim=1).values for block in points.split(BLOCK)])


def _share_covered(points: Tensor, centres: Tensor, radii: Tensor) -> Tensor:
    covered = [(_squared_distances(block, centres) <= radii).any(dim=1) for block in points.split(BLOCK)]
    return torch.cat(covered).double().mean()


def _mmd2(x: Tensor, y: Tensor) -> Tensor:
    """`kernel.polynomial_mmd2`."""
    k_xx, k_yy, k_xy = ((one @ other.T / x.shape[1] + 1) ** 3 for one, other in ((x, x), (y, y), (x, y)))
    within = sum((kernel.sum() - kernel.trace()) / (len(kernel) * (len(kernel) - 1)) for kernel in (k_xx, k_yy))
    return within - 2 * k_xy.mean()
