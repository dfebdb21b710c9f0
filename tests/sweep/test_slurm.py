"""Sweeps past one machine, on a SLURM of files and background processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from support import fake_slurm, template
from support.real_sweeps import CHEAP, SLOW_FIT, begun, start, wait_for, workers_of

from compbench.api.executor import RunResult, SweepOptions
from compbench.api.schemas import RunRequest
from compbench.store.records import Store
from compbench.sweep import scheduler, slurm
from compbench.sweep.ledger import ledger_of, read_ledger, tell
from compbench.sweep.scheduler import Silent, State
from compbench.sweep.slurm import OUT_OF_TIME, Member, SlurmSettings

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
    words += ("--executor-set", 'extra={"reservation":"night"}')
    going = sweep({**cluster, template.PLACE: template.TEMPLATE.place()}, *CHEAP, "--seed", "0-4", *words)
    output, error = going.communicate(timeout=300)
    assert (going.returncode, error) == (0, "")
    results = json.loads(output)
    assert [(result["seed"], result["status"]) for result in results] == [(seed, "ok") for seed in range(5)]
    records, problems = Store(home_of(cluster) / "records").read()
    assert problems == []
    assert sorted(record.spec.seed for record in records) == list(range(5))
    assert sorted(record.environment.predecessors for record in records) == [0, 0, 1, 1, 2]  # shares of three and two, chained
    submitted = (Path(cluster["FAKE_SLURM"]) / "100.submitted").read_text()
    for line in ("--array=0-1%2", "--partition=short", "--time=7", "--signal=USR2@120", "--mem=8192MB", "--cpus-per-task=2"):
        assert f"#SBATCH {line}\n" in submitted
    assert "#SBATCH --reservation=night\n" in submitted
    assert {record.environment.threads for record in records} == {2}  # the member's cores, not the node's
    assert list((home_of(cluster) / "slurm").iterdir()) == []  # nothing is left of an array that went well


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


LOUD = """
import submitit

quiet = submitit.SlurmExecutor.submit


def submit(self, function):
    logger = submitit.core.logger.get_logger()
    logger.info("submitit says something")
    logger.warning("submitit warns")
    return quiet(self, function)


