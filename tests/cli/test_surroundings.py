"""What a shell, a scheduler or a full disk may hand us: one clear line each, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.seldom import slow
from support.template import TEMPLATE

from compbench.cli import start
from compbench.cli.main import main
from compbench.registry.resolve import refuse_infinite
from compbench.store.records import Store
from compbench.sweep.parse import parse_overrides
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

COMPBENCH = f"{sys.executable} -m compbench.cli.start"


def shell(line: str, home: Path, **more) -> subprocess.CompletedProcess:
    """A line of shell in which `compbench` is the command line."""
    line = line.replace("compbench ", f"{COMPBENCH} ", 1)
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    env = {**os.environ, "COMPBENCH_HOME": str(home), **root, **more}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, timeout=300)


@pytest.mark.parametrize("streams", ["2>&-", "<&-", "<&- >&- 2>&-", ">&-"])
def test_closed_streams_end_no_verb(streams: str, tmp_path: Path) -> None:
    done = shell(f"compbench list {streams}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


POOR = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "60"}
"""A terminal of 60 columns that shows neither colours nor more than ASCII."""


@pytest.mark.parametrize("words", [slow("info mono"), "info shapes3d-heavy", "data list"])
def test_a_poor_terminal_gets_the_same_words_and_no_traceback(words: str, tmp_path: Path) -> None:
    poor = shell(f"compbench {words}", tmp_path, **POOR)
    rich = CliRunner(env={"COMPBENCH_HOME": str(tmp_path), "COLUMNS": "400"}).invoke(main, words.split())
    assert (poor.returncode, poor.stderr) == (rich.exit_code, rich.stderr) == (0, "")
    assert "\x1b" not in poor.stdout
    spelt = rich.stdout.encode("ascii", "backslashreplace").decode()
    assert sorted("".join(poor.stdout.split())) == sorted("".join(spelt.split()))  # cells fold: letters stay, lines do not


def test_a_run_with_closed_streams_leaves_its_record(tmp_path: Path) -> None:
    words = "--method naive-ode-oracle --task gauss2d-fact-id --preset smoke --device cpu --threads 1"
    command, path = " ".join(TEMPLATE.compbench("run")), os.environ.get("PYTHONPATH", "")
    assert shell(f"$COMMAND {words} <&- >&- 2>&-", tmp_path, COMMAND=command, PYTHONPATH=path).returncode == 0
    (one,), problems = Store(tmp_path / "records").read()
    assert (one.status, problems) == ("ok", [])


def test_an_error_with_closed_streams_keeps_its_status(tmp_path: Path) -> None:
    done = shell("compbench info no-such-thing <&- >&- 2>&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.parametrize("words", ["list", "--help", "show --help"])
def test_a_full_output_is_one_line(words: str, tmp_path: Path) -> None:
    done = shell(f"compbench {words} >/dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "compbench: the standard output accepts no more data: No space left on device.\n"


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    done = shell("compbench list | true; exit ${PIPESTATUS[0]}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_deleted_working_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = shell(f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && compbench list", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "compbench: the working folder was deleted; change to another with `cd`.\n"


@pytest.mark.parametrize("wait", [0.05, 0.1, 0.2])
def test_a_signal_at_the_start_leaves_no_traceback(wait: float, tmp_path: Path) -> None:
    env = {**os.environ, "COMPBENCH_HOME": str(tmp_path)}
    command = [*COMPBENCH.split(), "list", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as process:
        time.sleep(wait)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    stopped = "compbench: stopped.\n"
    # -SIGINT is 130 to a shell too: `python -m` ends so if the signal came within an exec, as namedtuple does one at import
    assert (process.returncode, said) in {(-signal.SIGTERM, ""), (130, stopped), (-signal.SIGINT, stopped), (0, "")}


def test_a_signal_that_interrupts_the_making_of_a_class_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: object) -> None:
        raise RuntimeError("Error calling __set_name__ on 'cached_property'") from KeyboardInterrupt()

    monkeypatch.setattr(start.signal, "signal", lambda *_: None)
    monkeypatch.setattr("compbench.cli.main.main", interrupted)
    assert start._status() == 130
    assert capsys.readouterr().err == "compbench: stopped.\n"


def test_a_signal_while_the_command_line_is_parsed_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(start.signal, "signal", lambda *_: None)
    monkeypatch.setattr("click.Group.parse_args", interrupted)
    assert start._status() == 130
    assert capsys.readouterr().err == "compbench: stopped.\n"


def test_a_full_disk_is_not_said_to_be_the_output() -> None:
    script = (
        "from unittest import mock\nfrom compbench.cli import main, start\n"
        "full = lambda **_: open('/dev/full', 'wb', 0).write(b'x')\n"  # as a library does; the error names no file
        "with mock.patch.object(main, 'main', full): start.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "compbench: the disk is full; nothing more can be written.\n")


def test_few_descriptors_are_one_line(tmp_path: Path) -> None:
    script = (
        "import os, resource, sys\nfrom unittest import mock\nfrom compbench.cli import main, start\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))\n"
        "full = lambda **_: [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]\n"
        "with mock.patch.object(main, 'main', full): start.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "compbench: this process may open no more files; raise the limit with `ulimit -n 1024`.\n"


@pytest.mark.parametrize("home", ["/dev/null/x", "/etc/passwd", "~no-such-user/x"])
def test_a_home_that_is_no_folder_is_refused(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", home)
    with pytest.raises(CompbenchError, match=f"COMPBENCH_HOME={home}: .* name a folder"):
        Home.of_user()


def test_a_home_that_is_not_there_yet_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "a" / "b"))
    assert Home.of_user().root == tmp_path / "a" / "b"


def test_a_sweep_file_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 5000 + "]" * 5000)
    done = CliRunner().invoke(main, ["sweep", "--file", str(path), "--dry-run"], env={"COMPBENCH_HOME": str(tmp_path)})
    assert done.exit_code == 2
    assert "is nested too deeply" in done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "[1,NaN]"])
def test_a_setting_that_is_no_finite_number_is_refused(word: str) -> None:
    with pytest.raises(CompbenchError, match="--set g_clip=.*finite number"):
        parse_overrides([f"g_clip={word}"])


def test_a_sweep_file_with_an_infinite_setting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text('[[quick]]\nmethods = "fkc"\ntasks = "gmm-id"\nset = {g_clip = [inf]}\n')
    done = CliRunner().invoke(main, ["sweep", "--file", str(path), "--dry-run"], env={"COMPBENCH_HOME": str(tmp_path)})
    assert done.exit_code == 2
    assert "--set g_clip=inf: a setting is a finite number." in done.output


def test_finite_settings_pass() -> None:
    refuse_infinite({"a": 1.0, "b": [1, {"c": "inf"}], "d": None})
