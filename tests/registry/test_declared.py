"""A stranger's task joins a family, is ranked there, and says what it needs, all without an import of its file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.sample_records import record, score

from compbench.board import scale
from compbench.board.aggregate import aggregate
from compbench.board.families import contests, installed_families
from compbench.registry.declared import Declared, by_family, data_here, declared, missing_extra
from compbench.registry.registry import Entry, Registry
from compbench.registry.resolve import check_extra
from compbench.system.errors import CompbenchError

CODE = '''"""Two tasks.

tiles-one  a first one
tiles-two  a second one
"""
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Task

FACTS = dict(space=None, holdout=None, event=None, budgets={}, source=None, open=None, primary="heldout_accuracy")


def make(kind):
    return Task(name=f"tiles-{kind}", family=FAMILY, core=kind == "two", files=("tiles.npz",), extra="sim", summary="", **FACTS)


@hookimpl
def compbench_tasks():
    return make("one"), make("two")
'''
METADATA = (
    'Metadata-Version: 2.1\nName: tiles\nVersion: 1\nProvides-Extra: sim\nRequires-Dist: no-such-thing>=1; extra == "sim"\n'
)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def installed(family: str, name: str) -> Registry:
        described = tmp_path / "tiles-1.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(METADATA)
        (described / "entry_points.txt").write_text(f"[compbench.tasks]\ntiles-one = {name}\ntiles-two = {name}\n")
        (tmp_path / f"{name}.py").write_text(CODE.replace("FAMILY", family))
        monkeypatch.syspath_prepend(tmp_path)
        return Registry()

    return installed


def test_a_strangers_task_joins_a_family_without_being_imported(install) -> None:
    registry = install('"images"', "tiles_of_images")
    assert {"tiles-one", "tiles-two"} < {entry.name for entry in by_family(registry.entries("tasks"))["images"]}
    assert "tiles-two" in installed_families(registry)["images"]
    assert "tiles-one" not in installed_families(registry)["images"]
    assert "tiles_of_images" not in sys.modules


def test_what_is_read_is_what_the_loaded_task_says(install) -> None:
    registry = install('"tiles"', "tiles_of_tiles")
    for entry in registry.entries("tasks"):
        task = registry.load("tasks", entry.name)
        assert declared(entry) == Declared(task.family, task.core, task.files, task.extra, task.extra_for), entry.name


def test_a_strangers_task_is_ranked_in_its_family(install, monkeypatch: pytest.MonkeyPatch) -> None:
    install('"tiles"', "tiles_of_ranks")
    known = {"score": "heldout_accuracy", "metric_version": None, "zero": 0.025, "real": None, "many_pictures": False}
    monkeypatch.setattr(scale, "scales", lambda: {"tiles-two": known})
    made = [
        record(score(value=value + seed / 100, ceiling=1.0), method=method, task="tiles-two", seed=seed)
        for method, value in (("factored", 0.8), ("mono", 0.4))
        for seed in range(3)
    ]
    (contest,) = contests(aggregate(made))
    assert [(family.name, family.standings["factored", ""].rank.rank) for family in contest.families] == [("tiles", 1)]


def test_a_family_of_no_core_task_is_ranked_over_all_of_its_tasks(install, tmp_path: Path) -> None:
    registry = install('"tiles"', "tiles_of_none")
    file = tmp_path / "tiles_of_none.py"
    file.write_text(file.read_text().replace('core=kind == "two", ', ""))
    assert installed_families(registry)["tiles"] == ("tiles-one", "tiles-two")
    assert list(by_family(registry.entries("tasks")))[-1] == "tiles"


def test_a_strangers_missing_extra_is_named_with_its_distribution_before_a_run(install, tmp_path: Path) -> None:
    entry = install('"tiles"', "tiles_of_needs").entry("tasks", "tiles-one")
    assert (data_here(entry, tmp_path), missing_extra(entry, tmp_path)) == ("embedded", "tiles[sim]")
    with pytest.raises(CompbenchError, match=r"'tiles-one' needs packages that are not installed: pip install 'tiles\[sim\]'"):
        check_extra(entry, tmp_path, "auto")


def test_an_extra_for_embedded_data_is_not_needed_with_the_official_files(install, tmp_path: Path) -> None:
    registry = install('"tiles"', "tiles_of_files")
    file = tmp_path / "tiles_of_files.py"
    file.write_text(file.read_text().replace('extra="sim"', 'extra="sim", extra_for="embedded"'))
    entry = registry.entry("tasks", "tiles-one")
    assert [missing_extra(entry, tmp_path, asked) for asked in ("auto", "embedded", "official")] == ["tiles[sim]"] * 2 + [""]
    (tmp_path / "tiles.npz").write_bytes(b"")
    assert [missing_extra(entry, tmp_path, asked) for asked in ("auto", "embedded")] == ["", "tiles[sim]"]


@pytest.mark.parametrize("family", ["family_of()", "UNKNOWN", "3", "kind.upper()"])
def test_what_cannot_be_read_puts_a_task_among_the_others(install, family: str) -> None:
    registry = install(family, "tiles_of_nothing")
    assert declared(registry.entry("tasks", "tiles-one")) == Declared()
    assert by_family(registry.entries("tasks"))["others"][0].name == "tiles-one"


@pytest.mark.parametrize("entry", [entry for entry in Registry().entries("tasks") if entry.distribution == "compbench"])
def test_our_tasks_say_what_is_read_in_their_files(entry: Entry) -> None:
    task = Registry().load("tasks", entry.name)
    assert declared(entry) == Declared(task.family, task.core, task.files, task.extra, task.extra_for)
    if task.configure is not None:
        again = task.configure(task.settings)
        assert replace(task, family=again.family, core=again.core) == task
