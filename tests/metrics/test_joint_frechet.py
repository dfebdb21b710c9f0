"""The joint Frechet distance on Gaussians of known form: it sees wrong pairs that a marginal distance cannot see."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

from compbench.api.interfaces import SamplePair
from compbench.metrics.frechet import frechet_distance, gaussian_statistics
from compbench.metrics.imagenet import fd_imagenet
from compbench.metrics.joint_frechet import fjd_imagenet, joint_frechet_distance, one_hot
from compbench.system.errors import MetricUnavailable

N = 40_000


def closed_form(slope: float, spread: float, scale: float) -> float:
    """tr S + tr T - 2 tr (S T)^1/2 of (x, e0, e1), x = +-slope/2 + noise by the condition, against x with shuffled conditions.

    The condition's two entries vary as one number of variance v = 2 (scale/2)^2 along (1, -1) / sqrt 2, so the covariances are
    2 x 2: S = ((slope^2/4 + spread^2, r), (r, v)) and T = S without r.
    """
    a, v = slope**2 / 4 + spread**2, 2 * (scale / 2) ** 2
    r = slope / 2 * math.sqrt(v)
    trace, determinant = a**2 + v**2, (a * v - r**2) * a * v  # of S T
    return 2 * (a + v) - 2 * math.sqrt(trace + 2 * math.sqrt(determinant))


@pytest.fixture(scope="module")
def pairs() -> tuple[dict[str, numpy.ndarray], dict[str, numpy.ndarray]]:
    """Features (N, 1) that are 3 or 5 by the condition, with noise; the generated ones have the conditions of others."""
    rng = numpy.random.default_rng(0)
    features, conditions = {}, {}
    for which in ("real", "generated", "floor"):
        conditions[which] = rng.permutation(numpy.arange(N) % 2)[:, None]
        asked = rng.permutation(conditions[which]) if which == "generated" else conditions[which]
        features[which] = 4 + (2 * asked - 1) + 0.5 * rng.normal(size=(N, 1))
    return features, conditions


def test_wrong_pairs_have_the_closed_form_jointly_and_nothing_marginally(pairs) -> None:
    features, conditions = pairs
    marginal = frechet_distance(gaussian_statistics(features["real"]), gaussian_statistics(features["generated"]))
    assert marginal < 1e-3
    scale = numpy.abs(features["real"]).mean()  # a one-hot code of one factor has length 1
    found = joint_frechet_distance(features, conditions)
    assert found.value == pytest.approx(closed_form(2.0, 0.5, scale), rel=0.02)
    assert found.value > 0.5
    assert found.floor == pytest.approx(0, abs=2e-3)


def test_right_pairs_are_as_far_as_their_features(pairs) -> None:
    """With the same conditions, and features that are shifted alike under each, the joint distance is the marginal one."""
    features, conditions = pairs
    shifted = {**features, "generated": features["real"] + 0.7}
    same = {**conditions, "generated": conditions["real"]}
    assert joint_frechet_distance(shifted, same).value == pytest.approx(0.7**2, rel=1e-9)


def test_one_hot_codes_have_a_place_for_each_value_of_each_factor() -> None:
    found = one_hot(numpy.array([[0, 2], [1, 0]]), (2, 3))
    assert found.tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]


def test_a_task_that_does_not_say_the_conditions_gets_no_joint_distance(pairs) -> None:
    features, conditions = pairs
    nothing = torch.zeros(1)
    rng = numpy.random.default_rng(0)
    plain = SamplePair(nothing, nothing, nothing, lambda extractor, which: features[which])
    with pytest.raises(MetricUnavailable, match="which condition"):
        fjd_imagenet(plain, rng)
    told = plain._replace(conditions={which: torch.from_numpy(own) for which, own in conditions.items()})
    assert fjd_imagenet(told, rng) == joint_frechet_distance(features, conditions)
    assert fd_imagenet(told, rng).value < 1e-3
