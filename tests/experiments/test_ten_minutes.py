"""The quickstart as a script reads it; `.ci/slow` types it all."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click import Group
from support.sample_records import record
from ten_minutes import QUICKSTART, commands, type_them

from compbench.api.interfaces import Score
from compbench.cli.main import main
from compbench.cli.result import lines


def test_every_command_of_the_quickstart_is_one_that_there_is() -> None:
    lines = commands(QUICKSTART.read_text(), installed=False)
    assert isinstance(main, Group)
    typed = [shlex.split(line) for line in lines if line.startswith("compbench ")]
    assert {words[1] for words in typed} >= {"run", "new", "check", "show", "board", "export"}
    for words in typed:
        command = main.commands[words[1]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words
    assert any(line.startswith("pip install -e . ") for line in lines)
    assert not any("venv" in line for line in commands(QUICKSTART.read_text(), installed=True))


def test_the_quickstart_makes_the_plugin_outside_of_the_clone_whose_git_tree_is_another(tmp_path: Path) -> None:
    (line,) = [line for line in commands(QUICKSTART.read_text(), installed=True) if line.startswith("compbench new ")]
    words = shlex.split(line)
    assert not (tmp_path / words[words.index("--into") + 1]).resolve().is_relative_to(tmp_path.resolve())


def test_the_quickstart_shows_the_result_as_run_prints_it() -> None:
    (line,) = [line for line in QUICKSTART.read_text().splitlines() if line.startswith("result ")]
    value, _, real = (float(number) for number in re.findall(r"[\d.]+(?=[ ,]|$)", line.split(" ", 1)[1].replace("sw2", "sw")))
    made = record(task="gauss2d-fact-id", preset="smoke")
    shown = Score(
        name="heldout_sw2", metric="sw2", split="heldout", value=value, floor=real, n=200, direction="lower", primary=True
    )
    text = next(text for name, text in lines(made.model_copy(update={"scores": (shown,)})) if name == "result")
    assert f"result   {text}" == line


def test_a_command_that_fails_ends_it(tmp_path, capfd) -> None:
    assert type_them(["false", "echo reached"], tmp_path, tmp_path) == 1
    assert "reached" not in capfd.readouterr().out.replace("$ echo reached", "")


def test_typed_lines_share_one_shell(tmp_path, capfd) -> None:
    assert type_them(["word=shared", "echo $word"], tmp_path, tmp_path) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "shared"
