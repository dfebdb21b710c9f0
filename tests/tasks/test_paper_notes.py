"""Every first-party task says what its `paper` preset follows, and what it had to choose."""

import pytest

from compbench.cli.info import task_facts
from compbench.registry.registry import Registry

REGISTRY = Registry()


@pytest.mark.parametrize("name", [entry.name for entry in REGISTRY.entries("tasks") if entry.distribution == "compbench"])
def test_info_says_what_the_paper_preset_follows_and_what_it_had_to_choose(name: str) -> None:
    task = REGISTRY.load("tasks", name)
    assert task.paper_notes, f"'{name}' has a `paper` preset and no paper_notes"
    words = {note.split()[0].rstrip(":,") for note in task.paper_notes}
    assert words & {"chosen", "changed"}
    facts = task_facts(task, REGISTRY.entry("tasks", name))
    assert [facts[f"--preset paper {index + 1}"] for index in range(len(task.paper_notes))] == list(task.paper_notes)
