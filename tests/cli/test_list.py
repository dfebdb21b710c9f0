"""`list` fits a terminal, groups tasks by family, and says what they would find here."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from compbench.cli.main import main
from compbench.registry.declared import data_here, missing_extra
from compbench.registry.registry import Entry, Registry


def task(name: str) -> Entry:
    return Registry().entry("tasks", name)


def output(tmp_path: Path, *words: str, **env: str) -> str:
    done = CliRunner().invoke(main, list(words), env={"COMPBENCH_HOME": str(tmp_path), **env})
    assert done.exit_code == 0, done.output
    return done.output


def test_list_fits_80_columns(tmp_path: Path) -> None:
    assert max(map(len, output(tmp_path, "list", COLUMNS="80").splitlines())) <= 80


def test_tasks_stand_below_their_families(tmp_path: Path) -> None:
    lines = output(tmp_path, "list").splitlines()
    order = [lines.index(f"  {name}") for name in ("images", "plane", "rooms", "bumps", "silos", "radiographs", "planning")]
    assert order == sorted(order)
    rotation = next(i for i, line in enumerate(lines) if line.startswith("    rotation"))
    assert order[3] < rotation < order[4]


def test_every_first_party_task_has_a_family(tmp_path: Path) -> None:
    tasks = json.loads(output(tmp_path, "list", "--json"))["tasks"]
    assert {task["family"] for task in tasks if task["distribution"] == "compbench"} == {
        "images", "plane", "rooms", "bumps", "silos", "radiographs", "planning"
    }  # fmt: skip


def test_a_task_says_whether_its_official_file_is_here(tmp_path: Path) -> None:
    assert data_here(task("shapes3d-heavy"), tmp_path) == "embedded"
    (tmp_path / "3dshapes.h5").write_bytes(b"")
    assert data_here(task("shapes3d-heavy"), tmp_path) == "official"
    assert data_here(task("mpi3d-heavy"), tmp_path) == "embedded"
    assert data_here(task("gmm-id"), tmp_path) == "exact"


@pytest.mark.parametrize("entry", [entry for entry in Registry().entries("tasks") if entry.distribution == "compbench"])
def test_without_official_files_no_task_calls_its_data_official(entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    source = Registry().load("tasks", entry.name).source(tmp_path, "auto")
    assert (source.kind == "official") == (data_here(entry, tmp_path) == "official")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compbench.registry.declared.is_installed", lambda package: False)
    assert [missing_extra(task(name), tmp_path) for name in ("planning-iid", "gmm-id")] == ["compbench[planning]", ""]
    assert "pip install 'compbench[planning]'" in " ".join(output(tmp_path, "list").split())


@pytest.mark.parametrize(("kind", "name"), [("metrics", "precision"), ("tasks", "bump-scaling")])
def test_a_summary_is_about_the_name_and_not_about_the_file(kind: str, name: str) -> None:
    summary = Registry().entry(kind, name).summary
    assert summary.startswith({"precision": "share of generated samples", "bump-scaling": "25 % of the positions"}[name])
