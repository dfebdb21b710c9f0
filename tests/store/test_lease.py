"""Leases: one holder at a time, whoever dies, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from compbench.store import lease
from compbench.store.lease import Busy, Lost, take, wait
from compbench.system.errors import Unwritable

QUICK = {"beat": 0.1, "dead": 1.0}


def from_elsewhere(path: Path) -> None:
    """Make the holder of a lease one of another machine."""
    path.write_text(path.read_text().replace(f"host={os.uname().nodename}", "host=far-away"))


def died(path: Path, **how: float) -> None:
    """A lease whose holder was killed."""
    code = "import os, sys; from pathlib import Path; from compbench.store.lease import take\n"
    code += f"held = take(Path(sys.argv[1]), **{how!r}); os._exit(0)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_a_lease_has_one_holder_and_is_gone_when_given_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "one.lease"
    held = take(path)
    with pytest.raises(Busy, match=f"process {os.getpid()} on "):
        take(path)
    held.check()
    held.release()
    assert list(path.parent.iterdir()) == []
    take(path).release()


def test_a_killed_holder_on_this_machine_is_replaced_at_once(tmp_path: Path) -> None:
    died(tmp_path / "one.lease")
    start = time.monotonic()
    held = take(tmp_path / "one.lease")
    assert time.monotonic() - start < lease.DEAD_SECONDS / 4
    held.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ask", [take, wait])
def test_a_lease_that_a_killed_process_left_empty_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask) -> None:
    monkeypatch.setattr(lease, "EMPTY_SECONDS", 0.5)
    path = tmp_path / "a.lease"
    path.touch()
    began = time.monotonic()

    def give_up() -> None:
        assert time.monotonic() - began < 20, "waited for a process that is gone"

    taken = ask(path, alarm=give_up)
    assert 0.5 < time.monotonic() - began < 20
    if taken is not None:
        taken.release()
    assert not path.exists()


def test_a_holder_on_another_machine_is_dead_after_its_silence_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "one.lease"
    died(path, **QUICK)
    from_elsewhere(path)
    start = time.monotonic()
    take(path, **QUICK).release()
    assert time.monotonic() - start >= QUICK["dead"] * 0.8


def test_a_holder_on_another_machine_that_refreshes_is_busy(tmp_path: Path) -> None:
    path, stop = tmp_path / "one.lease", threading.Event()
    died(path, **QUICK)
    from_elsewhere(path)

    def refresh() -> None:
        while not stop.wait(0.05):
            os.utime(path)

    beating = threading.Thread(target=refresh)
    beating.start()
    try:
        with pytest.raises(Busy, match="on far-away"):
            take(path, **QUICK)
    finally:
        stop.set()
        beating.join()


def test_whoever_is_taken_for_dead_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "one.lease"
    held = take(path, **QUICK)
    path.unlink()
    other = take(path, **QUICK)
    deadline = time.monotonic() + 10
    while held._lock.compromise is None and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(Lost, match="another process took over the run"):
        held.check()
    other.check()
    other.release()


def test_eight_processes_never_hold_one_lease_at_once(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from compbench.store.lease import Busy, take
folder = Path(sys.argv[1])
end = time.monotonic() + 1.0
while time.monotonic() < end:
    try:
        held = take(folder / "one.lease")
    except Busy:
        continue
    (folder / "inside").mkdir()  # fails if another is inside
    (folder / "inside").rmdir()
    held.release()
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    assert [worker.communicate(timeout=60)[1] for worker in workers] == [""] * 8
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="could not write"):
        take(tmp_path / "file" / "one.lease")


def test_waiting_ends_when_the_lease_is_given_back_or_the_alarm_rings(tmp_path: Path) -> None:
    path = tmp_path / "one.lease"
    held = take(path)
    threading.Timer(0.2, held.release).start()
    wait(path, alarm=lambda: None)
    other = take(path)

    def ring() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait(path, alarm=ring)
    other.release()
