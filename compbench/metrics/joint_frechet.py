"""A distance that depends on the requested condition: the Frechet distance of pictures and conditions together.

fjd_imagenet  Frechet distance of pictures and conditions together, in EfficientNet-Lite0's features
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Metric, SamplePair, Value
from compbench.metrics.frechet import frechet_distance, gaussian_statistics
from compbench.metrics.imagenet import EXTRACTOR
from compbench.system.errors import MetricUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETS = ("real", "generated", "floor")


def one_hot(conditions: numpy.ndarray, sizes: tuple[int, ...]) -> NDArray[numpy.float64]:
    """Conditions (N, F) as zeros and ones, (N, sum of sizes): a one for each factor's value."""
    return numpy.concatenate([numpy.eye(size)[conditions[:, factor]] for factor, size in enumerate(sizes)], axis=1)


def joint_frechet_distance(features: dict[str, numpy.ndarray], conditions: dict[str, numpy.ndarray]) -> Value:
    """Frechet distance between Gaussians of (f, a e), and its floor.

        f features (N, D);  e one-hot conditions (N, E);  a = mean |f| / mean |e| over the real pairs

    If both sets have the same conditions, the distance measures differences of the features, and of the covariance of features
    and conditions, which wrong pairs lack.  DeVries et al. 2019, section 3.

    Args:
        features: features of "real", "generated" and "floor".
        conditions: their full conditions, each (N, F) of whole numbers from 0.

    Returns:
        distances from the real pairs: of the generated pairs, and of the second real set; in squared units of features.
    """
    sizes = tuple(int(size) for size in numpy.concatenate([conditions[which] for which in SETS]).max(axis=0) + 1)
    codes = {which: one_hot(conditions[which], sizes) for which in SETS}
    scale = numpy.linalg.norm(features["real"], axis=1).mean() / numpy.linalg.norm(codes["real"], axis=1).mean()
    pairs = {which: gaussian_statistics(numpy.concatenate([features[which], scale * codes[which]], axis=1)) for which in SETS}
    return Value(*(frechet_distance(pairs["real"], pairs[which]) for which in ("generated", "floor")))


def fjd_imagenet(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Frechet joint distance of pooled features and conditions.  DeVries et al. 2019, Tan & Le 2019."""
    if not pair.conditions:
        raise MetricUnavailable("the task does not say which condition each picture has")
    conditions = {which: pair.conditions[which].cpu().numpy() for which in SETS}
    return joint_frechet_distance({which: pair.features(EXTRACTOR, which) for which in SETS}, conditions)


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    return (
        Metric(
            "fjd_imagenet",
            "Frechet distance of pictures and conditions together, in EfficientNet-Lite0's features",
            "",
            "lower",
            margin=1.0,
            by_name=True,
            joint=True,
            compute=fjd_imagenet,
            features=(EXTRACTOR,),
        ),
    )
