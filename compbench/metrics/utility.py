"""Metrics of the usefulness of generated samples.

utility  macro-averaged exact-match recall, on real data, of a classifier trained only on generated samples

    R(A) = |{pred = 1_A} and {true = 1_A}| / |{true = 1_A}|,   U = mean over the label sets A
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Metric

if TYPE_CHECKING:
    from torch import Tensor


def compositional_recall(predicted: Tensor, truth: Tensor) -> float:
    """U: the share of rows whose labels are all predicted right, averaged over the label sets of the truth.

    Args:
        predicted, truth: labels, (N, F) long.

    Returns:
        U in [0, 1].  DCFM, equation 17.
    """
    import torch

    _, group = truth.unique(dim=0, return_inverse=True)
    right = (predicted == truth).all(1).double()
    count = torch.bincount(group)
    return (torch.bincount(group, weights=right) / count).mean().item()


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    return (Metric("utility", "exact-match recall of a classifier trained on samples", "", "higher", margin=0.02, kinds=()),)
