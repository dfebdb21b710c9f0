"""The accuracy of a judge, factor by factor, and the real rooms that it is asked about."""

from types import SimpleNamespace

import torch
from judge_accuracy import accuracies, real_images

from compbench.registry.registry import Registry


def test_each_factor_has_its_own_accuracy() -> None:
    truth = torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]])
    judge = SimpleNamespace(predict=lambda images: torch.tensor([[0, 1], [1, 0], [0, 1], [1, 0]]))
    assert accuracies(judge, torch.zeros(4, 3, 8, 8), truth) == [1.0, 0.5]


def test_a_room_is_asked_for_by_its_objects_and_never_from_training_pictures() -> None:
    task = Registry().load("tasks", "rooms-fc-id")
    pictures = SimpleNamespace(reference=lambda classes, generator: classes)
    classes, truth = real_images(task, SimpleNamespace(pictures=pictures), 50)
    assert torch.equal(classes, truth[:, 0] + 2 * truth[:, 1])
    assert set(classes.tolist()) == {0, 1, 2, 3}
