"""`info` answers in words: papers, tasks, best rows, budgets that differ, and what a score's name means."""

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record, score

from compbench.api.schemas import Plugin
from compbench.cli.info import EXPLAINED, best_rows, task_facts
from compbench.cli.main import main
from compbench.registry.registry import Registry
from compbench.store.records import Store
from compbench.system.errors import CompbenchError


@pytest.fixture
def info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # no checkout: records are those of the home
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: str) -> str:
        done = CliRunner().invoke(main, ["info", *words])
        assert done.exit_code == 0, done.output
        return done.output

    return call


def test_a_method_names_paper_file_and_tasks(info) -> None:
    facts = json.loads(info("factored", "--json"))
    assert facts["paper"].startswith("Compositional Flow Matching with Factored Velocity Fields (FVF), equation 1")
    assert "factored.py" in facts["file"]
    assert facts["runs on"].startswith("all ")
    assert "cmnist-not" in facts["runs on"]


def test_a_setting_says_what_values_it_takes(info) -> None:
    assert " (0 < number <= " in json.loads(info("factored", "--json"))["--set head_width"]


@pytest.mark.parametrize("name", ["planning-noniid", "rotation"])
def test_a_task_is_explained_where_its_data_needs_packages_that_are_not_here(name: str, info, monkeypatch) -> None:
    monkeypatch.setattr("compbench.registry.declared.is_installed", lambda package: True)  # by the metadata all is there

    def none_here(folder: Path, asked: str) -> None:
        raise CompbenchError("this data needs packages that are not installed")

    loaded = dataclasses.replace(Registry().load("tasks", name), source=none_here)
    facts = task_facts(loaded, Registry().entry("tasks", name))
    assert facts["data"].startswith("none here: this data needs")
    assert facts["ranked by"]


def test_every_figure_of_a_holdout_is_explained_to_people_and_bare_in_json(info) -> None:
    facts, text = json.loads(info("shapes3d-heavy", "--json")), " ".join(info("shapes3d-heavy").split())
    assert EXPLAINED.keys() <= facts.keys()
    assert "13/40 = 0.325: the least coverage that can determine every" in text
    assert "10 of 13: how many independent effects" in text
    assert facts["C_min"] == "13/40 = 0.325"


def test_a_method_names_those_tasks_alone_that_offer_what_it_needs(info) -> None:
    assert json.loads(info("equivariant-decoder", "--json"))["runs on"] == "bumps: bump-center bump-corner bump-scaling rotation"
    assert json.loads(info("fkc-oracle", "--json"))["runs on"].startswith("plane: gauss2d-fact-id")


def test_the_paper_of_a_family_of_methods_leaves_their_summaries_out(info) -> None:
    found = json.loads(info("fkc", "--json"))["paper"]
    assert found.startswith("Catastrophic Compositional Generation, section 3.2")
    assert "fkc-oracle" not in found


def test_a_method_names_its_best_row_from_the_records(info, tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    for seed in range(3):
        store.write(record(seed=seed))
    spec, score = record().spec, next(score for score in record().scores if score.primary)
    row = best_rows(spec.method, Registry())[spec.task]
    assert row.startswith(f"{score.name} ")
    assert f"({spec.preset}, 3 seeds)" in row


def test_the_row_of_a_method_is_that_of_the_board(info, tmp_path: Path) -> None:
    store, gpu = Store(tmp_path / "records"), "NVIDIA H200"
    ours = {"method": "mono", "more": {"plugin": Plugin(distribution="compbench-methods")}}
    for seed in range(3):
        store.write(record(score(value=0.5), seed=seed, device_class=gpu, **ours))
        store.write(record(score(value=0.9), seed=seed, settings={"head_width": 2.0}, **ours))
    store.write(record(score(value=0.8), seed=0, **ours))  # one seed ran elsewhere too: the device of most seeds counts
    assert best_rows("mono", Registry()) == {"shapes3d-heavy": "heldout_accuracy 0.5 (quick, 3 seeds)"}


def test_set_is_refused_beside_a_method(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["info", "mono", "--set", "head_width=2"], env={"COMPBENCH_HOME": str(tmp_path)})
    assert (done.exit_code, "only with the name of a task" in done.output) == (2, True)


def test_budgets_are_a_table_of_what_differs(info) -> None:
    lines = info("shapes3d-heavy").splitlines()
    head = next(line for line in lines if line.startswith("budget "))
    assert head.split() == ["budget", *[name for name in ("smoke", "quick", "standard", "paper") if name in head]]
    row = next(line.split() for line in lines if line.startswith("train_steps"))
    assert len(row) == len(head.split())
    assert len(set(row[1:])) > 1
    assert not any(line.startswith("gradient_clip") for line in lines)


def test_output_has_no_trailing_blanks_and_keeps_to_columns(info) -> None:
    lines = info("shapes3d-heavy").splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert max(map(len, lines)) <= 80


def test_identified_says_what_a_score_above_chance_would_mean(info) -> None:
    assert "A score above chance comes from" in json.loads(info("shapes3d-heavy", "--json"))["identified"]
    assert json.loads(info("shapes3d-light", "--json"))["identified"].startswith("yes")


def test_a_score_is_explained(info) -> None:
    facts = json.loads(info("heldout_accuracy", "--json"))
    assert facts["split"] == "heldout: combinations never trained on"
    assert facts["metric"].startswith("accuracy: share of samples")
    assert "shapes3d-heavy" in facts["ranks"]


def test_an_unknown_name_suggests_three_at_most(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["info", "shapes3d-hevy"], env={"COMPBENCH_HOME": str(tmp_path)})
    assert done.exit_code == 2
    assert "'shapes3d-heavy'" in done.output
    assert done.output.count("'") <= 2 * 4
    assert len(done.output) < 250
