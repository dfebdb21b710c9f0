"""Studies: a toy whose best setting is known, resuming, and what a settings file does to a run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from compbench.api.schemas import RunRequest
from compbench.cli.main import main
from compbench.sweep import tuning
from compbench.sweep.tuning import REFUSED, TOO_LARGE, Progress, Start, read_settings, tune
from compbench.system.errors import CompbenchError, Refused, Unwritable

METHOD = '''"""level: one grey level everywhere, whatever is asked."""

import torch
from pydantic import Field

from compbench import Method, MethodSettings, hookimpl


class Settings(MethodSettings):
    level: float = Field(0.9, gt=0, le=1, description="distance of the level from black")
    noise: bool = Field(False, description="add noise of another picture's size")


def fit(settings, problem, ctx):
    if settings.level > 0.95:
        raise ValueError("too bright")
    problem.federation.pooled().batch(4, ctx.generator)
    return None


def sample(settings, model, request, ctx):
    return settings.noise * torch.randn(request.x0.shape, generator=ctx.generator) + 2 * settings.level - 1 + 0 * request.x0


@hookimpl
def compbench_methods():
    return (Method(name="level", settings=Settings, fit=fit, sample=sample, ignores_condition=True),)
'''


@pytest.fixture
def level(tmp_path: Path) -> Path:
    file = tmp_path / "level.py"
    file.write_text(METHOD)
    return file


def request(home: Path, file: Path, **more: object) -> RunRequest:
    known = {"task": "bump-center", "method": "level", "preset": "smoke", "device": "cpu", "home": str(home)}
    return RunRequest.of(**known, plugins=(str(file),), threads=1, **more)


def test_the_best_level_is_found_without_the_tasks_own_holdout_and_a_study_goes_on(tmp_path: Path, level: Path) -> None:
    seen: list[Progress] = []
    asked = request(tmp_path / "home", level)
    space = ["level=0.05:0.95", "noise=false"]
    first, path = tune(asked, space, trials=2, seeds=1, listener=seen.append)
    found, same = tune(asked, space, trials=5, seeds=1, listener=seen.append)
    assert path == same
    assert [progress.done for progress in seen] == [1, 2, 3, 4, 5]
    assert found.tuning.trials == 5
    assert found.tuning.default_value == seen[0].value
    assert found.tuning.num_cells > 0
    assert found.tuning.value <= first.tuning.value <= seen[0].value
    assert found.tuning.value < 0.8 * seen[0].value  # the background is darker than the default
    assert found.settings["noise"] is False
    assert 0.05 <= found.settings["level"] < 0.9
    assert not (tmp_path / "home" / "records").exists()
    assert read_settings(path, "level") == found


WIDE = '''"""wide: a network whose size is a setting; the larger one cannot be fitted."""

import torch
from pydantic import Field

from compbench import Method, MethodSettings, hookimpl


class Settings(MethodSettings):
    width: int = Field(8, ge=1, le=100, description="width of the network")


def build(settings, problem):
    return torch.nn.Linear(settings.width, settings.width)


def fit(settings, problem, ctx):
    if settings.width > 8:
        raise ValueError("this was to be left out")
    problem.federation.pooled().batch(4, ctx.generator)
    return build(settings, problem)


def sample(settings, model, request, ctx):
    return torch.zeros_like(request.x0)


@hookimpl
def compbench_methods():
    return (Method(name="wide", settings=Settings, fit=fit, build=build, sample=sample, ignores_condition=True),)
'''


def test_settings_of_a_larger_network_are_not_run_and_others_take_their_place(tmp_path: Path) -> None:
    file = tmp_path / "wide.py"
    file.write_text(WIDE)
    seen: list[Progress] = []
    asked = request(tmp_path / "home", file).model_copy(update={"method": "wide"})
    found, path = tune(asked, ["width=7,8,90"], trials=4, seeds=1, listener=seen.append)
    cost = found.tuning
    assert (cost.trials, cost.pruned, cost.failed, len(seen)) == (4, 0, 0, 4)
    assert found.settings["width"] in (7, 8)
    assert TOO_LARGE in (path.parent / "study.journal").read_text()  # it was proposed


WORDY = (
    METHOD.replace("from pydantic import Field", "from typing import Annotated, Literal\n\nfrom pydantic import Field")
    .replace(
        'level: float = Field(0.9, gt=0, le=1, description="distance of the level from black")',
        'level: Annotated[float, Field(gt=0, le=1)] | Literal["light"] = Field("light", description="distance from black")\n'
        "    free: float = Field(0.0, ge=0, description='not used')",
    )
    .replace(
        "def fit(settings, problem, ctx):\n    if settings.level > 0.95:\n",
        "def fit(settings, problem, ctx):\n    if ctx is None:\n",
    )
    .replace("2 * settings.level", "2 * (0.9 if settings.level == 'light' else settings.level)")
)


def test_a_word_is_the_first_trial_and_numbers_are_tried_too(tmp_path: Path, level: Path) -> None:
    level.write_text(WORDY)
    begun: list[Start] = []
    seen: list[Progress] = []
    asked = request(tmp_path / "home", level)
    found, path = tune(asked, ["noise=false"], trials=8, seeds=1, begun=begun.append, listener=seen.append)
    assert found.tuning.default_value == seen[0].value
    assert found.tuning.value < seen[0].value
    assert isinstance(found.settings["level"], float)
    (start,) = begun
    assert (start.name, start.done, set(start.space)) == (path.parent.name, 0, {"level", "noise"})
    assert start.left == {"free": "its default is 0 and its bounds give no scale"}


def test_the_command_says_first_what_is_searched_and_what_is_not_and_why(
    tmp_path: Path, level: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level.write_text(WORDY)
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    words = ["tune", "level", "--task", "bump-center", "--preset", "smoke", "--plugin", str(level), "--device", "cpu"]
    words += ["--threads", "1", "--trials", "1"]
    study, *lines = CliRunner().invoke(main, words, catch_exceptions=False).stderr.splitlines()
    assert study.startswith("study    bump-center.level.smoke.")
    assert study.endswith(", 0 of 1 trials done")
    assert lines[:3] == [
        "search   level: light or 0 to 1",
        "search   noise: false or true",
        "keep     free: its default is 0 and its bounds give no scale",
    ]
    assert lines[3].startswith("trial 1 of 1: ")
    assert CliRunner().invoke(main, [*words, "--quiet"], catch_exceptions=False).stderr == ""


def test_the_printed_command_runs_the_settings_as_it_stands(tmp_path: Path, level: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "my höme"))
    words = ["tune", "level", "--task", "bump-center", "--preset", "smoke", "--plugin", str(level), "--device", "cpu"]
    done = CliRunner().invoke(main, [*words, "--threads", "1", "--trials", "1", "--quiet"], catch_exceptions=False)
    program, *command = shlex.split(done.stdout.splitlines()[-1])
    assert program == "compbench"
    found = CliRunner().invoke(main, [*command, "--dry-run", "--device", "cpu"], catch_exceptions=False)
    assert (found.exit_code, "none yet" in found.stdout) == (0, True), found.output


def test_a_pair_that_cannot_work_is_refused_before_a_study_begins(tmp_path: Path) -> None:
    asked = RunRequest.of(task="gauss2d-fact-id", method="dcfm-a", preset="smoke", home=str(tmp_path))
    with pytest.raises(Refused, match="the task has one silo, .*; `compbench info dcfm-a` says where it works"):
        tune(asked, [], trials=4, seeds=1)
    assert not list(tmp_path.iterdir())


def test_a_study_that_cannot_be_written_is_one_line(tmp_path: Path, level: Path) -> None:
    (tmp_path / "studies").touch()  # a file where the folder should be
    with pytest.raises(Unwritable, match="could not write .*studies"):
        tune(request(tmp_path, level), [], trials=1, seeds=1)


def test_a_journal_that_was_cut_goes_on_and_one_that_is_damaged_is_one_line(tmp_path: Path, level: Path) -> None:
    asked, space = request(tmp_path, level), ["level=0.1:0.95", "noise=false"]
    _, path = tune(asked, space, trials=2, seeds=1)
    journal = path.parent / "study.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-20])  # as a full disk leaves it
    for trials in (2, 3):
        found, _ = tune(asked, space, trials=trials, seeds=1)
        assert (found.tuning.trials, found.tuning.failed) == (trials, 0)
    journal.write_bytes(b"{\n" + whole)
    with pytest.raises(CompbenchError, match="study.journal is damaged .*; move it away"):
        tune(asked, space, trials=2, seeds=1)


def test_ctrl_c_ends_the_study_and_no_trial_counts_for_it(tmp_path: Path, level: Path) -> None:
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    stopped = METHOD.replace("    if settings.level", f"    if settings.noise:\n        {stop}\n    if settings.level")
    level.write_text(stopped)
    asked = request(tmp_path / "home", level)
    tune(asked, ["level=0.1,0.2", "noise=false,true"], trials=1, seeds=1)  # the defaults, without noise
    seen: list[Progress] = []
    with pytest.raises(KeyboardInterrupt):
        tune(asked, ["level=0.1,0.2", "noise=false,true"], trials=40, seeds=1, listener=seen.append)
    assert not any("killed" in progress.why for progress in seen)
    level.write_text(METHOD)  # other code, another study


def test_a_study_that_is_stopped_in_its_first_trial_tries_the_defaults_when_it_goes_on(
    tmp_path: Path, level: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, space = request(tmp_path / "home", level), ["level=0.1:0.95", "noise=false"]
    plain = tuning.run

    def stopped(*args: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        tune(asked, space, trials=2, seeds=1)
    monkeypatch.setattr(tuning, "run", plain)
    found, _ = tune(asked, space, trials=2, seeds=1)
    assert (found.tuning.trials, found.tuning.failed) == (2, 0)
    assert found.tuning.default_value is not None
    assert found.tuning.cpu_seconds > 0


def test_without_the_defaults_in_the_space_no_trial_is_called_theirs(tmp_path: Path, level: Path) -> None:
    found, _ = tune(request(tmp_path, level), ["level=0.1:0.2", "noise=false"], trials=1, seeds=1)
    assert found.tuning.default_value is None


def test_a_name_in_set_and_search_is_refused(tmp_path: Path, level: Path) -> None:
    asked = request(tmp_path, level, overrides={"level": 0.3})
    with pytest.raises(CompbenchError, match="leave one out"):
        tune(asked, ["level=0.1:0.2"], trials=1, seeds=1)


def test_trials_have_the_users_official_data(tmp_path: Path, level: Path) -> None:
    (tmp_path / "home" / "data").mkdir(parents=True)
    _, path = tune(request(tmp_path / "home", level), ["level=0.1,0.2", "noise=false"], trials=1, seeds=1)
    assert (path.parent / "data").resolve() == (tmp_path / "home" / "data").resolve()


def test_a_trial_that_fails_is_counted_and_a_study_of_failures_says_why(tmp_path: Path, level: Path) -> None:
    seen: list[Progress] = []
    with pytest.raises(CompbenchError, match="none of 2 trials .* ended well: .*too bright"):
        tune(request(tmp_path, level), ["level=0.96:1.0", "noise=false"], trials=2, seeds=1, listener=seen.append)
    assert [progress.value for progress in seen] == [None, None]


PAIRED = METHOD.replace("import Field", "import Field, model_validator").replace(
    "\n\ndef fit(",
    """
    @model_validator(mode="after")
    def _light_or_noisy(self):
        if self.level > 0.5 and self.noise:
            raise ValueError("a light level has no noise")
        return self


