"""Scores that several evaluations share: counts of correct samples by cell, and distances of vectors to exact points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy

from compbench.api.interfaces import CellCount, Metric, SamplePair, Score, TaskContext
from compbench.system.errors import MetricUnavailable

if TYPE_CHECKING:  # annotations of a class count as code, so a move keeps how they are imported
    from torch import Tensor

RANKS = "sw2"
"""The metric whose held-out score ranks, because a sampler that collapses cannot win it."""


def count_cells(cells: Tensor, right: Tensor) -> tuple[CellCount, ...]:
    """Number of correct samples and of all samples for each cell, in the order of cells.

    Args:
        cells: each sample's values of the holdout's factors, (N, P) long.
        right: which samples are correct, (N,) bool.
    """
    keys = [tuple(row) for row in cells.tolist()]
    found = Counter(key for key, good in zip(keys, right.tolist(), strict=True) if good)
    return tuple(CellCount(cell, found[cell], number) for cell, number in sorted(Counter(keys).items()))


def distance(metric: Metric, split: str, pair: SamplePair, ctx: TaskContext) -> Score:
    """A metric's value and noise floor; if it is unavailable, the reason in place of a value."""
    assert metric.compute is not None
    try:
        found = metric.compute(pair, numpy.random.default_rng(ctx.seed))
    except MetricUnavailable as error:
        return metric.score(split, None, n=len(pair.generated), reason=str(error)[:500])
    return metric.score(split, found.value, n=len(pair.generated), floor=found.floor)


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
