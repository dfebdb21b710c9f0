import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest
from support.sample_records import record

from compbench.api.schemas import RunRequest
from compbench.cli.sweep import _exit_status
from compbench.runner.processes import Child, Processes
from compbench.runner.worker import explain
from compbench.store.records import Store
from compbench.sweep import pool
from compbench.sweep.pool import SweepOptions, cards_of, work_through
from compbench.system.errors import Unwritable


def requests(home: Path, plugin_file: Path) -> list[RunRequest]:
    facts = {"task": "blobs-iid", "preset": "smoke", "device": "cpu", "threads": 1, "home": str(home)}
    good = [RunRequest(method="mono", seed=seed, **facts) for seed in (0, 1)]
    return [*good, RunRequest(method="naughty", plugins=(str(plugin_file),), **facts)]


def test_a_sweep_runs_what_is_missing_and_goes_on_past_a_failure(home: Path, plugin) -> None:
    asked = requests(home, plugin(fit="raise ValueError('no luck')"))
    first = work_through(asked, SweepOptions(slots=2))
    assert [result.status for result in first] == ["ok", "ok", "failed"]
    assert "no luck" in first[2].reason
    before = set(Store(home / "records").paths())
    again = work_through(asked[:2], SweepOptions(slots=1))
    assert [result.reused for result in again] == [True, True]
    assert set(Store(home / "records").paths()) == before


def test_what_ended_without_a_score_is_run_again_in_its_turn_and_not_after_all_that_never_began(home: Path, plugin) -> None:
    asked = requests(home, plugin(fit="raise ValueError('no luck')"))
    work_through(asked[2:], SweepOptions(slots=1))
    order: list[int] = []
    new = asked[0].model_copy(update={"seed": 9})
    work_through([asked[2], new], SweepOptions(slots=1), finished=lambda index, result: order.append(index))
    assert order == [0, 1]


def test_runs_side_by_side_share_the_cores_and_say_so(home: Path, plugin) -> None:
    asked = [request.model_copy(update={"threads": 0}) for request in requests(home, plugin())[:1]]
    (result,) = work_through(asked, SweepOptions(slots=2, force=True))
    record = next(r for r in Store(home / "records").read()[0] if result.path.endswith(f"{r.name}.json"))
    assert record.environment.slots == 2
    assert record.environment.threads >= 1


def test_chained_runs_score_as_runs_with_processes_of_their_own(tmp_path: Path) -> None:
    facts = {"task": "gauss2d-nonfact-id", "preset": "smoke", "device": "cpu", "threads": 1, "home": str(tmp_path)}
    few = {"budget.train_steps": 20, "budget.sample_steps": 4}
    asked = [RunRequest(method="fkc", seed=seed, overrides={**few, "num_particles": 2}, **facts) for seed in (0, 1)]
    asked.append(RunRequest(method="naive-ode", seed=1, overrides=few, **facts))
    chained = work_through(asked, SweepOptions(slots=1, chain=True))
    assert [result.status for result in chained] == ["ok"] * 3
    alone = work_through(asked, SweepOptions(slots=1, force=True))
    records = {record.name: record for record in Store(tmp_path / "records").read()[0]}
    for before, after in zip(chained, alone, strict=True):
        one, two = (records[Path(result.path).stem] for result in (before, after))
        assert [score.value for score in one.scores] == [score.value for score in two.scores]
        assert two.environment.predecessors == 0
    assert [records[Path(result.path).stem].environment.predecessors for result in chained] == [0, 1, 0]


def test_a_failure_in_a_chain_takes_its_processes_with_it(home: Path, plugin) -> None:
    """The next run of the method starts again."""
    file = plugin(fit="if ctx.generator.initial_seed() % 3 == 1: raise ValueError('no luck')")
    facts = {"task": "gauss2d-fact-id", "method": "naughty", "preset": "smoke", "device": "cpu", "threads": 1, "home": str(home)}
    asked = [RunRequest(seed=seed, plugins=(str(file),), **facts) for seed in range(4)]
    results = work_through(asked, SweepOptions(slots=1, chain=True))
    assert {result.status for result in results} == {"ok", "failed"}, [result.reason for result in results]
    records = {record.name: record for record in Store(home / "records").read()[0]}
    expected, count = [], 0
    for result in results:
        expected.append(count)
        count = count + 1 if result.status == "ok" else 0
    assert [records[Path(result.path).stem].environment.predecessors for result in results] == expected


