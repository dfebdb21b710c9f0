"""The verb, with sides whose answers are given: exit statuses, reports, baselines.  Real processes are in test_sides."""

import contextlib
import json
import math
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from compbench.cli.main import main
from compbench.gate import rows as table
from compbench.gate import sides, suite, turns, worktree

ROOT = Path(__file__).parents[2]
FACTS = {"parameters": 10, "evaluations": 4, "flops_per_fit": 5.0, "training_bytes": 9000, "samples_sha256": "a" * 64}
CELL = ["--method", "mono", "--task", "gmm-id"]


class World:
    """What base and head answer; a test changes it."""

    def __init__(self) -> None:
        self.facts = {"base": dict(FACTS), "head": dict(FACTS)}
        self.values = {"base": {0: 1.0, 1: 2.0}, "head": {0: 1.0, 1: 2.0}}
        self.data = ("embedded", "renderer-1")
        self.seconds = {"base": 1.0, "head": 1.0}
        self.code = {"base": "one", "head": "other"}
        self.races = 0
        self.unable: dict[str, str] = {}

    def ask(self, side, found):
        if side.label in self.unable:
            raise sides.Unable(self.unable[side.label])
        return found

    def facts_of(self, side):
        return sides.Unable(self.unable[side.label]) if side.label in self.unable else sides.Facts(self.facts[side.label], "here")

    def race(self):
        self.races += 1
        found = {label: sides.Unable(self.unable[label]) if label in self.unable else None for label in ("base", "head")}
        if any(found.values()):
            raise turns.Unraced(found)
        base, head = self.seconds["base"], self.seconds["head"]
        return turns.Pair({"sample": base}, {"sample": head}, {"sample": math.log(head / base)})


@pytest.fixture
def world(monkeypatch, tmp_path) -> World:
    own = World()

    def scores(side, cell, asked):
        values = own.values[side.label]
        found = sides.ScoreBySeed(metric="sw2", metric_version=1, direction="lower", values=values)
        return own.ask(side, sides.Scores({"heldout_sw2": found}, 1, *own.data))

    monkeypatch.setattr(sides, "facts", lambda side, cells, asked: [own.facts_of(side) for _ in cells])
    monkeypatch.setattr(sides, "scores", scores)
    monkeypatch.setattr(sides, "code", lambda side, cells: {"mono/gmm-id": own.code[side.label]})
    monkeypatch.setattr(turns, "run_pair", lambda racers, asked, begins="base": own.race())
    base = sides.Side("base", Path(sys.executable), tmp_path / "base")
    monkeypatch.setattr(worktree, "built", lambda ref, folder, data, plugins: contextlib.nullcontext(base))
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return own


def gate(*words: str, base: bool = True):
    more = ["--base-ref", "HEAD"] if base else []
    return CliRunner().invoke(main, ["gate", *more, *(words or CELL)])


def test_the_same_code_passes_with_0(world) -> None:
    result = gate()
    assert (result.exit_code, "pass: nothing got worse or slower" in result.output) == (0, True)


def test_the_same_code_is_not_raced_and_its_scores_are_computed_once(world) -> None:
    world.code["head"] = "one"
    world.seconds["head"] = 1.5  # a busy machine
    result = gate(*CELL, "--json")
    rows = {(row["gate"], row["what"]): row for row in json.loads(result.output)["rows"]}
    assert (result.exit_code, world.races) == (0, 0)
    assert "same hash" in rows["speed", ""]["note"]
    assert rows["scores", "heldout_sw2"]["base"] == rows["scores", "heldout_sw2"]["head"]


def test_a_cell_is_scored_while_another_is_and_each_row_has_its_own_scores(world, monkeypatch) -> None:
    together = threading.Barrier(2)
    plain = sides.scores

    def scores(side, cell, asked):
        together.wait(30)  # it would break if the cells came one after the other
        found = plain(side, cell, asked)
        values = {"mono": {0: 1.0}, "factored": {0: 7.0}}[cell.method]
        return found._replace(scores={"heldout_sw2": found.scores["heldout_sw2"].model_copy(update={"values": values})})

    monkeypatch.setattr(sides, "scores", scores)
    rows = json.loads(gate(*CELL, "--method", "factored", "--json").output)["rows"]
    assert {row["cell"]: row["head"] for row in rows if row["gate"] == "scores"} == {"mono/gmm-id": 1.0, "factored/gmm-id": 7.0}


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.facts["head"].update(samples_sha256="b" * 64),
        lambda world: world.code.update(base=""),
    ],
    ids=["facts differ", "another hash"],
)
def test_the_race_is_run_where_hash_or_facts_differ(world, change) -> None:
    world.code["head"] = "one"
    change(world)
    gate()
    assert world.races >= 3