submitit.SlurmExecutor.submit = submit
"""
"""Python runs this at its start, where it finds it as `sitecustomize`."""


@pytest.mark.slow
def test_submitit_never_writes_to_standard_output(cluster: dict[str, str], tmp_path: Path) -> None:
    commands = Path(cluster["FAKE_SLURM"]) / "bin"
    (commands / "sbatch").write_text("#!/bin/sh\necho Submitted batch job 77\n")
    (tmp_path / "loud").mkdir()
    (tmp_path / "loud" / "sitecustomize.py").write_text(LOUD)
    loud = {**cluster, "PYTHONPATH": str(tmp_path / "loud")}
    output, error = sweep(loud, *CHEAP, "--seed", "0", "--executor-set", "wait=false", "--json").communicate(timeout=300)
    (result,) = json.loads(output)
    assert (result["status"], error) == ("queued", "")


@pytest.mark.slow
def test_a_cluster_that_refuses_is_quoted(cluster: dict[str, str]) -> None:
    commands = Path(cluster["FAKE_SLURM"]) / "bin"
    (commands / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: short' >&2; exit 1\n")
    going = sweep(cluster, *CHEAP, "--seed", "0-2")
    output, error = going.communicate(timeout=300)
    assert (going.returncode, output) == (2, "")
    last = error.splitlines()[-1]  # what stands before is sbatch's own
    assert last == "compbench: SLURM refused the job: sbatch: error: invalid partition specified: short"
    assert list((home_of(cluster) / "slurm").iterdir()) == []


def test_without_slurm_or_submitit_the_sweep_says_what_is_missing(cluster: dict[str, str]) -> None:
    commands = Path(cluster["FAKE_SLURM"]) / "bin"
    (commands / "squeue").unlink()
    error = sweep({**cluster, "PATH": str(commands)}, *CHEAP, "--seed", "0-2").communicate(timeout=300)[1]
    assert error == "compbench: executor 'slurm' needs squeue on PATH: run this on a machine where jobs are submitted.\n"
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
    request = RunRequest.of(task="gmm-id", method="mono", home=str(tmp_path))

    def stopped_by_slurm(requests, how, *, stopping, finished) -> None:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert any(stopping.wait(0.1) for _ in range(100))  # by turns, as a sweep does: another thread may have had the signal
        finished(0, RunResult("mono", "gmm-id", 0, "killed", stopping.why, 1.0, False, "", ""))

    monkeypatch.setattr("compbench.sweep.slurm.work_through", stopped_by_slurm)
    monkeypatch.setattr("compbench.sweep.slurm.subprocess.run", lambda command, **options: asked.append(command))
    for requeues in (1, 0):
        with pytest.raises(SystemExit):
            Member([request], SweepOptions(), tmp_path / "ledger", requeues=requeues)()
        assert asked == [["scontrol", "requeue", job]]
        assert len(read_ledger(tmp_path / "ledger")) == 1 - requeues  # its next life has the word


def test_a_torn_line_of_a_ledger_hides_no_other(tmp_path: Path) -> None:
    results = [RunResult("mono", "gmm-id", seed, "ok", "", 1.0, False, "", "") for seed in range(3)]
    ledger = ledger_of(tmp_path, 0)
    tell(ledger, 0, results[0])
    with ledger.open("a") as file:
        file.write('{"index": 1, "met')
    tell(ledger, 2, results[2])
    assert read_ledger(ledger) == {0: results[0], 2: results[2]}


@pytest.mark.parametrize(("minutes", "stop_seconds"), [(1, 30), (4, 120), (2, 31)])
def test_a_member_without_time_to_work_is_refused(minutes: int, stop_seconds: int) -> None:
    with pytest.raises(ValidationError, match="no time to work"):
        SlurmSettings(minutes=minutes, stop_seconds=stop_seconds)
    assert SlurmSettings(minutes=2, stop_seconds=30).minutes == 2


ANSWERS = {
    "7_0|RUNNING|None\n7_1|PENDING|BeginTime\n": {"7_0": State("RUNNING", ""), "7_1": State("PENDING", "BeginTime")},
    "Welcome to the cluster|of|2026\n7|SUSPENDED|None\n": {"7": State("SUSPENDED", "")},
    "": {},
}


def answering(monkeypatch: pytest.MonkeyPatch, *, output: str = "", error: str = "", code: int = 0) -> None:
    done = subprocess.CompletedProcess([], code, output, error)
    monkeypatch.setattr("compbench.sweep.scheduler.subprocess.run", lambda *given, **named: done)


@pytest.mark.parametrize("text", ANSWERS)
def test_who_is_in_the_queue_lives_whatever_its_state(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, output=text)
    assert scheduler.queued("7") == ANSWERS[text]


def test_a_forgotten_job_has_ended_and_a_silent_controller_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, error="slurm_load_jobs error: Invalid job id specified", code=1)
    assert scheduler.queued("7") == {}
    answering(monkeypatch, error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)", code=1)
    with pytest.raises(Silent, match="Unable to contact"):
        scheduler.queued("7")


def test_a_command_of_slurms_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("compbench.sweep.scheduler.COMMAND_SECONDS", 0.2)
    with pytest.raises(Silent, match=r"squeue did not answer for 0\.2 s"):
        scheduler.queued("7")


def test_states_are_counted_with_the_reason_for_which_members_wait() -> None:
    states = [State("PENDING", "Resources"), State("RUNNING", "None"), State("PENDING", "Resources"), State("SUSPENDED", "")]
    assert scheduler.summary(states) == "1 running, 2 pending (Resources), 1 suspended"


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_a_member_out_of_time_is_queued_again_and_goes_on(cluster: dict[str, str], plugin, members: int) -> None:
    home = home_of(cluster)
    cluster |= {fake_slurm.REQUEUE_SECONDS: "3"}
    words = ("--plugin", str(plugin(fit=SLOW_FIT)), "--method", "naughty", *CHEAP[2:-1])
    going = sweep(cluster, *words, "--seed", "0-1", "--executor-set", f"members={members}", "--json")
    assert wait_for(lambda: begun(home) == members)
    for job in ("100_0", "100_1") if members == 2 else ("100",):
        subprocess.run(["scancel", job, "--signal", "SIGUSR2"], env=cluster, check=True)
    assert wait_for(lambda: len(list(home.glob("records/*.json"))) == members)  # killed, with a checkpoint, and not failed
    (home / "quick").touch()
    output, error = going.communicate(timeout=300)
    assert (going.returncode, error) == (0, ""), output
    records = Store(home / "records").read()[0]
    assert sorted(record.status for record in records) == sorted(["killed"] * members + ["ok"] * 2)
    assert {record.reason for record in records if record.status == "killed"} == {f"{OUT_OF_TIME}; continue with --resume"}
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"), [(("scancel", "100_0"), "CANCELLED"), (("scontrol", "preempt", "100_0"), "PREEMPTED")]
)
def test_a_member_that_the_cluster_ended_is_named_in_slurms_words_without_accounting(
    cluster: dict[str, str], plugin, command: tuple[str, ...], said: str
) -> None:
    home = home_of(cluster)
    cluster |= {fake_slurm.NO_ACCOUNTING: "1"}
    words = ("--plugin", str(plugin(fit=SLOW_FIT)), "--method", "naughty", *CHEAP[2:-1])
    going = sweep(cluster, *words, "--seed", "0-1", "--executor-set", "members=2", "--json")
    assert wait_for(lambda: begun(home) == 2)
    subprocess.run(command, env=cluster, check=True)
    assert wait_for(lambda: len(list(home.glob("records/*.json"))) == 1)
    (home / "quick").touch()
    output, error = going.communicate(timeout=300)
    assert going.returncode == 1  # no one pressed Ctrl-C
    assert [result["status"] for result in json.loads(output)] == ["killed", "ok"]
    assert f"member 100_0 ended as {said}; continue with --resume" in json.loads(output)[0]["reason"]
    assert "1 of 2 runs are done, 1 are left" in error


def result(seed: int, status: str, reason: str = "") -> RunResult:
    return RunResult("mono", "gmm-id", seed, status, reason, 1.0, False, "", "")


class StandIn:
    """A job array whose members have ended as `script` says: one list of results an array, in order."""

    script: list[list[RunResult]] = []
    submitted: list[list[int]] = []

    def __init__(self, settings: SlurmSettings, requests: list[RunRequest], how: SweepOptions, folder: Path) -> None:
        self.seeds, self.resume, self.facts = [request.seed for request in requests], how.resume, SimpleNamespace(job="7")
        self.cancelled = False

    def submit(self) -> None:
        assert self.resume == bool(self.submitted)  # those that were lost go on from their checkpoints
        self.submitted.append(self.seeds)

    def all_done(self) -> bool:
        return True

    def read(self, listener: object) -> None: ...

    def results(self, stopping: object) -> list[RunResult]:
        return list(self.script[len(self.submitted) - 1])


def test_what_slurm_lost_with_a_member_is_submitted_again_and_wrong_code_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_Array", StandIn)
    requests = [RunRequest.of(task="gmm-id", method="mono", seed=seed, home=str(tmp_path)) for seed in range(4)]
    lost = "member 7_1 ended as NODE_FAIL"
    StandIn.script = [
        [
            result(0, "ok"),
            result(1, "killed", f"{lost}; continue with --resume"),
            result(2, "failed", "its code"),
            result(3, "left", lost),
        ],
        [result(1, "ok"), result(3, "left", lost)],
        [result(3, "ok")],
    ]
    for retries, submitted in ((0, [[0, 1, 2, 3]]), (1, [[0, 1, 2, 3], [1, 3]]), (5, [[0, 1, 2, 3], [1, 3], [3]])):
        monkeypatch.setattr(StandIn, "submitted", [])
        found = slurm.work(SlurmSettings(), requests, SweepOptions(retries=retries), lambda *facts: None)
        assert StandIn.submitted == submitted
        assert [one.seed for one in found] == [0, 1, 2, 3]
    assert [one.status for one in found] == ["ok", "ok", "failed", "ok"]


def array_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, members: int = 3, most: int = 0) -> slurm._Array:
    """A submitted array of three runs on a cluster that only takes jobs."""
    monkeypatch.setattr(slurm.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(slurm, "_within_time", lambda call: [SimpleNamespace(job_id="9_0")])
    monkeypatch.setattr(scheduler, "max_array_size", lambda: most)
    requests = [RunRequest.of(task="gmm-id", method="mono", seed=seed, home=str(tmp_path)) for seed in range(3)]
    array = slurm._Array(
        SlurmSettings(members=members, look_seconds=0.5), requests, SweepOptions(max_failures=2), tmp_path / "array"
    )
    array.submit()
    return array


def test_a_cluster_of_small_arrays_gets_no_larger_one_and_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert array_of(tmp_path, monkeypatch, most=2).facts.shares == ((0, 2), (1,))
    assert "at most 2 members here (MaxArraySize), so this one has as many, not 3" in caplog.text


def test_the_command_says_job_and_folder_and_each_change_of_who_waits_and_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    array = array_of(tmp_path, monkeypatch)
    waiting, running = State("PENDING", "Resources"), State("RUNNING", "")
    looks = [{"9_0": waiting, "9_1": waiting, "9_2": waiting}] * 2
    looks += [{"9_0": running, "9_1": waiting, "9_2": waiting}] * 2 + [{"9_0": State("PENDING", "BeginTime"), "9_1": running}]
    answers = iter(looks)
    monkeypatch.setattr(scheduler, "queued", lambda job: next(answers))
    for _ in looks:
        array._look()
    assert caplog.messages == [
        f"job 9, 3 members; logs in {tmp_path / 'array'}",
        "job 9: 3 pending (Resources)",
        "job 9: 1 running, 2 pending (Resources)",
        "job 9: 1 running, 1 pending (BeginTime), 1 of them queued again",
    ]


def test_a_member_that_died_at_its_start_is_told_with_slurms_reason_and_its_logs_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = array_of(tmp_path, monkeypatch)
    (tmp_path / "array" / "9_1_0_log.err").write_text("Traceback\nRuntimeError: which environment?\n")
    monkeypatch.setattr(scheduler, "endings", lambda job: {"9_1": State("FAILED", "")})
    reason = array.results(slurm.Stopping())[1].reason
    assert reason.startswith('member 9_1 ended as FAILED; its log ends with "RuntimeError: which environment?" (')


def test_an_array_is_ended_once_too_many_runs_of_all_its_members_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array, ended = array_of(tmp_path, monkeypatch), []
    monkeypatch.setattr(scheduler, "cancel", ended.append)
    monkeypatch.setattr(scheduler, "queued", lambda job: {} if ended else {f"{job}_0": State("RUNNING", "")})
    monkeypatch.setattr(scheduler, "endings", lambda job: {})
    for member in (0, 1):
        tell(ledger_of(tmp_path / "array", member), 0, result(member, "failed", "its code"))
    found = slurm._seen_through(array, SweepOptions(max_failures=2), lambda *facts: None, slurm.Stopping())
    assert ended == ["9"]
    assert [one.status for one in found] == ["failed", "failed", "left"]
    assert "2 runs" in found[2].reason


def test_a_member_that_one_look_missed_has_not_ended_if_slurm_then_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, clock, answers = array_of(tmp_path, monkeypatch), [0.0], iter([{}, None, None])

    def queued(job: str) -> dict[str, State]:
        if (answer := next(answers)) is None:
            raise Silent("squeue did not answer")
        return answer

    monkeypatch.setattr(scheduler, "queued", queued)
    monkeypatch.setattr(slurm, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for _ in range(3):
        assert not array.all_done()
        clock[0] += 1000.0


def test_a_silent_controller_is_said_once_and_a_cancel_that_failed_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def silent(job: str) -> None:
        raise Silent("Unable to contact slurm controller")

    array = array_of(tmp_path, monkeypatch)
    monkeypatch.setattr(scheduler, "queued", silent)
    monkeypatch.setattr(scheduler, "cancel", silent)
    caplog.clear()
    for _ in range(3):
        array._look()
    array.cancel()
    first, second = caplog.messages
    assert first.startswith("SLURM does not answer (Unable to contact slurm controller)")
    assert second.endswith("type: scancel 9")


@pytest.mark.slow
def test_a_suspended_member_lives_and_its_sweep_waits(cluster: dict[str, str], plugin) -> None:
    home = home_of(cluster)
    words = ("--plugin", str(plugin(fit=SLOW_FIT)), "--method", "naughty", *CHEAP[2:-1])
    environment = {**cluster, "COMPBENCH_HOME": str(home)}
    going = start(home, "--executor", "slurm", *words, "--executor-set", "look_seconds=0.5", environment=environment)
    assert wait_for(lambda: begun(home) == 1)
    subprocess.run(["scontrol", "suspend", "100"], env=cluster, check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        going.communicate(timeout=5)
    subprocess.run(["scontrol", "resume", "100"], env=cluster, check=True)
    (home / "quick").touch()
    going.communicate(timeout=300)
    assert going.returncode == 0
