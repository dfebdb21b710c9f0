"""Distances of pictures in the features of a fixed network: comparable between machines, devices and papers.

fd_imagenet         Frechet distance in EfficientNet-Lite0's features
kid_imagenet        kernel distance in EfficientNet-Lite0's features
precision_imagenet  share of generated samples near real ones, in EfficientNet-Lite0's features
recall_imagenet     share of real samples near generated ones, in EfficientNet-Lite0's features
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Metric, SamplePair, Value

if TYPE_CHECKING:
    import numpy

    from compbench.metrics.manifold import PrecisionRecall

EXTRACTOR = "imagenet"
"""Name of the extractor that these metrics request from `SamplePair.features`."""
KID_SUBSETS, KID_SIZE = 20, 1000


def fd_imagenet(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Frechet distance of pooled features; not FID, which uses Inception's features.  Heusel et al. 2017, Tan & Le 2019."""
    from compbench.metrics.frechet import frechet_distance, gaussian_statistics

    real, generated, floor = (gaussian_statistics(pair.features(EXTRACTOR, which)) for which in ("real", "generated", "floor"))
    return Value(frechet_distance(real, generated), frechet_distance(real, floor))


def kid_imagenet(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Unbiased kernel distance of features, scaled so that real features have unit mean square.  Binkowski et al. 2018."""
    from compbench.metrics.kernel import kid

    real = pair.features(EXTRACTOR, "real")
    scale = float((real**2).mean()) ** 0.5
    return Value(
        *(
            kid(
                real / scale,
                pair.features(EXTRACTOR, which) / scale,
                num_subsets=KID_SUBSETS if len(real) > KID_SIZE else 1,  # otherwise each subset is the whole
                subset_size=KID_SIZE,
                generator=generator,
            ).mean
            for which in ("generated", "floor")
        )
    )


def precision_imagenet(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Improved precision of distinct pictures, k = 3; its floor is the value of a real sample.  Kynkaanniemi et al. 2019."""
    return Value(*(_near(pair, which).precision for which in ("generated", "floor")))


def recall_imagenet(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Improved recall of distinct pictures, k = 3; its floor is the value of a real sample.  Kynkaanniemi et al. 2019."""
    return Value(*(_near(pair, which).recall for which in ("generated", "floor")))


def _near(pair: SamplePair, which: str) -> PrecisionRecall:
    from compbench.metrics.manifold import precision_recall

    return precision_recall(_distinct(pair.features(EXTRACTOR, "real")), _distinct(pair.features(EXTRACTOR, which)))


def _distinct(features: numpy.ndarray) -> numpy.ndarray:
    """Each row once, because a row that stands there k + 1 times is its own k-th neighbour, at distance 0; all if few differ."""
    import numpy

    unique = numpy.unique(features, axis=0)
    return unique if len(unique) > 3 else features


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    return (
        Metric(
            "fd_imagenet",
            "Frechet distance in EfficientNet-Lite0's features",
            "",
            "lower",
            margin=1.0,
            by_name=True,
            compute=fd_imagenet,
            features=(EXTRACTOR,),
        ),
        Metric(
            "kid_imagenet",
            "kernel distance in EfficientNet-Lite0's features",
            "",
            "lower",
            margin=0.01,
            by_name=True,
            compute=kid_imagenet,
            features=(EXTRACTOR,),
        ),
        Metric(
            "precision_imagenet",
            "share of generated samples near real ones",
            "",
            "higher",
            margin=0.03,
            by_name=True,
            compute=precision_imagenet,
            version=2,
            features=(EXTRACTOR,),
        ),
        Metric(
            "recall_imagenet",
            "share of real samples near generated ones",
            "",
            "higher",
            margin=0.03,
            by_name=True,
            compute=recall_imagenet,
            version=2,
            features=(EXTRACTOR,),
        ),
    )
