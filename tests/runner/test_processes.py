"""Child processes end, with all that they started, however they or their parent behave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from runner.test_one_run import is_running

from compbench.api.schemas import RunRequest
from compbench.runner import processes
from compbench.runner.channel import Channel
from compbench.runner.processes import Child

PLUGIN = '''"""Hangs as soon as it is imported, and has started another process."""
import os, signal, subprocess, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen(["sleep", "600"])
draft = Path(os.environ["TMPDIR"], "draft")
draft.write_text(f"{os.getpid()} {other.pid}")
draft.rename(draft.with_name("began"))
time.sleep(600)
'''


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch) -> RunRequest:
    """A request whose contestant ignores SIGTERM and hangs."""
    (tmp_path / "stubborn.py").write_text(PLUGIN)
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    plugins = (str(tmp_path / "stubborn.py"),)
    return RunRequest(task="gauss2d-fact-id", method="stubborn", plugins=plugins, device="cpu", home=str(tmp_path))


def begun(home: Path) -> list[int]:
    """Process numbers of the child and of what it started, once both run."""
    end = time.monotonic() + 60
    while not (home / "contestant" / "tmp" / "began").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return [int(number) for number in (home / "contestant" / "tmp" / "began").read_text().split()]


def running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_running(pid)]


def test_a_child_that_ignores_sigterm_is_killed_with_what_it_started(stubborn: RunRequest, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    left, right = Channel.pair()
    child = Child("contestant", stubborn, left, tmp_path / "contestant")
    pids = begun(tmp_path)
    assert running(pids) == pids
    child.stop(gracefully=True)
    assert running(pids) == []
    left.close()
    right.close()


def test_what_a_child_started_dies_with_a_parent_that_is_killed(stubborn: RunRequest, tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from compbench.runner.channel import Channel\n"
    code += "from compbench.runner.processes import Child; from compbench.api.schemas import RunRequest\n"
    code += "ends = Channel.pair(); request = RunRequest.model_validate_json(sys.argv[1])\n"
    code += "child = Child('contestant', request, ends[0], Path(request.home) / 'contestant'); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", code, stubborn.model_dump_json()], env=dict(os.environ))
    pids = begun(tmp_path)
    assert running(pids) == pids
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 20
    while running(pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert running(pids) == []


class Stub:
    """A child that lives until it is stopped."""

    def __init__(self, role: str, request: RunRequest, peer: Channel, folder: Path, *, calm: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.process = folder, SimpleNamespace(poll=lambda: None)

    def begin(self, request: RunRequest) -> None: ...

    def stop(self, *, gracefully: bool = False) -> None: ...


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "Child", Stub)


def test_no_contestant_gets_a_folder_that_another_could_write_to(tmp_path: Path, stubs: None) -> None:
    kept, folders = processes.Processes(tmp_path), []
    for method in ("one", "one", "other", "one"):
        contestant, _ = kept.take(RunRequest(task="gauss2d-fact-id", method=method, home=str(tmp_path)))
        folders.append(contestant.folder)
        assert [folder for folder in folders if folder.exists()] == [folder for folder in folders if folder == contestant.folder]
    assert folders[0] == folders[1]  # runs of a chain
    assert len(set(folders)) == 3


def test_processes_that_loaded_other_code_are_not_used_again(tmp_path: Path, stubs: None) -> None:
    (tmp_path / "naughty.py").write_text("FACTOR = 1\n")
    request = RunRequest(task="gauss2d-fact-id", method="naughty", plugins=(str(tmp_path / "naughty.py"),), home=str(tmp_path))
    kept = processes.Processes(tmp_path)
    first = kept.take(request)
    assert kept.take(request) == first
    assert not kept.is_outdated(request)
    (tmp_path / "naughty.py").write_text("FACTOR = 77\n")
    assert kept.is_outdated(request)
    assert kept.take(request) != first
    assert kept.predecessors == 0