def test_always_races_the_same_code_too(world) -> None:
    world.code["head"] = "one"
    assert (gate(*CELL, "--always").exit_code, world.races) == (0, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda world: world.facts["head"].update(evaluations=3), "fewer evaluations"),
        (lambda world: world.facts["head"].update(flops_per_fit=3.0), "was something left out"),
        (lambda world: (world.facts["head"].update(parameters=9), world.values["head"].update({0: 0.5, 1: 1.5})), "less work"),
        (lambda world: (world.facts["head"].update(flops_per_fit=6.0), world.seconds.update(head=0.8)), "faster with more"),
    ],
    ids=["evaluations", "flops", "score", "speed"],
)
def test_better_by_a_suspicious_amount_is_a_notice(world, change, said) -> None:
    change(world)
    rows = json.loads(gate(*CELL, "--json").output)["rows"]
    assert [row["verdict"] for row in rows if said in row["note"]] == ["notice"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda world: world.facts["head"].update(parameters=11), 1),
        (lambda world: world.facts["head"].update(samples_sha256="b" * 64), 0),
        (lambda world: world.values["head"].update({0: 3.0, 1: 4.001}), 1),
        (lambda world: world.values["head"].update({0: 3.0}), 3),
        (lambda world: world.seconds.update(head=1.2), 1),
        (lambda world: world.seconds.update(head=0.8), 0),
        (lambda world: world.unable.update(head="it crashed"), 1),
        (lambda world: world.unable.update(base="is new"), 4),
        (lambda world: world.unable.update(base="no", head="no"), 4),
    ],
    ids=["parameters", "samples", "scores", "unclear", "slower", "faster", "broken", "new", "both"],
)
def test_each_answer_has_its_exit_status(world, change, status) -> None:
    change(world)
    assert gate().exit_code == status


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "mono"], "--task"),
        ([*CELL, "--suite", "compbench-ci"], "names its own cases"),
        (["--suite", "gpu.toml", "--clock", "cpu"], "--clock wall"),
        (["--suite", "compbench-co"], "Did you mean 'compbench-ci'"),
        (["--suite", "none.toml"], "no such file"),
        (["--method", "monno", "--task", "gmm-id"], "Did you mean 'mono'"),
        (["--suite", "seeds.toml"], "seeds"),
        ([*CELL, "--plugin", "none.py"], "no such file"),
        ([*CELL, "--baseline", "none.json"], "--write-baseline makes one"),
    ],
)
def test_wrong_usage_is_one_line_and_2(world, words, said, tmp_path) -> None:
    cell = '[[cell]]\nmethod = "mono"\ntask = "gmm-id"\n'
    (tmp_path / "gpu.toml").write_text('device = "cuda"\n' + cell)
    (tmp_path / "seeds.toml").write_text(cell + 'seeds = "x"\n')
    result = gate(*words)
    assert (result.exit_code, said in result.output, result.output.count("\n")) == (2, True, 1)


def test_a_gate_without_a_base_says_which_there_are(world) -> None:
    result = gate(*CELL, base=False)
    assert (result.exit_code, "--base-ref" in result.output) == (2, True)


def test_a_regression_that_is_meant_passes_and_stays_in_the_table(world) -> None:
    world.facts["head"]["parameters"] = 11
    result = gate(*CELL, "--accept", "mono/* parameters", "--json")
    found = json.loads(result.output)
    assert (result.exit_code, found["answer"]) == (0, "pass")
    assert [row["verdict"] for row in found["rows"] if row["what"] == "parameters"] == ["accepted"]


def test_markdown_is_written_and_names_the_regression(world, tmp_path) -> None:
    world.seconds["head"] = 1.5
    assert gate(*CELL, "--markdown", "gate.md").exit_code == 1
    text = (tmp_path / "gate.md").read_text()
    assert text.startswith("### compbench gate: regression")
    assert "**regression**" in text


def test_a_table_that_cannot_be_written_is_printed(world, tmp_path) -> None:
    (tmp_path / "file").touch()
    done = gate(*CELL, "--markdown", str(tmp_path / "file" / "gate.md"))
    assert (done.exit_code, "could not write" in done.output, "pass: nothing got worse" in done.output) == (2, True, True)


def test_a_stored_baseline_gates_facts_and_scores_and_never_speed(world, tmp_path) -> None:
    assert gate(*CELL, "--write-baseline", "b.json", base=False).exit_code == 0
    first = (tmp_path / "b.json").read_bytes()
    assert gate(*CELL, "--baseline", "b.json", base=False).exit_code == 0
    world.seconds["head"] = 9.0
    assert gate(*CELL, "--baseline", "b.json", base=False).exit_code == 0
    world.facts["head"]["parameters"] = 11
    result = gate(*CELL, "--baseline", "b.json", "--write-baseline", "c.json", base=False)
    assert (result.exit_code, "baseline" in result.output) == (1, True)
    assert b'"parameters": 11' in (tmp_path / "c.json").read_bytes()
    assert (tmp_path / "b.json").read_bytes() == first