def fit(""",
    1,
)


def test_settings_that_the_method_refuses_are_not_run_and_others_take_their_place(tmp_path: Path, level: Path) -> None:
    level.write_text(PAIRED)
    seen: list[Progress] = []
    space = ["level=0.1,0.2,0.8,0.9", "noise=false,true"]
    found, path = tune(request(tmp_path, level), space, trials=10, seeds=1, listener=seen.append)
    cost = found.tuning
    assert (cost.trials, cost.pruned, cost.failed, len(seen)) == (10, 0, 0, 10)
    assert REFUSED in (path.parent / "study.journal").read_text()  # some were proposed


def test_a_study_of_refused_settings_says_why(tmp_path: Path, level: Path) -> None:
    level.write_text(PAIRED)
    with pytest.raises(CompbenchError, match="none of 0 trials .* ended well: .*a light level has no noise"):
        tune(request(tmp_path, level), ["level=0.8,0.9", "noise=true"], trials=2, seeds=1)


def test_a_run_takes_a_settings_file_and_its_record_says_where_they_come_from(
    tmp_path: Path, level: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    found, path = tune(request(tmp_path / "home", level), ["level=0.1,0.2", "noise=false"], trials=1, seeds=1)
    words = [
        "run",
        "--method",
        "level",
        "--task",
        "bump-center",
        "--preset",
        "smoke",
        "--plugin",
        str(level),
        "--settings",
        str(path),
    ]
    result = CliRunner().invoke(main, [*words, "--in-process", "--json", "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0
    from compbench.api.schemas import Record

    record = Record.model_validate_json(result.stdout.splitlines()[-1])
    assert record.tuning == found.tuning
    assert record.spec.settings == found.settings
    other = CliRunner().invoke(main, [word if word != "level" else "mono" for word in words])
    assert other.exit_code == 2
    assert "these are settings of 'level', and --method is 'mono'" in other.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [("{}", "not written by"), ("", "not written by"), (None, "No such file")],
)
def test_a_settings_file_that_is_none_is_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "settings.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CompbenchError, match=message):
        read_settings(path, "mono")


def test_a_default_is_tried_as_the_search_writes_it(tmp_path: Path, level: Path) -> None:
    level.write_text(METHOD.replace("level: float = Field(0.9,", "level: float = Field(1.0,").replace("> 0.95", "> 1.5"))
    seen: list[Progress] = []
    found, _ = tune(request(tmp_path, level), ["level=1", "noise=0,1"], trials=1, seeds=1, listener=seen.append)
    assert found.tuning.default_value == seen[0].value
