"""The plugin project that `compbench new` writes; that it works as written is `test_stranger.py`'s to show."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from compbench.cli.main import main
from compbench.cli.new import GROUPS, render, start
from compbench.sweep.grid import default_preset, grids
from compbench.system.errors import CompbenchError

EXAMPLE = Path(__file__).parents[2] / "plugins" / "compbench-example"
MADE_BY_TOOLS = {"__pycache__", ".pytest_cache", ".ruff_cache", "dist"}


def files_in(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not MADE_BY_TOOLS & set(path.parts))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_example_in_this_repository_is_exactly_what_new_writes() -> None:
    assert files_in(EXAMPLE) == render("example")


def test_a_method_s_readme_runs_for_the_public_board_at_that_board_s_preset_and_precision() -> None:
    (line,) = [line for line in render("my-own")["README.md"].decode().splitlines() if "--seed 0-2" in line]
    preset = default_preset("core")
    (precision,) = {grid.precision for grid in grids("core", preset)}
    assert line.endswith(f" --preset {preset} --precision {precision}")


@pytest.mark.parametrize("kind", GROUPS)
def test_a_new_project_is_formatted_and_names_one_plugin(kind, tmp_path: Path) -> None:
    folder, files = start("my-own", kind, tmp_path)
    assert set(files) == set(files_in(folder))
    assert list(tmp_path.iterdir()) == [folder]
    name = "my_own" if kind == "metric" else "my-own"
    assert (
        f'[project.entry-points."compbench.{kind}s"]\n{name} = "compbench_my_own.my_own"'
        in (folder / "pyproject.toml").read_text()
    )
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, str(folder)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name", ["", "Mine", "my_method", "-x", "x-", "a--b", "9lives", "../x", "/tmp/x", "a b", "a\n", "ж", "class", "x" * 41]
)
def test_a_name_that_cannot_be_one_is_refused_in_one_line_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["new", "--into", str(tmp_path), "--", name])
    assert done.exit_code == 2
    assert len(done.output.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(CompbenchError, match="there is a task 'blobs-iid' already"):
        start("blobs-iid", "task", Path())
    with pytest.raises(CompbenchError, match="there is a metric 'mode_share' already"):
        start("mode-share", "metric", Path())


def test_the_next_command_works_for_a_folder_with_a_space(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["new", "some-idea", "--into", str(tmp_path / "my work")])
    assert shlex.split(done.output.splitlines()[-1])[:3] == ["next:", "cd", str(tmp_path / "my work" / "compbench-some-idea")]


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "compbench-mine").mkdir()
    with pytest.raises(CompbenchError, match="already"):
        start("mine", "method", tmp_path)
    assert list((tmp_path / "compbench-mine").iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CompbenchError, match="No space left on device; nothing was written"):
        start("mine", "method", tmp_path)
    assert list(tmp_path.iterdir()) == []
