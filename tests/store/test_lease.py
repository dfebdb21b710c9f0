"""Claims: one holder at a time, whoever dies, whatever the clocks say."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compbench.errors import Unwritable
from compbench.store import lease
from compbench.store.lease import Busy, Claim, Lost, Watch, take

QUICK = {"beat": 0.02, "dead": 0.4}


def test_a_claim_has_one_holder_and_is_free_when_given_back(tmp_path: Path) -> None:
    claim = take(tmp_path)
    with pytest.raises(Busy, match=f"process {os.getpid()} on "):
        take(tmp_path)
    claim.release()
    again = take(tmp_path)
    assert again.path.name == "claim.2"
    again.check()
    again.release()


def test_a_killed_holder_on_this_machine_is_dead_at_once(tmp_path: Path) -> None:
    code = "import sys, os, signal; from pathlib import Path; from compbench.store.lease import take\n"
    code += "claim = take(Path(sys.argv[1])); print('had', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    holder = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert holder.stdout == "had\n"
    start = time.monotonic()
    take(tmp_path).release()
    assert time.monotonic() - start < lease.DEAD_SECONDS / 4


def test_a_holder_on_another_machine_lives_as_long_as_its_counter_moves(tmp_path: Path) -> None:
    claim = take(tmp_path, machine="far", **QUICK)
    with pytest.raises(Busy):
        take(tmp_path, machine="near", **QUICK)
    silence(claim)
    start = time.monotonic()
    mine = take(tmp_path, machine="near", **QUICK)
    assert time.monotonic() - start >= QUICK["dead"]
    mine.check()
    with pytest.raises(Lost, match="another process"):
        claim.check()
    mine.release()


def test_clocks_and_dates_that_jump_neither_kill_a_claim_nor_keep_it(tmp_path: Path, monkeypatch) -> None:
    claim = take(tmp_path, machine="far", **QUICK)
    leaps = iter([0.0, 4e9, -4e9] * 1000)
    monkeypatch.setattr(time, "time", lambda: next(leaps))
    for date in (0.0, 4e9):
        os.utime(claim.path, (date, date))
        with pytest.raises(Busy):
            take(tmp_path, machine="near", **QUICK)
    silence(claim)
    os.utime(claim.path, (4e9, 4e9))  # written in the far future, and yet dead
    take(tmp_path, machine="near", **QUICK).release()


def test_a_reader_that_slept_does_not_take_its_own_silence_for_the_holders(tmp_path: Path, monkeypatch) -> None:
    claim = take(tmp_path, machine="far", **QUICK)
    silence(claim)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Watch(tmp_path, dead=60.0, machine="near")
    states = []
    for gap in (0.0, 1.0, 1e6, 1.0, 30.0, 30.0, 30.0):
        now[0] += gap
        states.append(watch.look())
    assert states == ["unknown"] * 6 + ["dead"]  # 1 + 15 + 1 + 15 + 15 + 15


def test_of_sixteen_takers_of_a_dead_claim_one_has_it(tmp_path: Path) -> None:
    for round_ in range(3):
        folder = tmp_path / str(round_)
        silence(take(folder, machine="far", **QUICK))
        had: list[Claim] = []
        refused: list[Busy] = []

        def want(number: int, folder: Path = folder, had: list = had, refused: list = refused) -> None:
            try:
                had.append(take(folder, machine=f"machine {number}", **QUICK))
            except Busy as busy:
                refused.append(busy)

        with ThreadPoolExecutor(16) as takers:
            list(takers.map(want, range(16)))
        assert (len(had), len(refused)) == (1, 15)
        had[0].release()


def test_sixteen_processes_never_hold_one_claim_at_once(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from compbench.store.lease import Busy, take
folder, name = Path(sys.argv[1]), sys.argv[2]
end = time.monotonic() + 1.5
while time.monotonic() < end:
    try:
        claim = take(folder, machine=name if int(name) % 2 else "", beat=0.05, dead=60.0)
    except Busy:
        continue
    (folder / "inside").mkdir()  # fails if another is inside
    (folder / "inside").rmdir()
    claim.release()
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(number)], stderr=subprocess.PIPE, text=True)
        for number in range(16)
    ]
    errors = [worker.communicate(timeout=60)[1] for worker in workers]
    assert errors == [""] * 16
    assert len(list(tmp_path.glob("claim.*"))) >= 16


def test_a_claim_that_was_never_written_is_dead_after_the_silence(tmp_path: Path) -> None:
    """Its writer died between creating the file and writing into it."""
    (tmp_path / "claim.1").touch()
    claim = take(tmp_path, **QUICK)
    assert claim.path.name == "claim.2"
    claim.release()


def test_a_disk_that_is_full_is_said_and_leaves_no_claim(tmp_path: Path, monkeypatch) -> None:
    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(Unwritable, match="could not write .*claim.1: No space left on device"):
            take(tmp_path)
    assert list(tmp_path.iterdir()) == []
    take(tmp_path).release()


def test_waiting_ends_when_the_claim_is_given_back_or_the_alarm_rings(tmp_path: Path) -> None:
    claim = take(tmp_path)
    threading.Timer(0.2, claim.release).start()
    lease.wait(tmp_path, alarm=lambda: None, poll=0.02)
    other = take(tmp_path)

    def ring() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lease.wait(tmp_path, alarm=ring)
    other.release()


def silence(claim: Claim) -> None:
    """Stop a claim's heart as death does: nothing is given back."""
    claim._ended.set()
    claim._heart.join()
