"""`show` says what was run and where, beside what came of it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from support.sample_records import record, score

from compbench.api.schemas import LossCurve, Plugin, Profile, Stage
from compbench.cli.curves import lines, sparkline
from compbench.cli.main import main
from compbench.cli.show import latency
from compbench.registry.checkout import registry_of
from compbench.registry.defaults import literal_defaults
from compbench.registry.registry import Registry
from compbench.store.records import Store
from compbench.system.errors import CompbenchError


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *words: CliRunner().invoke(main, ["show", *words])


def test_a_record_says_what_was_changed_where_and_how_far_it_is_vouched_for(show, tmp_path: Path) -> None:
    one = record()
    spec = one.spec.model_copy(update={"budget_changed": ("train_steps",)})
    one = one.model_copy(update={"spec": spec, "identity": spec.identity, "started": "2026-03-04T05:06:07+00:00"})
    one = one.model_copy(update={"profile": one.profile.model_copy(update={"distrust": "the clocks disagree"})})
    Store(tmp_path / "records").write(one)
    output = show(spec.identity[:12]).output
    assert f"budget.train_steps={spec.budget.train_steps}" in output
    assert "2026-03-04 05:06 UTC" in output
    assert f"{one.environment.threads} of {one.environment.cores} threads" in output
    assert "level    self-reported" in output
    assert "settings hidden=64" in output
    assert f"method {spec.method_version}, task {spec.task_version}" in output
    assert "doubted  speeds: the clocks disagree" in output


def test_a_run_that_ended_before_its_threads_were_known_names_none(show, tmp_path: Path) -> None:
    one = record(status="failed")
    environment = one.environment.model_copy(update={"threads": 0, "cores": 2})
    Store(tmp_path / "records").write(one.model_copy(update={"environment": environment}))
    (line,) = (line for line in show(one.name).output.splitlines() if line.startswith("where"))
    assert "2 cores" in line
    assert "0 of" not in line


@pytest.mark.parametrize(
    ("given", "said"),
    [(("hidden",), "changed  hidden=64"), ((), "changed  no setting"), (None, "changed  not known")],
)
def test_a_record_of_a_method_that_is_not_here_says_what_was_changed_by_the_names_that_were_given(
    show, tmp_path: Path, given: tuple[str, ...] | None, said: str
) -> None:
    one = record(method="strange", more={"given": given})
    Store(tmp_path / "records").write(one)
    assert said in show(one.identity[:12]).output


def test_real_data_have_one_column_whether_of_a_judge_or_of_two_real_samples(show, tmp_path: Path) -> None:
    scores = (
        score("heldout_accuracy", 0.5, ceiling=0.75),
        score("heldout_fd_judge", 300.0, floor=25.0),
        score("heldout_superposition", 0.5, floor=0.125, ceiling=0.875),
    )
    one = record(*scores)
    Store(tmp_path / "records").write(one)
    text = show(one.identity[:12]).output
    rows = [line.split() for line in text.splitlines() if line.startswith("heldout_")]
    assert [row[1:3] for row in rows] == [["0.5", "0.75"], ["300", "25"], ["0.5", "0.125"]]


def test_lines_have_no_trailing_blanks(show, tmp_path: Path) -> None:
    Store(tmp_path / "records").write(record())
    lines = show(record().identity[:12]).output.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_resumed_run_says_whose_seconds_it_has(show, tmp_path: Path) -> None:
    whole, resumed = record(), record(seed=1, more={"resumed": True})
    for one in (whole, resumed):
        Store(tmp_path / "records").write(one)
    assert "resumed  " not in show(whole.identity[:12]).output
    assert "resumed  the run continued from a checkpoint: seconds and counts belong to" in show(resumed.identity[:12]).output


def test_stages_and_what_lies_between_them_make_the_runs_seconds(show, tmp_path: Path) -> None:
    stages = (Stage(name="prepare", seconds=30.0, cpu_seconds=50.0), Stage(name="fit", seconds=60.0, cpu_seconds=110.5))
    one = record(more={"profile": Profile(stages=stages), "seconds": 97.5})
    Store(tmp_path / "records").write(one)
    rows = [line.split() for line in show(one.identity[:12]).output.splitlines()]
    first = rows.index(["stage", "wall", "s", "CPU", "s"])
    assert rows[first + 1 : first + 5] == [
        ["prepare", "30.0", "50.0"],
        ["fit", "60.0", "110.5"],
        ["between", "7.5", "-", "processes", "that", "start,", "and", "messages"],
        ["in", "all", "97.5"],
    ]


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(None, "?"), (12.34, "12.3 ms"), (999.4, "999 ms"), (999.6, "1 s"), (7.97e4, "79.7 s"), (2.4e6, "2400 s")],
)
def test_a_latency_of_a_second_or_more_is_not_in_milliseconds(milliseconds: float | None, said: str) -> None:
    assert latency(milliseconds) == said


def test_what_ranks_and_what_has_no_value_stand_below_the_scores(show, tmp_path: Path) -> None:
    one = record()
    [first, *rest] = one.scores
    reason = "no Inception weights: bring a file that is not here by a command that is longer than a terminal's line is wide"
    gone = [
        first.model_copy(update={"name": name, "primary": False, "value": None, "reason": reason}) for name in ("a_fid", "b_fid")
    ]
    scored = first.model_copy(update={"reason": "one execution failed"})
    one = one.model_copy(update={"scores": (scored, *rest, *gone)})
    Store(tmp_path / "records").write(one)
    output = show(one.identity[:12]).output
    assert f"noted    {first.name}: one execution failed\n" in output
    assert f"missing  a_fid, b_fid: {reason}\n" in output
    assert output.count(reason) == 1
    assert f"ranked   by {next(score.name for score in one.scores if score.primary)}\n" in output


COUNTS = {
    "optimiser_steps": 1000.0,
    "granted_steps": 1000.0,
    "examples": 64000.0,
    "granted_examples": 80384.0,
    "reported_steps": 1000.0,
    "early_steps": 0.0,
    "early_examples": 0.0,
    "beyond_budget": 0.0,
    "evaluations": 39.96,
}


def test_what_was_counted_is_one_line_and_the_rest_is_for_who_asks(show, tmp_path: Path) -> None:
    notes = {f"counted {name}": value for name, value in COUNTS.items()} | {"fit shared": 1.0}
    Store(tmp_path / "records").write(one := record(more={"notes": notes}))
    short, long = (show(one.identity[:12], *words).output for words in ((), ("--verbose",)))
    words = "1,000 optimiser steps (budget 1,000), 64,000 examples drawn (budget 80,384), "
    words += "operations of 39.96 evaluations a sample (40 declared)"
    assert f"counted  {words}\n" in short
    assert "noted    by the method: fit shared 1\n" in short
    assert "early_steps" not in short
    assert {line.strip() for line in long.splitlines()} >= {f"{name} {value:g}" for name, value in COUNTS.items()}


def test_a_loss_curve_is_one_line_and_of_many_four_are_shown(show, tmp_path: Path) -> None:
    facts = {"steps": (50, 100, 120), "loss": (8.0, 4.0, 1.0), "examples_per_second": (10.0, 2000.0, 3000.0)}
    many = tuple(LossCurve(name=f"fit.{k}", **facts) for k in range(6))
    Store(tmp_path / "records").write(one := record(more={"losses": many}))
    short, long = (show(one.identity[:12], *words).output for words in ((), ("--verbose",)))
    line = "loss     fit.0: █▆▁ 8 at step 50, 1 at step 120; 2000 examples/s\n"
    assert line in short
    assert "loss     and 2 more (--verbose)\n" in short
    assert "fit.4" not in short
    assert "fit.5" in long


def test_a_loss_that_did_not_come_back_is_said(show, tmp_path: Path) -> None:
    up = LossCurve(name="fit", steps=(50, 100, 150), loss=(8.0, 1.0, 6.0), examples_per_second=(1.0, 1.0, 1.0))
    Store(tmp_path / "records").write(one := record(more={"losses": (up,)}))
    said = " ".join(show(one.identity[:12]).output.split())
    assert "unstable the loss of fit rose 6-fold by step 150 and did not recover; a lower learning rate may help" in said


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([2**k for k in range(8)], "▁▂▃▄▅▆▇█"),
        (list(range(8)), "▁▂▃▄▅▆▇█"),
        ([2.0, 2.0], "▁▁"),
        ([0, 0, 8, 8], "▁█"),
        ([7.0], "▁"),
    ],
)
def test_a_sparkline_goes_from_the_lowest_to_the_highest(values, bars: str) -> None:
    assert sparkline(values, width=2 if len(values) == 4 else 8) == bars


def test_a_terminal_without_bars_gets_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = LossCurve(name="fit", steps=(50, 100), loss=(8.0, 4.5), examples_per_second=(10.0, 20.0))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert list(lines([curve])) == ["fit: 8 at step 50, 4.5 at step 100; 15 examples/s"]


def test_an_ambiguous_name_lists_its_matches(show, tmp_path: Path) -> None:
    names = [Store(tmp_path / "records").write(record(seed=seed)).stem for seed in range(12)]
    found = show(record().spec.task)
    assert found.exit_code == 2
    assert sum(name in found.output for name in names) == 10
    assert "and 2 more" in found.output


def test_a_whole_name_is_the_one_record_of_that_name_and_the_folder_is_not_listed(
    show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in (1, 10, 11):
        Store(tmp_path / "records").write(record(attempt=attempt))
    monkeypatch.setattr(Store, "names", lambda store: pytest.fail("listed"))
    for name in (record().name, f"{record().name}.json"):
        assert f"record   {tmp_path / 'records' / record().name}.json" in show(name).output
        assert Store(tmp_path / "records").find(name).stem == record().name


def test_no_records_are_said_to_be_none(show) -> None:
    found = show()
    assert found.exit_code == 0
    assert "there are no records in" in found.output


@pytest.mark.parametrize("name", ["factored", "fkc", "dcfm-a", "low-rank", "slice-cfg"])
def test_literal_defaults_are_those_of_the_settings(name: str) -> None:
    registry = Registry()
    defaults = json.loads(registry.load("methods", name).settings().model_dump_json())
    known = literal_defaults(registry.entry("methods", name).file)
    assert {key for key, value in defaults.items() if value not in known.get(key, [])} == set()


@pytest.mark.parametrize("verb", sorted(main.commands.keys() - {"board", "doctor"}))
def test_help_has_an_example(verb: str) -> None:
    assert f"compbench {verb}" in CliRunner().invoke(main, [verb, "--help"]).output.split("Options")[0].partition("\n")[2]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script_that_asks_the_command_line(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_COMPBENCH_COMPLETE" in done.output


def test_the_command_line_completes_its_verbs() -> None:
    env = {**os.environ, "_COMPBENCH_COMPLETE": "zsh_complete", "COMP_WORDS": "compbench sw", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "compbench.cli.start"], env=env, capture_output=True, text=True)
    assert "sweep" in done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("compbench run --method fact", "factored"),
        ("compbench sweep --method mono,fact", "mono,factored"),
        ("compbench run --task shapes3d-h", "shapes3d-heavy"),
        ("compbench info gmm", "gmm-id"),
        ("compbench run --method factored --task shapes3d-heavy --set head", "head_width="),
        ("compbench run --method factored --task shapes3d-heavy --set task.cov", "task.coverage="),
        ("compbench run --method fkc --set num_p", "num_particles="),
        ("compbench show shapes3d", "RECORD"),
    ],
)
def test_the_command_line_completes_names_and_settings(words: str, expected: str, show, tmp_path: Path) -> None:
    name = Store(tmp_path / "records").write(record()).stem
    *before, last = words.split()[1:]
    found = [item.value for item in ShellComplete(main, {}, "compbench", "").get_completions(before, last)]
    assert expected.replace("RECORD", name) in found


def test_of_a_method_from_a_file_is_known_what_was_changed_where_the_file_is(show, tmp_path: Path) -> None:
    file = tmp_path / "tiny_idea.py"
    file.write_text("class Settings:\n    hidden: int = 64\n")
    plugin = Plugin(distribution="tiny_idea.py", version="file", module="tiny_idea.py")
    one = record(method="tiny-idea", settings={"hidden": 64}, more={"plugin": plugin})
    Store(tmp_path / "records").write(one)
    assert "changed  not known: the method's defaults are not here" in show(one.identity[:12]).output
    assert "--plugin tiny_idea.py" in " ".join(show(one.identity[:12]).output.split())
    assert "changed  no setting: the method's defaults" in show(one.identity[:12], "--plugin", str(file)).output


def test_the_plugin_of_a_record_is_named_where_it_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "tiny_idea.py"
    file.write_text("")
    one = record(method="tiny-idea", more={"plugin": Plugin(distribution="tiny_idea.py", version="file", module="tiny_idea.py")})
    with pytest.raises(CompbenchError, match=r"it came from the file tiny_idea.py; name the file with --plugin"):
        registry_of(one)
    assert "tiny-idea" in registry_of(one, [file]).names("methods")
