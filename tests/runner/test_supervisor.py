"""Nothing of a child outlives its supervisor: orphans that left the process group are found and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner.test_one_run import is_running

DAEMON = """
import os, sys, time
from compbench.runner.supervisor import fork_under_supervisor
fork_under_supervisor()
if os.fork() == 0:              # a daemon: its parent ends, its session is its own, it hears no polite signal
    os.setsid()
    if os.fork() == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""


def start(tmp_path: Path, end: str) -> tuple[subprocess.Popen, int]:
    """A child that daemonises a process and then does `end`; the daemon's process id."""
    supervisor = subprocess.Popen([sys.executable, "-c", DAEMON + end, str(tmp_path / "pid")], start_new_session=True)
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    return supervisor, int((tmp_path / "pid").read_text())


@pytest.mark.parametrize(
    ("end", "status"),
    [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.kill(os.getpid(), 11)", -11), ("raise MemoryError", 1)],
)
def test_a_supervisor_ends_as_its_child_did_and_leaves_no_orphan(tmp_path: Path, end: str, status: int) -> None:
    supervisor, daemon = start(tmp_path, end)
    assert supervisor.wait(timeout=20) == status
    assert not is_running(daemon)


def test_a_supervisor_kills_everything_when_it_is_asked_to(tmp_path: Path) -> None:
    supervisor, daemon = start(tmp_path, "time.sleep(600)")
    assert is_running(daemon)
    supervisor.send_signal(signal.SIGUSR1)
    assert supervisor.wait(timeout=20) == -signal.SIGKILL
    assert not is_running(daemon)


def test_a_supervisor_kills_everything_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DAEMON + 'time.sleep(600)'!r}, sys.argv[1]]).wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "pid")])
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    daemon = int((tmp_path / "pid").read_text())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    for _ in range(500):
        if not is_running(daemon):
            break
        time.sleep(0.01)
    assert not is_running(daemon)
