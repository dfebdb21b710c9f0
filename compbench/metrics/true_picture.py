"""Closeness of samples to the one true picture of their combination, compared with all pictures of the factor grid."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class TruthScores(NamedTuple):
    """Scores of samples against the truth.

    Attributes:
        psnr: mean of 10 log10(255^2 / MSE) over samples, in dB; an exact sample counts as MSE 1/4, which rounding can cause.
        r2: 1 - sum |x - y|^2 / sum |y - mean y|^2; 0 is the mean picture of the requests, 1 is the truth.
        rank: mean rank of the true picture among all pictures by distance to the sample; 1 is the nearest.
        first: share of samples to which the true picture is the nearest.
        copied: share of samples to which, of all pictures, a trained one of another combination is the nearest, however far it
            is.  It is an upper bound of memorisation: a right sample counts, too, if its error leads it nearer to a trained one.
    """

    psnr: float
    r2: float
    rank: float
    first: float
    copied: float


def truth_scores(samples: Tensor, true: Tensor, pictures: Tensor, trained: Tensor) -> TruthScores:
    """Compare samples with a lattice of pictures.

    Args:
        samples: uint8 (N, C, H, W).
        true: row of each sample's true picture, (N,) long.
        pictures: all pictures, uint8 (M, C, H, W).
        trained: which pictures were trained on, bool (M,).
    """
    x, y = samples.flatten(1).double(), pictures.flatten(1).double()  # sums of whole numbers: exact
    squared = x.square().sum(1, keepdim=True) + y.square().sum(1) - 2 * x @ y.T  # (N, M)
    own = squared.gather(1, true[:, None])[:, 0]
    rank = 1 + (squared < own[:, None]).sum(1)
    wanted = y[true]
    spread = (wanted - wanted.mean(0)).square().sum()
    nearest = squared.argmin(1)
    error = (own / x.shape[1]).clamp(min=0.25)
    return TruthScores(
        psnr=(10 * (255**2 / error).log10()).mean().item(),
        r2=(1 - own.sum() / spread).item() if spread > 0 else 0.0,
        rank=rank.double().mean().item(),
        first=(rank == 1).float().mean().item(),
        copied=(trained[nearest] & (squared.amin(1) < own)).float().mean().item(),
    )
