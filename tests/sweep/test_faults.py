"""Sweeps whose parent is killed, stopped, doubled or left without a disk: whole records, and exactly the missing work."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.forked_sweeps import SweepTemplate
from support.real_sweeps import CHEAP, begun, start, wait_for, workers_of

from compbench.api.schemas import RunRequest
from compbench.cli.main import main
from compbench.runner import processes
from compbench.runner.signals import Stopping
from compbench.store.records import Store
from compbench.sweep.pool import SweepOptions, work_through


def records(home: Path) -> list[Path]:
    return Store(home / "records").paths()


def kill_at_a_random_moment(home: Path, seeds: str, generator: random.Random, template: SweepTemplate | None = None) -> None:
    """Kill -9 a sweep's parent: some records after its start, or while it starts, and some time later."""
    before = len(records(home))
    count = generator.choice((0, 1, 1, 2))
    sweep = (template.start if template else start)(home, *CHEAP, "--seed", seeds)
    wait_for(lambda: len(records(home)) >= before + count or sweep.poll() is not None)
    time.sleep(generator.uniform(0, 0.4 if count else 1.0 if template else 4.0))
    sweep.kill()
    sweep.communicate()
    assert wait_for(lambda: not workers_of(home), seconds=20), "a child outlived its parent"


def assert_whole(home: Path, kept: dict[Path, bytes]) -> dict[Path, bytes]:
    """Every file that is there is a whole record with whole pictures, and none that was there before is changed."""
    found, problems = Store(home / "records").read()
    assert problems == []
    for record in found:
        assert all((home / "records" / artifact.name).is_file() for artifact in record.artifacts)
    now = {path: path.read_bytes() for path in records(home)}
    assert {path: now.get(path) for path in kept} == kept
    return now


def assert_each_done_once(home: Path, count: int) -> None:
    """Every seed has one successful record, nothing is left over, and there is at most one lease a run."""
    found = Store(home / "records").read()[0]
    assert Counter(record.spec.seed for record in found if record.status == "ok") == dict.fromkeys(range(count), 1)
    left = [path.name for path in (home / "records").iterdir() if path.name.startswith(".")]
    assert left == []
    assert [path.name for path in home.iterdir() if "compbench-" in path.name] == []
    assert len(list((home / "leases").iterdir())) <= count


def survive(home: Path, *, moments: int, seeds: int, chance: int, template: SweepTemplate | None = None) -> None:
    """With a template, the first kill is of fresh interpreters, and the others of forks."""
    generator, kept = random.Random(chance), {}
    for moment in range(moments):
        kill_at_a_random_moment(home, f"0-{seeds - 1}", generator, template if moment else None)
        kept = assert_whole(home, kept)


@pytest.mark.slow
def test_a_sweep_killed_twice_leaves_whole_records_and_two_parents_at_once_do_exactly_the_rest(tmp_path: Path) -> None:
    survive(tmp_path, moments=2, seeds=4, chance=0)
    kept = assert_whole(tmp_path, {})
    both = [start(tmp_path, *CHEAP, "--seed", seeds) for seeds in ("0-3", "3,2,1,0")]
    for sweep in both:
        output, error = sweep.communicate(timeout=300)
        assert (sweep.returncode, error) == (0, ""), output
    assert_whole(tmp_path, kept)
    assert_each_done_once(tmp_path, 4)


def test_a_sweep_of_which_nothing_is_missing_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left = tmp_path / f"compbench-{socket.gethostname()}-killed"
    for rerun in (False, True):
        if rerun:
            left.mkdir()
        done = CliRunner().invoke(main, ["sweep", "--quiet", *CHEAP, "--seed", "0"], env={"COMPBENCH_HOME": str(tmp_path)})
        assert (done.exit_code, done.stderr) == (0, ""), done.output
    assert not left.exists()


KILLS = int(os.environ.get("COMPBENCH_KILLS", "50"))
"""Of the soak: 1,000 take about 50 minutes of one core, 2 CPU seconds a kill of forks and 5 of fresh interpreters."""


@pytest.fixture(scope="module")
def template():
    made = SweepTemplate()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.fresh
