"""Each picture of our own tasks has words; a stranger's has none that could be wrong."""

from __future__ import annotations

import pytest
from support.sample_records import record

from compbench.registry.registry import Registry
from compbench.store.captions import MODES, OWN, PAIRS, caption

TASKS = [entry.name for entry in Registry().entries("tasks") if entry.distribution == OWN]


def test_every_task_of_ours_says_what_its_picture_shows() -> None:
    assert TASKS
    assert [name for name in TASKS if not caption(record(task=name))] == []


@pytest.mark.parametrize(("task", "words"), [("shapes3d-heavy", PAIRS), ("blobs-iid", MODES), ("cmnist-noniid", PAIRS)])
def test_the_words_are_those_of_the_picture(task: str, words: str) -> None:
    assert caption(record(task=task)) == words


def test_pictures_are_known_by_their_names_and_those_of_other_packages_are_not() -> None:
    one = record(task="bump-center")
    assert caption(one, f"{one.name}.samples.png") == caption(one)
    assert caption(one, f"{one.name}.landscape.png").startswith("error at each position")
    assert caption(one, f"{one.name}.heldout-12.png") == caption(one, "heldout-1.png") != ""
    assert caption(one, "film-500.png").startswith("one held-out combination")
    assert caption(one, "other.png") == ""
    assert caption(record(task="not-ours")) == ""
