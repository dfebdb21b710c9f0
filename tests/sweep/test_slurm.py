"""Sweeps past one machine, on a SLURM of files and background processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from support import fake_slurm, template
from support.real_sweeps import CHEAP, SLOW_FIT, begun, start, wait_for, workers_of

from compbench.api.executor import RunResult, SweepOptions
from compbench.store.records import Store
from compbench.sweep.slurm import Member, read_ledger

pytest.importorskip("submitit")


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """The environment of a user of the cluster."""
    home = tmp_path / "home"
    return {**os.environ, **fake_slurm.install(tmp_path / "slurm"), "COMPBENCH_HOME": str(home), "OMP_NUM_THREADS": "1"}


def sweep(cluster: dict[str, str], *words: str) -> subprocess.Popen:
    return start(home_of(cluster), "--executor", "slurm", "--executor-set", "look_seconds=1", *words, environment=cluster)


def home_of(cluster: dict[str, str]) -> Path:
    return Path(cluster["COMPBENCH_HOME"])


def test_an_array_does_each_run_once_with_what_was_asked_of_the_cluster(cluster: dict[str, str]) -> None:
    words = ("--executor-set", "members=2", "--executor-set", "partition=short", "--executor-set", "minutes=7", "--json")
    going = sweep({**cluster, template.PLACE: template.TEMPLATE.place()}, *CHEAP, "--seed", "0-4", *words)
    output, error = going.communicate(timeout=300)
    assert going.returncode == 0, error
    assert error == ""
    results = json.loads(output)
    assert [(result["seed"], result["status"]) for result in results] == [(seed, "ok") for seed in range(5)]
    records, problems = Store(home_of(cluster) / "records").read()
    assert problems == []
    assert sorted(record.spec.seed for record in records) == list(range(5))
    assert sorted(record.environment.predecessors for record in records) == [0, 0, 1, 1, 2]  # shares of three and two, chained
    submitted = (Path(cluster["FAKE_SLURM"]) / "100.submitted").read_text()
    for line in ("--array=0-1%2", "--partition=short", "--time=7", "--signal=USR2@120", "--mem=8192MB", "--cpus-per-task=2"):
        assert f"#SBATCH {line}\n" in submitted


def test_submitting_without_waiting_says_which_job(cluster: dict[str, str], monkeypatch) -> None:
    commands = Path(cluster["FAKE_SLURM"]) / "bin"
    (commands / "sbatch").write_text("#!/bin/sh\necho Submitted batch job 77\n")
    going = sweep(cluster, *CHEAP, "--seed", "0-2", "--executor-set", "wait=false", "--executor-set", "members=2", "--json")
    output, error = going.communicate(timeout=300)
    assert going.returncode == 0, error
    assert error == ""
    results = json.loads(output)
    assert {result["status"] for result in results} == {"queued"}
    assert [result["reason"] for result in results] == [f"queued as member {member} of job 77" for member in (0, 1, 0)]


def test_a_cluster_that_refuses_is_quoted(cluster: dict[str, str]) -> None:
    commands = Path(cluster["FAKE_SLURM"]) / "bin"
    (commands / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: short' >&2; exit 1\n")
    going = sweep(cluster, *CHEAP, "--seed", "0-2")
    output, error = going.communicate(timeout=300)
    assert (going.returncode, output) == (2, "")
    last = error.splitlines()[-1]  # what stands before is sbatch's own
    assert last == "compbench: SLURM did not take the job: sbatch: error: invalid partition specified: short"


def test_without_slurm_or_submitit_the_sweep_says_what_is_missing(cluster: dict[str, str]) -> None:
    (Path(cluster["FAKE_SLURM"]) / "bin" / "sacct").unlink()
    error = sweep(cluster, *CHEAP, "--seed", "0-2").communicate(timeout=300)[1]
    assert error == "compbench: executor 'slurm' needs sacct on PATH: run this on a machine where jobs are submitted.\n"
    hidden = home_of(cluster).parent / "hidden"
    hidden.mkdir()
    (hidden / "submitit.py").write_text("raise ModuleNotFoundError(\"No module named 'submitit'\", name='submitit')\n")
    error = sweep({**cluster, "PYTHONPATH": str(hidden)}, *CHEAP, "--seed", "0-2").communicate(timeout=300)[1]
    assert error == (
        "compbench: executor 'slurm' needs package 'submitit', which is not installed: pip install 'compbench[slurm]'\n"
    )


@pytest.mark.parametrize(
    ("environment", "job"),
    [({"SLURM_JOB_ID": "7"}, "7"), ({"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}, "7_1")],
)
def test_a_member_out_of_time_asks_for_its_own_job_also_where_it_is_the_only_one(
    environment: dict[str, str], job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asked: list[list[str]] = []
    monkeypatch.setattr("compbench.sweep.slurm.subprocess.run", lambda command, **options: asked.append(command))
    monkeypatch.setattr("compbench.sweep.slurm.signal.signal", lambda number, handler: None)
    member = Member([], SweepOptions(), tmp_path / "ledger", requeues=1)
    member._out_of_time.set()
    member()
    assert asked == [["scontrol", "requeue", job]]


def test_a_torn_line_of_a_ledger_hides_no_other(tmp_path: Path) -> None:
    results = [RunResult("mono", "gmm-id", seed, "ok", "", 1.0, False, "", "") for seed in range(3)]
    member = Member([], SweepOptions(), tmp_path / "ledger", requeues=0)
    member._tell(0, results[0])
    with member.ledger.open("a") as ledger:
        ledger.write('{"index": 1, "met')
    member._tell(2, results[2])
    assert read_ledger(member.ledger) == {0: results[0], 2: results[2]}


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_a_member_out_of_time_is_queued_again_and_goes_on(cluster: dict[str, str], plugin, members: int) -> None:
    home = home_of(cluster)
    words = ("--plugin", str(plugin(fit=SLOW_FIT)), "--method", "naughty", *CHEAP[2:-1])
    going = sweep(cluster, *words, "--seed", "0-1", "--executor-set", f"members={members}", "--json")
    assert wait_for(lambda: begun(home) == members)
    (home / "quick").touch()
    for job in ("100_0", "100_1") if members == 2 else ("100",):
        subprocess.run(["scancel", job, "--signal", "SIGUSR2"], env=cluster, check=True)
    output, error = going.communicate(timeout=300)
    assert (going.returncode, error) == (0, ""), output
    assert {result["status"] for result in json.loads(output)} == {"ok"}
    assert workers_of(home) == []


@pytest.mark.slow
def test_a_stopped_sweep_cancels_its_array_and_leaves_nothing_running(cluster: dict[str, str], plugin) -> None:
    home = home_of(cluster)
    words = ("--plugin", str(plugin(fit=SLOW_FIT)), "--method", "naughty", *CHEAP[2:-1])
    going = sweep(cluster, *words, "--seed", "0-3", "--executor-set", "members=2")
    assert wait_for(lambda: begun(home) == 2)
    going.send_signal(signal.SIGTERM)
    _, error = going.communicate(timeout=300)
    assert going.returncode == 130
    assert "0 of 4 runs are done, 4 are left" in error
    assert wait_for(lambda: workers_of(home) == [], seconds=10)
    assert {record.status for record in Store(home / "records").read()[0]} == {"killed"}