@pytest.mark.parametrize("part", range(max(1, KILLS // 10)))
def test_a_sweep_killed_at_random_moments_is_finished_by_the_next(tmp_path: Path, template: SweepTemplate, part: int) -> None:
    survive(tmp_path, moments=10, seeds=14, chance=part, template=template)
    kept = assert_whole(tmp_path, {})
    last = start(tmp_path, *CHEAP, "--seed", "0-13")
    output, error = last.communicate(timeout=600)
    assert (last.returncode, error) == (0, ""), output
    assert_whole(tmp_path, kept)
    assert_each_done_once(tmp_path, 14)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=[pytest.mark.slow, pytest.mark.fresh])])
def test_a_stopped_sweep_leaves_nothing_running_and_says_what_is_left(tmp_path: Path, plugin, number: int) -> None:
    fit = "import subprocess; subprocess.Popen(['sleep', '600']); "
    fit += "ctx.checkpoints.save({}, {})\n    while not ctx.cancelled(): time.sleep(0.05)"
    words = ("--plugin", str(plugin(fit=fit)), "--method", "naughty", *CHEAP[2:-1], "--seed", "0-2")
    home = tmp_path / "home"
    sweep = start(home, *words)
    assert wait_for(lambda: begun(home))
    began = time.monotonic()
    sweep.send_signal(number)
    time.sleep(0.2)
    sweep.send_signal(number)  # a second press loses nothing
    error = sweep.communicate(timeout=300)[1]
    assert sweep.returncode == 130, error
    assert "0 of 3 runs are done, 3 are left: the same command runs those" in error
    assert "Traceback" not in error
    assert time.monotonic() - began < processes.GRACE_SECONDS + 20
    assert workers_of(home) == []
    assert [record.status for record in Store(home / "records").read()[0]] == ["killed"]


@pytest.mark.slow
@pytest.mark.fresh
def test_a_stopping_pool_kills_a_child_that_ignores_sigterm(tmp_path: Path, plugin, monkeypatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 1.0)
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    fit = "import subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN); subprocess.Popen(['sleep', '600']); "
    fit += "ctx.checkpoints.save({}, {}); time.sleep(600)"
    facts = {"task": "gauss2d-fact-id", "preset": "smoke", "device": "cpu", "home": str(tmp_path)}
    asked = [RunRequest(method="naughty", plugins=(str(plugin(fit=fit)),), seed=seed, **facts) for seed in (0, 1)]
    stopping = Stopping()
    began = threading.Thread(target=lambda: wait_for(lambda: begun(tmp_path)) and stopping.set())
    began.start()
    results = work_through(asked, SweepOptions(slots=1), stopping=stopping)
    assert [result.status for result in results] == ["killed", "left"]
    assert not wait_for(lambda: set(workers_of(tmp_path)) - {os.getpid()}, seconds=0.5)


def test_a_full_disk_ends_a_sweep_in_one_line_before_anything_is_computed(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: what writes gets an error in the middle of a file."""
    import resource

    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))  # noqa: E731
    sweep = start(tmp_path, *CHEAP, "--seed", "0-2", before=limit)
    error = sweep.communicate(timeout=300)[1]
    assert sweep.returncode == 1
    assert "lease: File too large; nothing was changed. 0 of 3 runs are done, 3 are left" in error
    assert "Traceback" not in error
    assert records(tmp_path) == []


@pytest.mark.slow
@pytest.mark.fresh
def test_a_disk_that_fills_up_in_the_middle_of_a_sweep_costs_no_record_and_no_rerun(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=112k", "none", str(home)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small disk can only be had by who may mount one")
    try:
        full = start(home, *CHEAP, "--seed", "0-11")
        error = full.communicate(timeout=300)[1]
        assert full.returncode == 1
        assert "No space left on device" in error
        assert "Traceback" not in error
        kept = assert_whole(home, {})
        assert 0 < len(kept) < 12
        subprocess.run(["mount", "-o", "remount,size=64m", str(home)], check=True)
        again = start(home, *CHEAP, "--seed", "0-11")
        output, error = again.communicate(timeout=300)
        assert (again.returncode, error) == (0, ""), output
        assert_whole(home, kept)
        assert_each_done_once(home, 12)
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)
