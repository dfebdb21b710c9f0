"""NOT in a composition against Gaussians, of which every composition is a Gaussian with a known mean."""

import torch
from torch import Tensor

from compbench.api.factors import NULL, excluding
from compbench.flow.compose import around_null, compose
from compbench.flow.signed_slices import SignedSlices

NULL_MEAN = torch.tensor([0.5, -1.0])
MEANS = [torch.tensor([[1.0, 2.0], [-2.0, 0.0]]), torch.tensor([[0.0, 3.0], [4.0, -1.0], [1.0, 1.0]])]
"""Means of p(x | value of a factor alone); all laws have the variance 0.3."""
VARIANCE = 0.3


def towards(mean: Tensor, x: Tensor, t: Tensor) -> Tensor:
    """E[x1 - x0 | x_t = x] for x1 ~ N(mean, 0.3) and x0 ~ N(0, 1) on x_t = t x1 + (1 - t) x0."""
    t = t[:, None]
    total = t**2 * VARIANCE + (1 - t) ** 2
    return mean + (t * VARIANCE - (1 - t)) / total * (x - t * mean)


def exact(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
    mean = NULL_MEAN.expand(len(x), 2).clone()
    for k, known in enumerate(MEANS):
        told = condition[:, k] != NULL
        mean[told] = known[condition[told, k]]
    return towards(mean, x, t)


def points(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 2, generator=generator), torch.rand(count, generator=generator)


def test_a_value_and_not_another_is_the_gaussian_of_the_signed_means() -> None:
    condition = torch.tensor([[1, excluding(2)], [excluding(0), 1], [excluding(1), excluding(0)]])
    x, t = points(3)
    found = SignedSlices.of(condition, (2.0, 1.5), 0.7).velocity(exact, x, t)
    signed = [
        2.0 * (MEANS[0][1] - NULL_MEAN) - 0.7 * (MEANS[1][2] - NULL_MEAN),
        -0.7 * (MEANS[0][0] - NULL_MEAN) + 1.5 * (MEANS[1][1] - NULL_MEAN),
        -0.7 * (MEANS[0][1] - NULL_MEAN) - 0.7 * (MEANS[1][0] - NULL_MEAN),
    ]
    torch.testing.assert_close(found, towards(NULL_MEAN + torch.stack(signed), x, t))


def test_without_exclusions_it_is_the_composition_around_null() -> None:
    condition = torch.tensor([[0, 2], [1, NULL], [NULL, NULL]])
    x, t = points(3)
    expected = compose(exact, x, t, around_null(condition, (3.0, 1.0)))
    torch.testing.assert_close(SignedSlices.of(condition, (3.0, 1.0), 5.0).velocity(exact, x, t), expected)


def test_a_weight_of_zero_leaves_an_excluded_factor_open() -> None:
    x, t = points(1)
    excluded = SignedSlices.of(torch.tensor([[1, excluding(0)]]), (1.0, 1.0), 0.0).velocity(exact, x, t)
    torch.testing.assert_close(excluded, exact(x, t, torch.tensor([[1, NULL]])))