def test_a_stored_baseline_keeps_which_data_its_scores_are_of(world, tmp_path) -> None:
    gate(*CELL, "--write-baseline", "b.json", base=False)
    world.data, world.values["head"] = ("official", "f1"), {0: 9.0, 1: 9.001}
    result = gate(*CELL, "--baseline", "b.json", "--json", base=False)
    notes = [row["note"] for row in json.loads(result.output)["rows"] if row["gate"] == "scores"]
    assert (result.exit_code, notes) == (0, ["other data, not comparable (embedded renderer-1; here official f1)"])


def test_a_baseline_that_cannot_be_measured_is_not_written(world, tmp_path) -> None:
    world.unable["head"] = "it crashed"
    result = gate(*CELL, "--write-baseline", "b.json", base=False)
    assert (result.exit_code, "it crashed" in result.output) == (4, True)
    assert not (tmp_path / "b.json").exists()


def test_a_broken_baseline_is_one_line(world, tmp_path) -> None:
    for facts, said in (
        ("3", "cells.a.facts"),
        ('{"parameters": "many"}', "'parameters' must be a number from 0 to 1e+18, got 'many'"),
        ('{"flops_per_fit": -1}', "'flops_per_fit' must be a number"),
        ('{"samples_sha256": 7}', "'samples_sha256' must be text, got 7"),
        ("[" * 100_000, "is not JSON"),
    ):
        (tmp_path / "b.json").write_text('{"format": 1, "cells": {"a": {"facts": ' + facts + "}}}")
        result = gate(*CELL, "--baseline", "b.json", base=False)
        assert (result.exit_code, said in result.output, result.output.count("\n")) == (2, True, 1)


def test_a_baseline_without_a_hash_still_gates_the_costs(world, tmp_path) -> None:
    del world.facts["head"]["samples_sha256"]
    gate(*CELL, "--write-baseline", "b.json", base=False)
    world.facts["head"] |= {"samples_sha256": "a" * 64}
    result = gate(*CELL, "--baseline", "b.json", "--json", base=False)
    found = {row["what"]: row["verdict"] for row in json.loads(result.output)["rows"] if row["gate"] == "exact"}
    assert (result.exit_code, found["samples"], found["parameters"]) == (0, "notice", "pass")


def test_an_error_of_the_gate_itself_is_no_regression(world, monkeypatch) -> None:
    def fails(*rows: object) -> None:
        raise TypeError("planted")

    monkeypatch.setattr(table, "fact_rows", fails)
    result = gate()
    assert (result.exit_code, "the gate itself failed" in result.output) == (4, True)
    assert "TypeError: planted" in result.output


def test_the_shipped_suite_has_every_gate_and_only_what_is_installed() -> None:
    from compbench.registry.registry import Registry

    found, registry = suite.read("compbench-ci"), Registry()
    assert {gate for cell in found.cell for gate in cell.gates} == set(suite.GATES)
    for cell in found.cell:
        assert registry.entry("methods", cell.method).name == cell.method
        assert registry.entry("tasks", cell.task).name == cell.task


def test_the_shipped_suite_scores_a_trained_method_on_every_kind_of_event() -> None:
    from compbench.registry.registry import Registry

    registry = Registry()
    scored = [cell for cell in suite.read("compbench-ci").cell if "scores" in cell.gates]
    assert {registry.load("tasks", cell.task).event.kind for cell in scored} == {"vector", "image", "trajectory"}
    learned = [cell for cell in scored if not registry.load("methods", cell.method).oracle]
    assert min(cell.set["budget.train_steps"] for cell in learned) >= 300


def test_the_workflow_is_valid_and_calls_the_gate() -> None:
    import yaml

    found = yaml.safe_load((ROOT / ".github" / "workflows" / "compbench-gate.yml").read_text())
    (job,) = found["jobs"].values()
    (script,) = [step["run"] for step in job["steps"] if "compbench gate" in step.get("run", "")]
    options = {option for command in [main.commands["gate"]] for parameter in command.params for option in parameter.opts}
    asked = {word for word in script.split() if word.startswith("--") and "gate.md" not in word}
    assert {"--base-ref", "--markdown"} <= asked <= options
    assert "workflow_call" in found[True]  # YAML reads the key `on` as true
    assert "${{" not in script  # inputs come as variables, so that none of them is run as code


def test_the_stored_baseline_has_the_cells_of_the_shipped_suite() -> None:
    from compbench.gate import baseline

    stored = baseline.read(ROOT / "leaderboards" / "baselines" / "ci.json")
    for cell in suite.read("compbench-ci").cell:
        assert stored.facts(cell.name) is not None
        assert ("scores" in cell.gates) == (stored.scores(cell.name) is not None)
