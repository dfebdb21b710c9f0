"""`run --dry-run` says what would be run, and runs nothing."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record

from compbench.cli.main import main
from compbench.runner.attempt import Outcome
from compbench.store.records import Store


def test_a_dry_run_says_identity_and_name_and_whether_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    done = record(seed=0)
    path = Store(tmp_path / "records").write(done)
    Store(tmp_path / "records").write(record(seed=1, status="failed"))
    finished = {0: Outcome(done, path, reused=True)}

    def look_up(request, processes):
        return record(seed=request.seed).spec, finished.get(request.seed)

    monkeypatch.setattr("compbench.cli.run.look_up", look_up)
    arguments = ["run", "--method", "factored", "--task", "shapes3d-heavy", "--seed", "0-2", "--dry-run"]
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 0, said.output
    assert said.output.splitlines() == [
        f"identity {done.identity}",
        f"record   {done.name} (is there)",
        f"identity {record(seed=1).identity}",
        f"record   {record(seed=1, attempt=2).name} (none yet; earlier attempts failed)",
        f"identity {record(seed=2).identity}",
        f"record   {record(seed=2).name} (none yet)",
    ]
    found = [json.loads(line) for line in CliRunner().invoke(main, [*arguments, "--json"]).stdout.splitlines()]
    assert [one["there"] for one in found] == [True, False, False]
    assert found[0] == {"identity": done.identity, "record": done.name, "seed": 0, "there": True}
    assert len(Store(tmp_path / "records").paths()) == 2


def test_a_suite_of_one_board_has_the_same_precision_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))

    def identities(*more: str) -> set[str]:
        arguments = ["sweep", "--preset", "smoke", "--seed", "0", "--device", "cpu", "--dry-run", "--json", *more]
        said = CliRunner().invoke(main, arguments)
        assert said.exit_code == 0, said.output
        return {found["identity"] for found in json.loads(said.stdout)}

    suite = identities("--file", "core")
    assert identities("--method", "mono", "--task", "blobs-noniid", "--precision", "bf16") < suite
    assert not identities("--file", "core", "--precision", "fp32") & suite
