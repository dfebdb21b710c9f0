"""`list` fits a terminal, groups tasks by family, and says what they would find here."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from compbench.cli.main import main
from compbench.registry.declared import data_here, missing_extra
from compbench.registry.registry import KINDS, Entry, Kind, Registry


def task(name: str) -> Entry:
    return Registry().entry("tasks", name)


def output(tmp_path: Path, *words: str, **env: str) -> str:
    done = CliRunner().invoke(main, list(words), env={"COMPBENCH_HOME": str(tmp_path), **env})
    assert done.exit_code == 0, done.output
    return done.output


def test_list_is_a_screenful_of_80_columns_with_every_name(tmp_path: Path) -> None:
    lines = output(tmp_path, "list", COLUMNS="80").splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 45
    words = set(" ".join(lines).replace(",", " ").split())
    assert {name for kind in KINDS for name in Registry().names(kind)} <= words


def test_a_kind_has_a_line_for_each_that_fits_80_columns(tmp_path: Path) -> None:
    lines = output(tmp_path, "list", "methods", COLUMNS="80").splitlines()
    assert max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "} == set(Registry().names("methods"))
    assert not any("shapes3d-heavy" in line for line in lines)


def test_a_word_lists_what_has_it_in_its_name_summary_or_family(tmp_path: Path) -> None:
    found = json.loads(output(tmp_path, "list", "planning", "--json"))
    assert [entry["name"] for entry in found["tasks"]] == ["planning-diagonal", "planning-iid", "planning-noniid"]
    assert "fkc" in output(tmp_path, "list", "PARTICLES")
    done = CliRunner().invoke(main, ["list", "shapes3d-hevy"], env={"COMPBENCH_HOME": str(tmp_path)})
    assert (done.exit_code, "Did you mean 'shapes3d-heavy'" in done.output) == (2, True)


@pytest.mark.parametrize("word", ["gauss2d-fact-id", "tasks", "sw2"])
def test_a_matrix_of_no_method_is_refused(word: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["list", word, "--matrix"], env={"COMPBENCH_HOME": str(tmp_path)})
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--matrix lists methods, and '{word}' names none" in done.stderr


def test_the_matrix_has_a_sign_a_family_and_reasons_for_a_method(tmp_path: Path) -> None:
    head, row, *why = output(tmp_path, "list", "low-rank", "--matrix").splitlines()
    signs = dict(zip(head.split()[1:], row.split()[1:], strict=True))
    assert row.split()[0] == "low-rank"
    assert (signs["bumps"], signs["plane"], signs["images"]) == ("+", "-", ".")
    assert re.search(r"not on [^:]*gmm-id", " ".join(why))


@pytest.mark.parametrize("kind", KINDS)
def test_every_summary_stands_alone(kind: Kind) -> None:
    leaning = re.compile(r"(the same|this|these|that|it|its|they|also|as above)\b", re.IGNORECASE)
    assert [entry.name for entry in Registry().entries(kind) if leaning.match(entry.summary)] == []


def test_tasks_stand_below_their_families(tmp_path: Path) -> None:
    lines = output(tmp_path, "list", "tasks").splitlines()
    order = [
        lines.index(f"  {name}") for name in ("images", "drawings", "plane", "rooms", "bumps", "silos", "radiographs", "planning")
    ]
    assert order == sorted(order)
    rotation = next(i for i, line in enumerate(lines) if line.startswith("    rotation"))
    assert order[4] < rotation < order[5]


def test_every_first_party_task_has_a_family(tmp_path: Path) -> None:
    tasks = json.loads(output(tmp_path, "list", "--json"))["tasks"]
    assert {task["family"] for task in tasks if task["distribution"] == "compbench"} == {
        "images", "drawings", "plane", "rooms", "bumps", "silos", "radiographs", "planning", "constraints"
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
    if data_here(entry, tmp_path) == "missing":
        return  # a font, without which the task says what to install
    if extra := missing_extra(entry, tmp_path):
        pytest.skip(f"{extra} is not installed")
    source = Registry().load("tasks", entry.name).source(tmp_path, "auto")
    assert (source.kind == "official") == (data_here(entry, tmp_path) == "official")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compbench.registry.declared.is_installed", lambda package: False)
    assert [missing_extra(task(name), tmp_path) for name in ("planning-iid", "gmm-id")] == ["compbench[planning]", ""]
    assert "pip install 'compbench[planning]'" in " ".join(output(tmp_path, "list", "tasks").split())


@pytest.mark.parametrize(("kind", "name"), [("metrics", "precision"), ("tasks", "bump-scaling")])
def test_a_summary_is_about_the_name_and_not_about_the_file(kind: str, name: str) -> None:
    summary = Registry().entry(kind, name).summary
    assert summary.startswith({"precision": "share of generated samples", "bump-scaling": "bumps: 25 % of the positions"}[name])
