"""Metrics of image tasks.

accuracy   share of samples in which the judge finds the requested factors
fid        Frechet distance in Inception features, with clean-fid's network and resize
fd_judge   Frechet distance in the full-data judge's features
kid        kernel distance in the full-data judge's features
precision  share of generated samples near real ones, in the full-data judge's features
recall     share of real samples near generated ones, in the full-data judge's features
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Metric, SamplePair, Value
from compbench.system.devices import on_gpu

if TYPE_CHECKING:
    import numpy
    from torch import Tensor

    from compbench.metrics.manifold import PrecisionRecall

KID_SUBSETS, KID_SIZE = 20, 1000


def _frechet(pair: SamplePair, extractor: str) -> Value:
    from compbench.metrics.frechet import frechet_distance, gaussian_statistics

    real, generated, floor = (gaussian_statistics(pair.features(extractor, which)) for which in ("real", "generated", "floor"))
    return Value(frechet_distance(real, generated), frechet_distance(real, floor))


def fid(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """FID.  Heusel et al. 2017; features of Parmar et al. 2022.  Raises MetricUnavailable without weights or packages."""
    return _frechet(pair, "inception")


def fd_judge(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Frechet distance in the features of the judge that was trained on all real images."""
    return _frechet(pair, "judge")


def kid(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Unbiased kernel distance of features, scaled so that real features have unit mean square.  Binkowski et al. 2018.

    Version 1 did not scale the features, so its values depend on the judge and are mostly noise.
    """
    from compbench.metrics.kernel import kid as kernel_distance

    real = pair.features("judge", "real")
    scale = float((real**2).mean()) ** 0.5  # a judge's features have any scale, and the kernel is cubic
    if on_gpu(pair.real.device):
        from compbench.metrics import device_distances

        return Value(
            *(
                device_distances.kid(
                    _on_device(pair, "real") / scale,
                    _on_device(pair, which) / scale,
                    num_subsets=KID_SUBSETS,
                    subset_size=KID_SIZE,
                    generator=generator,
                ).mean
                for which in ("generated", "floor")
            )
        )
    return Value(
        *(
            kernel_distance(
                real / scale,
                pair.features("judge", which) / scale,
                num_subsets=KID_SUBSETS,
                subset_size=KID_SIZE,
                generator=generator,
            ).mean
            for which in ("generated", "floor")
        )
    )


def precision(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Improved precision, k = 3; its floor is the value of a real sample.  Kynkaanniemi et al. 2019."""
    return Value(*(_near(pair, which).precision for which in ("generated", "floor")))


def recall(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Improved recall, k = 3; its floor is the value of a real sample.  Kynkaanniemi et al. 2019."""
    return Value(*(_near(pair, which).recall for which in ("generated", "floor")))


def _near(pair: SamplePair, which: str) -> PrecisionRecall:
    from compbench.metrics.manifold import precision_recall

    if on_gpu(pair.real.device):
        from compbench.metrics import device_distances

        return device_distances.precision_recall(_on_device(pair, "real"), _on_device(pair, which))
    return precision_recall(pair.features("judge", "real"), pair.features("judge", which))


def _on_device(pair: SamplePair, which: str) -> Tensor:
    """The judge's features, on the device of the real images."""
    import torch

    return torch.from_numpy(pair.features("judge", which)).to(pair.real.device)


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    return (
        Metric("accuracy", "share of samples that show what was requested", "", "higher", margin=0.02),
        Metric("fid", "Frechet distance in Inception features", "", "lower", margin=0.5, compute=fid, features=("inception",)),
        Metric(
            "fd_judge", "Frechet distance in the judge's features", "", "lower", margin=1.0, compute=fd_judge, features=("judge",)
        ),
        Metric(
            "kid",
            "kernel distance in the judge's features",
            "",
            "lower",
            version=2,
            margin=0.01,
            compute=kid,
            features=("judge",),
        ),
        Metric(
            "precision",
            "share of generated samples near real ones",
            "",
            "higher",
            margin=0.03,
            compute=precision,
            features=("judge",),
        ),
        Metric(
            "recall", "share of real samples near generated ones", "", "higher", margin=0.03, compute=recall, features=("judge",)
        ),
    )
