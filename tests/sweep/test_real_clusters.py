"""Faults on a real SLURM and a real Ray of this machine: nothing is lost, nothing is done twice, and the words are right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from support import real_slurm
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

from compbench.store.records import Store
from compbench.sweep.slurm import OUT_OF_TIME

pytestmark = pytest.mark.slow
needs_slurm = pytest.mark.skipif(bool(real_slurm.why_not()), reason=real_slurm.why_not() or "SLURM is here")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    pytest.importorskip("submitit")
    with real_slurm.started(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@pytest.fixture
def cluster(daemons: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {**os.environ, **daemons, "COMPBENCH_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}


class Sweep:
    """Two runs of a slow fit, each in a member of its own."""

    def __init__(self, cluster: dict[str, str], plugin: Path) -> None:
        self.cluster, self.home = cluster, Path(cluster["COMPBENCH_HOME"])
        own = ("--plugin", str(plugin), "--method", "naughty", *CHEAP[2:-1], "--seed", "0-1", "--json", "--executor", "slurm")
        small = ("members=2", "cpus=1", "memory_gb=1", "minutes=9", "stop_seconds=30", "look_seconds=0.5")
        words = [*own, *(word for setting in small for word in ("--executor-set", setting))]
        self.process = start(self.home, *words, environment=cluster)
        assert wait_for(lambda: begun(self.home) == 2)
        (folder,) = (self.home / "slurm").iterdir()
        self.job = json.loads((folder / "array.json").read_text())["job"]

    def tell(self, *words: str) -> None:
        subprocess.run(words, env=self.cluster, check=True, timeout=60)

    def goes_on(self) -> None:
        (self.home / "quick").touch()

    def ended(self) -> tuple[int, list[dict[str, str]], str]:
        output, error = self.process.communicate(timeout=300)
        assert workers_of(self.home) == []
        return self.process.returncode, json.loads(output), error

    def records(self) -> list[tuple[int, str]]:
        return sorted((record.spec.seed, record.status) for record in Store(self.home / "records").read()[0])


@needs_slurm
def test_members_whose_time_is_nearly_up_save_are_queued_again_and_go_on(cluster: dict[str, str], plugin) -> None:
    sweep = Sweep(cluster, plugin(fit=SLOW_FIT))
    sweep.tell("scancel", "--signal=USR2", sweep.job)  # as `--signal` of the job does: to every process of the steps
    assert wait_for(lambda: len(sweep.records()) == 2)
    sweep.goes_on()
    status, results, error = sweep.ended()
    assert (status, [result["status"] for result in results], error) == (0, ["ok", "ok"], "")
    assert sweep.records() == [(0, "killed"), (0, "ok"), (1, "killed"), (1, "ok")]
    reasons = {record.reason for record in Store(sweep.home / "records").read()[0] if record.status == "killed"}
    assert reasons == {f"{OUT_OF_TIME}; continue with --resume"}


@needs_slurm
@pytest.mark.parametrize("fault", ["cancelled", "preempted"])
def test_a_member_that_the_cluster_ended_is_told_in_its_words(cluster: dict[str, str], plugin, fault: str) -> None:
    sweep = Sweep(cluster, plugin(fit=SLOW_FIT))
    if fault == "cancelled":
        sweep.tell("scancel", f"{sweep.job}_0")
    else:
        sweep.tell("sbatch", "-p", "first", f"-c{real_slurm.CPUS - 1}", "--mem=100M", "-o/dev/null", "--wrap=true")
    assert wait_for(lambda: len(sweep.records()) == 1)
    sweep.goes_on()
    status, results, error = sweep.ended()
    assert sorted(result["status"] for result in results) == ["killed", "ok"]
    assert status == 1
    (lost,) = (result["reason"] for result in results if result["status"] == "killed")
    assert f" ended as {fault.upper()}" in lost
    assert "1 of 2 runs are done, 1 are left" in error


@needs_slurm
def test_a_suspended_member_lives(cluster: dict[str, str], plugin) -> None:
    sweep = Sweep(cluster, plugin(fit=SLOW_FIT))
    sweep.tell("scontrol", "suspend", f"{sweep.job}_0")
    with pytest.raises(subprocess.TimeoutExpired):
        sweep.process.wait(timeout=5)
    sweep.tell("scontrol", "resume", f"{sweep.job}_0")
    sweep.goes_on()
    status, _, _ = sweep.ended()
    done = [
        one for one in sweep.records() if one[1] == "ok"
    ]  # this SLURM may send its signal on resuming: then it is queued again
    assert (status, done) == (0, [(0, "ok"), (1, "ok")])


@needs_slurm
def test_ctrl_c_ends_the_array_with_checkpoints(cluster: dict[str, str], plugin) -> None:
    sweep = Sweep(cluster, plugin(fit=SLOW_FIT))
    sweep.process.send_signal(signal.SIGINT)
    status, results, _ = sweep.ended()
    assert status == 130
    assert {result["reason"] for result in results} == {"stopped by Ctrl-C; continue with --resume"}
    assert sweep.records() == [(0, "killed"), (1, "killed")]
    queue = subprocess.run(["squeue", "-h", "-j", sweep.job], env=cluster, capture_output=True, text=True, timeout=60)
    assert queue.stdout == ""


@needs_ray
def test_a_run_whose_ray_worker_was_killed_is_done_once_says_so_and_repeats_no_step(tmp_path: Path, plugin) -> None:
    assert_resumes_after_its_worker_was_killed(tmp_path / "home", plugin(fit=STEPPED_FIT), {})


@needs_ray
def test_ray_on_two_cores_says_that_it_has_two_slots(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ray = import_module("ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        address = f"address={ray.get_runtime_context().gcs_address}"
        words = ("--executor", "ray", "--executor-set", address, *CHEAP[:-1], "--seed", "0-2", "--json")
        output, error = start(home, *words, environment={"OMP_NUM_THREADS": "1"}, quiet=False).communicate(timeout=300)
    finally:
        ray.shutdown()
    assert [result["status"] for result in json.loads(output)] == ["ok"] * 3, error
    assert "compbench: Ray has 2 slots for 3 runs, up to 2 on one node" in error.splitlines()
    assert {record.environment.slots for record in Store(home / "records").read()[0]} == {2}