@pytest.mark.parametrize(
    ("asked", "listed", "entries"),
    [
        ("auto", "0,2,5", {0: "0", 1: "2", 2: "5"}),
        ("cuda", "GPU-8932f937-d72c,MIG-1fa2/3/0", {0: "GPU-8932f937-d72c", 1: "MIG-1fa2/3/0"}),
        ("cuda:1", "0,2,5", {1: "2"}),
        ("cuda:3", "0,2,5", {}),  # the run says that there is none
        ("cuda:one", "0", {}),
        ("cuda", "3,-1,4", {0: "3"}),
        ("cuda", "3,0;1,4", {0: "3"}),
        ("cuda", "", {}),
        ("cpu", "0,1", {}),
    ],
)
def test_slots_take_the_gpus_that_the_environment_shows(
    asked: str, listed: str, entries: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_num_cards", lambda: 6)
    assert {card.number: card.entry for card in cards_of(asked, {"CUDA_VISIBLE_DEVICES": listed})} == entries


@pytest.mark.parametrize("listed", ["0", "NoDevFiles", "0;1"])
def test_a_machine_without_gpus_has_none_for_auto_whatever_the_environment_shows(
    listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 30)

    monkeypatch.setattr(pool, "DRIVER", Path("/no/such/driver"))
    for run in (subprocess.run, hangs):
        monkeypatch.setattr(pool.subprocess, "run", run)
        monkeypatch.setenv("PATH", "")
        assert cards_of("auto", {"CUDA_VISIBLE_DEVICES": listed}) == []


def test_a_container_without_nvidias_tool_has_the_gpus_that_the_environment_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version").touch()
    monkeypatch.setattr(pool, "DRIVER", tmp_path / "version")
    monkeypatch.setenv("PATH", "")
    assert [card.entry for card in cards_of("auto", {"CUDA_VISIBLE_DEVICES": "0,1"})] == ["0", "1"]


def test_without_a_list_slots_take_all_gpus_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: H100 (UUID: GPU-1)'; echo '  MIG 1g (UUID: MIG-2)'; echo 'GPU 1: H100 (UUID: GPU-3)'\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert [card.entry for card in cards_of("auto", {})] == ["0", "1"]
    assert [card.entry for card in cards_of("cuda:1", {})] == ["1"]
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cards_of("auto", {}) == []


def test_a_slot_s_processes_see_its_card_alone_and_the_record_says_which(
    home: Path, plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "cards_of", lambda asked: cards_of("cuda", {"CUDA_VISIBLE_DEVICES": "6,GPU-7"}))
    placed = pool._Pool._placed
    on_cpu = {"device": "cpu"}  # what the children find there is not what is asked here

    def as_placed(own: pool._Pool, request: RunRequest, slot: int) -> RunRequest:
        found = placed(own, request, slot)
        assert found.device == "cuda:0"
        return found.model_copy(update=on_cpu)

    monkeypatch.setattr(pool._Pool, "_placed", as_placed)
    says = "import os; ctx.notes['seen'] = {'6': 6, 'GPU-7': 7}.get(os.environ['CUDA_VISIBLE_DEVICES'], 0)"
    file = plugin(fit=says)
    facts = {"task": "blobs-iid", "preset": "smoke", "device": "cuda", "threads": 1, "home": str(home)}
    asked = [RunRequest(method="naughty", seed=seed, plugins=(str(file),), **facts) for seed in range(2)]
    results = work_through(asked, SweepOptions(force=True))
    assert [result.status for result in results] == ["ok", "ok"]
    records = [record for record in Store(home / "records").read()[0] if record.environment.card is not None]
    assert {(record.environment.card, record.notes["fit seen"]) for record in records} <= {(0, 6.0), (1, 7.0)}
    assert len(records) == 2


def test_processes_of_another_card_are_started_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Child, "__init__", lambda child, role, *rest, calm: None)
    monkeypatch.setattr(Child, "begin", lambda child, request: None)
    monkeypatch.setattr(Child, "process", type("Alive", (), {"poll": staticmethod(lambda: None)})(), raising=False)
    monkeypatch.setattr(Child, "stop", lambda child, gracefully=False: None)
    processes = Processes(home)
    one, other = (
        RunRequest(task="t", method="m", home=str(home), card=card) for card in cards_of("cuda", {"CUDA_VISIBLE_DEVICES": "0,1"})
    )
    first = processes.take(one)
    assert processes.take(one) is first
    assert processes.take(other) is not first


def test_a_sweep_stops_once_too_many_runs_have_failed(home: Path, plugin) -> None:
    asked = requests(home, plugin(fit="raise ValueError('no luck')"))
    failing = [asked[2].model_copy(update={"seed": seed}) for seed in range(4)]
    results = work_through(failing, SweepOptions(slots=1, max_failures=2))
    assert [result.status for result in results] == ["failed", "failed", "left", "left"]
    assert {result.reason for result in results[2:]} == {"2 runs failed (--max-failures 2)"}


@pytest.mark.parametrize(("error", "attempts"), [("OSError(28, 'No space left on device')", 2), ("ValueError('no luck')", 1)])
def test_a_run_that_a_disk_lost_is_tried_again_and_wrong_code_is_not(home: Path, plugin, error: str, attempts: int) -> None:
    asked = requests(home, plugin(fit=f"raise {error}"))[2:]
    before = len(Store(home / "records").read()[0])
    (result,) = work_through(asked, SweepOptions(slots=1, retries=1))
    assert result.status == "failed"
    assert len(Store(home / "records").read()[0]) == before + attempts


def test_a_run_of_ours_that_a_disk_lost_is_known_by_its_reason_which_names_no_folder(tmp_path: Path) -> None:
    found = explain(Unwritable.of(tmp_path / "checkpoint.safetensors", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    assert found.reason == "could not write checkpoint.safetensors: [Errno 28] No space left on device"
    assert pool.is_lost(record(status="failed", more={"reason": found.reason}))


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ("left", pool.STOPPED, 130),
        ("killed", "stopped by SIGTERM; continue with --resume", 130),
        ("left", "2 runs failed (--max-failures 2)", 1),
        ("killed", "member 7_0 ended as CANCELLED; continue with --resume", 1),
        ("usage", "no such setting", 2),
    ],
)
def test_the_exit_status_is_130_only_where_the_command_itself_was_stopped(status: str, reason: str, code: int) -> None:
    assert _exit_status([pool.RunResult("mono", "gmm-id", 0, status, reason, 0.0, False, "", "")]) == code
