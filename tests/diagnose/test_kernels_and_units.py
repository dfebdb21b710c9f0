"""Kernels and units against outputs and activations of which the answer is known."""

import torch

from compbench.diagnose.activations import distances, most_varying, overlaps, tuning


def test_overlap_is_one_of_the_same_image_and_none_of_images_apart() -> None:
    images = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    expected = torch.tensor([[1, 0, 1 / 3, 1 / 2], [0, 1, 1 / 2, 0], [1 / 3, 1 / 2, 1, 0.5 / 2.5], [1 / 2, 0, 0.5 / 2.5, 1]])
    torch.testing.assert_close(overlaps(images), expected)


def test_black_images_overlap_each_other_alone() -> None:
    assert overlaps(torch.tensor([[0.0, 0.0], [-0.1, 0.0], [0.0, 1.0]])).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_distances_are_euclidean() -> None:
    torch.testing.assert_close(distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]])), torch.tensor([[0.0, 5.0], [5.0, 0.0]]))


def test_the_units_that_vary_most_come_first_one_a_channel() -> None:
    x, y = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")
    weak, strong = 0.1 * x, 5 * y
    channels = torch.stack([torch.stack([weak, torch.zeros(3, 4)], -1), torch.stack([x * 0 + 7, strong], -1)], 2)  # (X, Y, C, R)
    maps = most_varying(channels.flatten(0, 1), (3, 4), 5)
    assert torch.equal(maps, torch.stack([strong, weak]))
    to_x, to_y = tuning(maps)
    torch.testing.assert_close(to_y[0], 5 * torch.arange(4.0))
    torch.testing.assert_close(to_x[1], 0.1 * torch.arange(3.0))


def test_plain_units_are_their_own_channels() -> None:
    activations = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 4.0]])
    assert most_varying(activations, (2, 2), 1).tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
