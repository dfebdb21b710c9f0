"""The list of what makes each table and figure of the four papers: its commands name what there is."""

import re
import shlex
from pathlib import Path

import pytest

from compbench.sweep.grid import grids
from compbench.sweep.parse import names

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "papers.md").read_text()
COMMANDS = sorted({part.strip() for quoted in re.findall(r"`([^`]+)`", PAGE) for part in quoted.split("&&")})
SWEEPS = [command for command in COMMANDS if command.startswith("compbench sweep")]
SCRIPTS = [command for command in COMMANDS if command.startswith("python ")]


def options(command: str) -> dict[str, str]:
    words = shlex.split(command)
    return {word: words[place + 1] for place, word in enumerate(words) if word.startswith("--")}


@pytest.mark.parametrize("command", SWEEPS)
def test_a_sweep_names_files_methods_and_tasks_that_exist(command: str) -> None:
    asked = options(command)
    preset = asked.get("--preset", "quick")
    if "--file" in asked:
        assert grids(asked["--file"], preset)
        return
    assert names("methods", asked["--method"], ())
    assert names("tasks", asked["--task"], ())


@pytest.mark.parametrize("command", SCRIPTS)
def test_a_script_takes_the_options_that_it_is_given(command: str) -> None:
    script = ROOT / shlex.split(command)[1]
    assert script.is_file()
    assert all(f'"{option}"' in script.read_text() for option in options(command))


def test_each_row_has_a_command_a_picture_or_what_it_needs() -> None:
    rows = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
    empty = [what for what, shows, here in rows if not here.strip() and what.strip()]
    assert empty == []
    drawings = [what for what, shows, here in rows if here.strip() == "-" and "drawing" not in shows]
    assert drawings == []
