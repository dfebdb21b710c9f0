"""Distances in EfficientNet-Lite0's features: what does not depend on the network."""

import numpy
import torch

from compbench.api.interfaces import SamplePair
from compbench.metrics.imagenet import kid_imagenet, precision_imagenet, recall_imagenet
from compbench.metrics.kernel import polynomial_mmd2

GENERATOR = numpy.random.default_rng(0)


def pair(**features: numpy.ndarray) -> SamplePair:
    nothing = torch.zeros(1)
    return SamplePair(nothing, nothing, nothing, lambda extractor, which: features[which])


def test_pictures_that_occur_often_do_not_shrink_the_neighbourhoods_of_real_ones() -> None:
    """Real pictures on a circle, each four times, and samples at a hundredth of their distances from them."""
    angle = numpy.linspace(0, 2 * numpy.pi, 40, endpoint=False)
    real = numpy.stack([numpy.cos(angle), numpy.sin(angle)], 1).repeat(4, 0)
    near = real[::4] * 1.001
    found = pair(real=real, generated=near, floor=real)
    assert precision_imagenet(found, GENERATOR) == (1.0, 1.0)
    assert recall_imagenet(found, GENERATOR) == (1.0, 1.0)
    constant = pair(real=real, generated=real[:1].repeat(160, 0), floor=real)
    assert recall_imagenet(constant, GENERATOR).value == 1 / 40


def test_the_kernel_distance_of_few_pictures_is_that_of_all_of_them() -> None:
    rows = numpy.random.default_rng(1)
    real, generated = rows.normal(size=(200, 8)), rows.normal(0.3, 1, size=(200, 8))
    scale = (real**2).mean() ** 0.5
    found = kid_imagenet(pair(real=real, generated=generated, floor=real), GENERATOR)
    assert abs(found.value - polynomial_mmd2(real / scale, generated / scale)) < 1e-12
