"""Distances next to accuracies: what is read from records, and that equal pictures are at the floor and blurred ones are not."""

from __future__ import annotations

import blind_accuracies
import pytest
import torch
from blind_accuracies import Measured, Pictures, relative, table
from support.sample_records import record, score
from torch.nn import functional

from compbench.registry.registry import Registry


def test_a_score_is_a_multiple_of_that_of_real_data_and_unknown_without_it() -> None:
    found = record(score("heldout_recall", 0.3, floor=0.6), score("heldout_fd_judge", 4.0))
    assert relative(found, "heldout_recall") == pytest.approx(0.5)
    assert str(relative(found, "heldout_fd_judge")) == str(relative(found, "heldout_kid")) == "nan"


def test_the_table_has_means_and_the_most_accurate_method_first() -> None:
    found = table(
        {
            "mono": [Measured(0.1, 0.8, 2.0, 3.0, 30.0), Measured(0.3, 0.9, 3.0, 4.0, 40.0)],
            "decoder": [Measured(0.5, 0.0, 8, 13, 150)],
        }
    )
    assert found.splitlines()[2:] == [
        "| `decoder` | 0.50 | 0.00 | 8.0 | 13.0 | 150.0 |",
        "| `mono` | 0.20 | 0.85 | 2.5 | 3.5 | 35.0 |",
    ]


def test_real_pictures_are_near_the_floor_and_means_of_three_far_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pixels:
        def __init__(self, device: torch.device) -> None: ...

        def __call__(self, images: torch.Tensor) -> torch.Tensor:
            return functional.avg_pool2d(images.float() / 255, 16).flatten(1)

    monkeypatch.setattr(blind_accuracies, "ImageNetFeatures", Pixels)
    pictures = Pictures("cmnist-diagonal", Registry(), 300)
    real = pictures.real[torch.randperm(300, generator=torch.Generator().manual_seed(0))]
    means = (real.float() + real.roll(1, 0).float() + real.roll(2, 0).float()).div(3).to(torch.uint8)
    near, far = pictures.distances(real), pictures.distances(means)
    for name in ("fwd", "fd_imagenet"):
        assert near[name] < 0.1
        assert far[name] > 2
