"""Sweeps as Ray tasks, on a Ray of processes, and on a real Ray of this machine if there is one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from support import fake_ray, template
from support.real_sweeps import (
    CHEAP,
    SLOW_FIT,
    STEPPED_FIT,
    assert_resumes_after_its_worker_was_killed,
    begun,
    needs_ray,
    start,
    wait_for,
    workers_of,
)

from compbench.api.executor import SweepOptions
from compbench.api.schemas import RunRequest
from compbench.cli.main import main
from compbench.store.records import Store
from compbench.sweep import ray as executor
from compbench.system.errors import CompbenchError


def sweep(home: Path, *words: str, quiet: bool = True, **environment: str) -> subprocess.Popen:
    return start(home, "--executor", "ray", *words, environment=environment, quiet=quiet)


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """The environment of a user of a Ray of processes with two cores."""
    return {**fake_ray.install(tmp_path / "ray", cores=2), template.PLACE: template.TEMPLATE.place()}


@pytest.mark.slow  # of SLURM's jobs and of the local executor's processes the suite has it
def test_a_run_whose_worker_was_killed_resumes_and_repeats_no_step(tmp_path: Path, cluster: dict[str, str], plugin) -> None:
    assert_resumes_after_its_worker_was_killed(tmp_path / "home", plugin(fit=STEPPED_FIT), cluster)


@pytest.mark.slow
def test_the_number_of_slots_is_said_at_the_start_and_with_each_run_that_shared_its_node(
    tmp_path: Path, cluster: dict[str, str]
) -> None:
    home = tmp_path / "home"
    output, error = sweep(home, *CHEAP[:-1], "--seed", "0-2", "--json", quiet=False, **cluster).communicate(timeout=300)
    assert [result["status"] for result in json.loads(output)] == ["ok"] * 3, error
    assert error.splitlines()[0] == "compbench: Ray has 2 slots for 3 runs, up to 2 on one node"
    records = Store(home / "records").read()[0]
    assert [record.environment.slots for record in records] == [2, 2, 2]
    for record in records:
        shown = CliRunner().invoke(main, ["show", record.identity[:12]], env={"COMPBENCH_HOME": str(home)}).output
        assert ", shared by 2 runs" in shown


@needs_ray
def test_runs_are_tasks_and_a_chain_is_one_task(tmp_path: Path) -> None:
    asked = ("--executor-set", f"cpus={len(os.sched_getaffinity(0))}", "--json")  # so one task at a time, and one chain
    going = sweep(tmp_path, *CHEAP, "--seed", "0-2", *asked)
    output, _ = going.communicate(timeout=300)
    assert going.returncode == 0, output
    assert [(result["seed"], result["status"]) for result in json.loads(output)] == [(0, "ok"), (1, "ok"), (2, "ok")]
    records, problems = Store(tmp_path / "records").read()
    assert problems == []
    assert sorted(record.environment.predecessors for record in records) == [0, 1, 2]
    assert {record.environment.slots for record in records} == {1}


@needs_ray
@pytest.mark.slow
def test_a_stopped_sweep_ends_its_tasks_and_says_what_is_left(tmp_path: Path, plugin) -> None:
    home = tmp_path / "home"
    words = ("--plugin", str(plugin(fit=SLOW_FIT)), "--method", "naughty", *CHEAP[2:-1])
    going = sweep(home, *words, "--seed", "0-3")
    cores = min(4, len(os.sched_getaffinity(0)))
    assert wait_for(lambda: begun(home) == cores)
    going.send_signal(signal.SIGINT)
    _, error = going.communicate(timeout=300)
    assert going.returncode == 130
    assert "0 of 4 runs are done, 4 are left" in error
    assert wait_for(lambda: workers_of(home) == [], seconds=20)
    assert [record.status for record in Store(home / "records").read()[0]] == ["killed"] * cores


@needs_ray
@pytest.mark.slow
def test_a_run_that_no_node_can_hold_is_one_line(tmp_path: Path) -> None:
    going = sweep(tmp_path, *CHEAP, "--seed", "0", "--executor-set", "cpus=1024")
    _, error = going.communicate(timeout=300)
    assert going.returncode == 2
    assert "no node of the Ray cluster has 1024 cores and 0 GPUs" in error


@pytest.mark.parametrize(("address", "sent"), [("127.0.0.1:6379", True), ("", False)])
def test_the_token_file_is_sent_to_a_cluster_that_was_started_by_hand_and_named_if_that_fails(
    address: str, sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**options: object) -> None:
        raise ConnectionError(f"token mode: {os.environ.get('RAY_AUTH_MODE', 'none')}")

    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("RAY_AUTH_MODE", "none")  # so that it is as it was after the test
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setattr(executor, "_ray", lambda: SimpleNamespace(init=refused))
    request = RunRequest.of(task="gmm-id", method="mono", home=str(tmp_path))
    with pytest.raises(CompbenchError) as error:
        executor.work(executor.RaySettings(address=address), [request], SweepOptions(), lambda *facts: None)
    assert f"token mode: {'token' if sent else 'none'}" in str(error.value)
    assert (f"must be the one in {tmp_path / 'token'}" in str(error.value)) == sent
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("address", "cores", "asked"), [("", 1, 1), ("", 64, None), ("auto", 1, None)])
def test_a_ray_on_this_machine_has_the_cores_that_the_process_may_use(
    address: str, cores: int, asked: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(**options: object) -> None:
        raise ConnectionError(f"cores: {options.get('num_cpus')}")

    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(executor, "_ray", lambda: SimpleNamespace(init=started))
    request = RunRequest.of(task="gmm-id", method="mono", home=str(tmp_path))
    with pytest.raises(CompbenchError, match=f"cores: {asked}"):
        executor.work(executor.RaySettings(address=address), [request], SweepOptions(), lambda *facts: None)


def test_without_ray_the_sweep_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    error = sweep(tmp_path / "home", *CHEAP, "--seed", "0-2", PYTHONPATH=str(tmp_path)).communicate(timeout=300)[1]
    assert error == "compbench: executor 'ray' needs package 'ray', which is not installed: pip install 'compbench[ray]'\n"
