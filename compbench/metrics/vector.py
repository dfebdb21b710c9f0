"""Metrics of vector tasks.

sw2         sliced Wasserstein distance, 2000 projections
mmd2        unbiased squared maximum mean discrepancy, bandwidth the median distance between the two compared sets
mmd2_fixed  unbiased squared MMD, bandwidth the median distance between two real sets: comparable between methods
mean_error  distance of the samples' mean from the target's
mode_share  share of the samples that lie within 3 standard deviations of the requested mode
covariance_error  Frobenius distance of the samples' covariance from the target's, relative to it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import EventKind, Metric, SamplePair, Value

if TYPE_CHECKING:
    import numpy

NUM_PROJECTIONS = 2000


def sw2(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Sliced Wasserstein distance; its floor is the value of another real sample.  Bonneel et al. 2015."""
    from compbench.metrics.transport import directions, sliced_wasserstein

    real, generated, floor = _arrays(pair)
    along = directions(real.shape[1], NUM_PROJECTIONS, generator)
    return Value(sliced_wasserstein(real, generated, along), sliced_wasserstein(real, floor, along))


def mmd2(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Unbiased MMD^2 as in Catastrophic Compositional Generation, appendix F: its bandwidth grows for bad samples."""
    from compbench.metrics import discrepancy

    real, generated, floor = _arrays(pair)
    return Value(*(discrepancy.mmd2(real, other, discrepancy.median_distance(real, other)) for other in (generated, floor)))


def mmd2_fixed(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Unbiased MMD^2 with a bandwidth that depends only on the target."""
    from compbench.metrics import discrepancy

    real, generated, floor = _arrays(pair)
    bandwidth = discrepancy.median_distance(real, floor)
    return Value(discrepancy.mmd2(real, generated, bandwidth), discrepancy.mmd2(real, floor, bandwidth))


def _arrays(pair: SamplePair) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    real, generated, floor = (part.flatten(1).double().cpu().numpy() for part in (pair.real, pair.generated, pair.floor))
    return real, generated, floor


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    kinds: tuple[EventKind, ...] = ("vector",)
    return (
        Metric("sw2", "sliced Wasserstein distance", "", "lower", margin=0.02, kinds=kinds, compute=sw2),
        Metric("mmd2", "squared MMD, bandwidth of the pair", "", "lower", margin=0.002, kinds=kinds, compute=mmd2),
        Metric("mmd2_fixed", "squared MMD, bandwidth of the target", "", "lower", margin=0.002, kinds=kinds, compute=mmd2_fixed),
        Metric("mode_share", "share of samples in the requested mode", "", "higher", margin=0.05, kinds=kinds),
        Metric("mean_error", "distance of the mean from the target's", "", "lower", margin=0.02, kinds=kinds),
        Metric("covariance_error", "relative distance of the covariance", "", "lower", margin=0.02, kinds=kinds),
    )
