"""Scores of vector samples: every registered metric against exact points, with its noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy

from compbench.api.interfaces import SamplePair, Score, TaskContext

if TYPE_CHECKING:
    from torch import Tensor

RANKS = "sw2"
"""The metric whose held-out score ranks, because a sampler that collapses cannot win it."""


class Compared(NamedTuple):
    """Generated points and two independent exact samples of the same distribution, (N, D) each."""

    real: Tensor
    generated: Tensor
    floor: Tensor


def vector_distances(split: str, compared: Sequence[Compared], ctx: TaskContext) -> list[Score]:
    """Each registered metric of vectors; value and floor are averaged over the split's distributions.

    Args:
        split: "heldout" or "seen".
        compared: points of each distribution of the split.
        ctx: gives the metrics and the seed that they draw from.
    """
    scores = []
    for metric in ctx.metrics.values():
        if metric.compute is None or "vector" not in metric.kinds:
            continue
        pairs = [SamplePair(one.real, one.generated, one.floor, _no_features) for one in compared]
        found = [metric.compute(pair, numpy.random.default_rng(ctx.seed)) for pair in pairs]
        floors = [value.floor for value in found if value.floor is not None]
        score = metric.score(
            split,
            sum(value.value for value in found) / len(found),
            n=sum(len(one.generated) for one in compared),
            floor=sum(floors) / len(floors) if floors else None,
            primary=split == "heldout" and metric.name == RANKS,
        )
        scores.append(score)
    return scores


def _no_features(extractor: str, which: str) -> numpy.ndarray:
    raise KeyError(extractor)
