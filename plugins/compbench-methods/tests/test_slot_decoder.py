"""slot-decoder: its compositor against a plain one, what it refuses, and that each object is decoded by itself."""

from pathlib import Path

import pytest
import torch
from compbench_methods.slot_decoder import Settings, build, slots_of

from compbench.api.interfaces import Problem, TaskContext
from compbench.registry.registry import Registry
from compbench.system.errors import Refused


def problem(name: str, folder: Path) -> Problem:
    task = Registry().load("tasks", name)
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, folder, folder, task.source(folder, "embedded"), "smoke")
    return task.open(ctx).problem(task.budgets["smoke"])


def test_objects_are_told_by_the_first_word_of_their_factors(tmp_path: Path) -> None:
    assert slots_of(problem("two-sprites", tmp_path)) == ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))


@pytest.mark.parametrize("name", ["bump-center", "concept-space", "gmm-id"])
def test_a_task_without_objects_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="two or more objects"):
        build(Settings(), problem(name, tmp_path))


def test_a_picture_is_the_front_object_over_the_back_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    own = problem("two-sprites", tmp_path)
    net = build(Settings(), own)
    condition = own.space.uniform(4, torch.Generator().manual_seed(1))
    with torch.no_grad():
        decoded = [net.decoder(net.encoding(condition[:, columns])).sigmoid() for columns in (range(5), range(5, 10))]
        (front, a), (back, b) = ((part[:, :3], part[:, 3:]) for part in decoded)
        plain = a * front + (1 - a) * (b * back + (1 - b) * net.ground.sigmoid())
        torch.testing.assert_close(net(condition), 2 * plain - 1)


def test_where_the_back_object_changes_the_front_ones_layer_does_not(tmp_path: Path) -> None:
    torch.manual_seed(0)
    own = problem("two-sprites", tmp_path)
    net = build(Settings(), own)
    one, other = torch.tensor([[1, 1, 0, 0, 0, 2, 2, 0, 0, 0], [1, 1, 0, 0, 0, 3, 0, 2, 1, 3]])[:, None]
    assert torch.equal(net.encoding(one[:, :5]), net.encoding(other[:, :5]))
    assert not torch.equal(net(one), net(other))


def test_it_declares_that_it_needs_objects() -> None:
    registry = Registry()
    method = registry.load("methods", "slot-decoder")
    works = {name for name in registry.names("tasks") if not any(map(registry.load("tasks", name).lacks, method.needs))}
    assert works == {"two-sprites"}
