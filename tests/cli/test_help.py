"""Help for people: an example in each verb, completion by one command, errors that name the next command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from compbench.cli.completion import install_into
from compbench.cli.main import GROUPS, VERBS, main

assert isinstance(main, click.Group)


def verbs(group: click.Group, name: str = "compbench") -> list[tuple[str, click.Command]]:
    """Every verb and verb of a verb, with what is typed for it."""
    found = []
    for own, command in group.commands.items():
        found += verbs(command, f"{name} {own}") if isinstance(command, click.Group) else [(f"{name} {own}", command)]
    return found


@pytest.mark.parametrize(("typed", "command"), verbs(main), ids=[name for name, _ in verbs(main)])
def test_the_help_of_every_verb_has_an_example_that_its_options_allow(typed: str, command: click.Command) -> None:
    examples = [line.strip() for line in (command.help or "").splitlines() if line.strip().startswith(typed)]
    assert examples, f"{typed} has no example"
    known = {option for parameter in command.params for option in parameter.opts}
    for example in examples:
        assert set(re.findall(r"(?<= )--[a-z-]+", example)) <= known, example


@pytest.mark.parametrize("typed", ["compbench", *[name for name, _ in verbs(main)]])
def test_help_fits_a_terminal_of_80_columns(typed: str) -> None:
    shown = CliRunner().invoke(main, [*typed.split()[1:], "--help"], terminal_width=80).output
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_the_list_of_verbs_imports_none_and_has_a_whole_sentence_for_each() -> None:
    code = "import sys; from compbench.cli.main import main; main(['--help'], standalone_mode=False); print(*sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    loaded = [name for name in said[-1].split() if name.startswith("compbench.cli.")]
    assert loaded == ["compbench.cli.main"]
    groups = said[said.index(f"{next(iter(GROUPS))}:") : -1]
    assert [line.rstrip(":") for line in groups if line.endswith(":")] == list(GROUPS)
    listed = [line.split(maxsplit=1) for line in groups if line.startswith("  ")]
    assert dict(listed) == {name: verb.summary for name, verb in VERBS.items()}
    assert all(verb.summary.endswith(".") and not verb.summary.endswith("..") for verb in VERBS.values())


@pytest.mark.parametrize(("typed", "command"), verbs(main), ids=[name for name, _ in verbs(main)])
def test_every_option_says_what_it_does_and_the_line_of_a_verb_is_a_whole_sentence(typed: str, command: click.Command) -> None:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not (option.help or "").endswith((".", "?"))] == []
    summary = command.get_short_help_str(limit=400)
    assert summary.endswith(".")
    assert not summary.endswith("...")
    groups = [command for command in main.commands.values() if isinstance(command, click.Group)]
    shown = [verb.get_short_help_str(limit=70) for group in groups for verb in group.commands.values()]
    assert [line for line in shown if line.endswith("...")] == []


def test_completion_is_installed_once_and_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_text("alias l=ls")
    done = CliRunner().invoke(main, ["completion", "bash", "--install"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / ".bashrc").read_text()
    assert text.startswith("alias l=ls\n")
    assert "_compbench_completion" in text
    assert subprocess.run(["bash", "-n", str(tmp_path / ".bashrc")], check=False).returncode == 0
    again = CliRunner().invoke(main, ["completion", "bash", "--install"])
    assert "already has the completion script" in again.output
    assert (tmp_path / ".bashrc").read_text() == text


def test_completion_makes_the_folders_that_fish_wants(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "compbench.fish"
    assert "now has the completion script" in install_into(file, "complete _COMPBENCH_COMPLETE\n")
    assert file.read_text() == "complete _COMPBENCH_COMPLETE\n"


def test_completion_leaves_a_start_file_of_another_encoding_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / ".bashrc"
    file.write_bytes(b"# caf\xe9\n")
    assert "now has the completion script" in install_into(file, "complete _COMPBENCH_COMPLETE\n")
    assert file.read_bytes() == b"# caf\xe9\ncomplete _COMPBENCH_COMPLETE\n"
    assert "already has the completion script" in install_into(file, "complete _COMPBENCH_COMPLETE\n")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "--method", "mono", "--task", "zzzz"], "compbench list"),
        (["run", "--method", "zzzz", "--task", "gmm-id"], "compbench list"),
        (["show", "zzzz"], "compbench show"),
        (["export", "nowhere", "--to", "a.csv"], "compbench run"),
        (["export"], "--to FILE.csv"),
        (["submit", "zzzz", "--to", ".", "--training-data", "seen"], "compbench show"),
    ],
)
def test_an_error_names_the_next_command(words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert named in done.output


def test_all_wrong_names_are_said_at_once_and_a_file_says_its_own(tmp_path: Path) -> None:
    (tmp_path / "wrong_name.py").write_text('"""Mine."""\n')
    words = ["run", "--method", "mine", "--plugin", str(tmp_path / "wrong_name.py"), "--task", "shapes3d-hevy"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    for said in (
        "no method named 'mine'",
        "wrong_name.py is named after its file: 'wrong-name'",
        "no task named 'shapes3d-hevy'",
    ):
        assert said in done.output


def test_an_option_that_looks_like_a_setting_leads_to_set() -> None:
    done = CliRunner().invoke(main, ["run", "--method", "mono", "--task", "gmm-id", "--guidance_weight", "2"])
    assert done.exit_code == 2
    assert "--set guidance_weight=VALUE" in done.output
