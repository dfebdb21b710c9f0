"""Metrics of class shares, for tasks whose target is a mixture of classes with known shares.

total_variation  distance between the class shares that a judge finds in samples and the exact shares
class_share      share of samples that the judge assigns to a class that is frequent in the target
rare_share       share of samples that the judge assigns to a class that is rare in the target
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence


def total_variation(found: Sequence[float], exact: Sequence[float]) -> float:
    """Half the sum of |p_c - q_c|: 0 for equal shares, 1 for shares with no class in common.

    Args:
        found, exact: shares of the same classes, each summing to 1.
    """
    return sum(abs(one - other) for one, other in zip(found, exact, strict=True)) / 2


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    return (
        Metric("total_variation", "distance of the classes' shares from the exact ones", "", "lower", margin=0.02, kinds=()),
        Metric("class_share", "share of samples of a class", "", "higher", margin=0.02, kinds=()),
        Metric("rare_share", "share of samples of a class that is rare in the target", "", "lower", margin=0.02, kinds=()),
    )
