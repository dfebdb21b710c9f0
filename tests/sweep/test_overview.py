"""What is under way in a home is seen and ended from any shell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import fake_slurm

from compbench.api.executor import RunResult
from compbench.cli.main import main
from compbench.store.lease import take
from compbench.sweep.ledger import ArrayFacts, ledger_of, tell
from compbench.sweep.overview import stop_worker, worker_views
from compbench.system.home import Home

HOLD = """
import sys, time
from pathlib import Path
from compbench.store.lease import take
held = take(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an array of two members and three runs: one run is done, one failed; member 1 waits."""
    for name, value in fake_slurm.install(tmp_path / "cluster").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "slurm" / "abcd"
    folder.mkdir(parents=True)
    ArrayFacts(job="77", shares=((0, 2), (1,)), submitted="2026-01-01T00:00:00+00:00").save(folder)
    for position, status in enumerate(("ok", "failed")):
        tell(ledger_of(folder, 0), position, RunResult("mono", "gmm-id", position, status, "", 1.0, False, "", ""))
    (tmp_path / "cluster" / "77_0.state").write_text("COMPLETED")
    (tmp_path / "cluster" / "77_1.state").write_text("PENDING Resources")
    (tmp_path / "cluster" / "77_1.step").write_text(str(2**22 + 1))
    return tmp_path / "home"


def said(*words: str) -> str:
    result = CliRunner().invoke(main, ["sweep", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_status_shows_an_arrays_runs_and_why_members_wait(home: Path) -> None:
    (array,) = json.loads(said("status", "--json"))["arrays"]
    assert array["runs"] == {"ok": 1, "failed": 1, "left": 1}
    assert (array["job"], array["members"]) == ("77", "1 pending (Resources)")
    assert "runs 1 failed, 1 left, 1 ok; members 1 pending (Resources); logs in" in said("status")


def test_cancel_ends_an_array_by_its_number(home: Path, tmp_path: Path) -> None:
    assert said("cancel", "77") == "asked job 77 to stop\n"
    assert (tmp_path / "cluster" / "77_1.ended").read_text() == "CANCELLED"


def test_a_process_with_runs_under_way_is_shown_and_stopped(home: Path) -> None:
    lease = home / "leases" / "one.lease"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(lease)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    (process,) = json.loads(said("status", "--json"))["processes"]
    assert (process["pid"], process["runs"]) == (holder.pid, 1)
    assert said("cancel", str(holder.pid)) == f"asked process {holder.pid} to stop\n"
    holder.communicate(timeout=30)
    assert holder.returncode < 0
    assert json.loads(said("status", "--json"))["processes"] == []  # its lease file is still there


def test_a_container_s_own_process_is_here_and_alive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("filelock._identity._host.socket.gethostname", lambda: "vm?")  # filelock writes it otherwise
    held = take(home / "leases" / "one.lease")
    (view,) = worker_views(Home(home))
    held.release()
    assert view.here
    assert view.holder.host == "vm?3f"


def test_a_process_that_got_the_number_of_a_dead_one_is_not_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = take(home / "leases" / "one.lease")
    (view,) = worker_views(Home(home))
    held.release()
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    stop_worker(view._replace(holder=view.holder._replace(start=str(int(view.holder.start) + 1))))
    assert signal.SIGTERM not in sent


def test_cancel_all_that_reaches_nothing_is_an_error(home: Path, tmp_path: Path) -> None:
    shutil.rmtree(home / "slurm")
    held = take(home / "leases" / "one.lease")
    text = held.path.read_text().replace(f"host={os.uname().nodename}", "host=node9")
    held.release()
    held.path.write_text(text)
    result = CliRunner().invoke(main, ["sweep", "cancel", "--all"])
    assert result.exit_code == 2
    assert f"all processes are elsewhere ({os.getpid()} on node9)" in result.output


def test_cancel_names_what_it_cannot_end(home: Path) -> None:
    held = take(home / "leases" / "one.lease")
    text = held.path.read_text().replace(f"pid={os.getpid()}", "pid=4").replace(f"host={os.uname().nodename}", "host=node9")
    held.release()
    held.path.write_text(text)
    for words, why in (
        (["4"], "process 4 is on node9; type there: kill 4"),
        (["5"], "nothing running is called 5"),
        ([], "say which"),
    ):
        result = CliRunner().invoke(main, ["sweep", "cancel", *words])
        assert result.exit_code == 2
        assert why in result.output
