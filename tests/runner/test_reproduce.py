"""A record is run again with today's code, and what of the code differs is said."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record

from compbench.api.schemas import Code, Record
from compbench.cli.main import main
from compbench.registry.meaning import difference_in_words
from compbench.runner import reproduce as module
from compbench.runner.attempt import Outcome
from compbench.runner.reproduce import reproduce
from compbench.store.records import Store
from compbench.system.devices import num_cores
from compbench.system.errors import Unwritable
from compbench.system.home import Home

PARTS = {"method": "1" * 64, "flow": "2" * 64}


def made(code: str, **parts: str) -> Record:
    return record(code=code, more={"code": Code(parts=parts)})


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """What the run gives; the last request's threads are appended."""
    given: list = [made("b" * 64, **{**PARTS, "flow": "3" * 64})]

    def run(request, *, expected, listener) -> Outcome:
        given.append(request.threads)
        return Outcome(given[0], Path("again.json"), reused=False)

    monkeypatch.setattr(module, "run", run)
    return given


def test_other_code_is_run_and_its_differing_parts_are_said(again, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    path = Store(tmp_path / "records").write(made("a" * 64, **PARTS))
    done = CliRunner().invoke(main, ["reproduce", str(path), "--quiet"])
    assert done.exit_code == 0, done.output
    assert "agrees   heldout_accuracy" in done.output
    assert "reproduced; the code differs in flow: " in done.output
    (level,) = (tmp_path / "levels").glob("*.json")
    assert '"flow"' in level.read_text()


def test_a_larger_tolerance_raises_no_level(again, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    path = Store(tmp_path / "records").write(made("a" * 64, **PARTS))
    done = CliRunner().invoke(main, ["reproduce", str(path), "--quiet", "--tolerance", "0.5"])
    assert done.exit_code == 0, done.output
    assert "no level is written" in done.output
    assert not (tmp_path / "levels").exists()


def test_the_record_s_threads_are_taken_where_the_machine_has_them(again, tmp_path: Path) -> None:
    path = Store(tmp_path / "records").write(made("a" * 64, **PARTS))
    reproduce(path, Home(tmp_path))
    reproduce(path, Home(tmp_path), threads=1)
    assert again[1:] == [min(2, num_cores()), 1]


def test_what_a_killed_reproduction_left_goes_with_the_next(again, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Store(tmp_path / "records").write(made("a" * 64, **PARTS))
    homes, run = [], module.run

    def seen(request, **facts) -> Outcome:
        homes.append(Path(request.home))
        return run(request, **facts)

    monkeypatch.setattr(module, "run", seen)
    reproduce(path, Home(tmp_path))
    homes[0].mkdir()  # no one holds its lock
    (homes[0] / "runs").mkdir()
    reproduce(path, Home(tmp_path))
    assert homes[0] != homes[1]
    assert [home.exists() for home in homes] == [False, False]


def test_a_reproduction_in_a_home_that_cannot_be_written_is_one_line(again, tmp_path: Path) -> None:
    path = Store(tmp_path / "records").write(made("a" * 64, **PARTS))
    (tmp_path / "home").symlink_to(tmp_path / "unmounted")
    with pytest.raises(Unwritable, match="could not write"):
        reproduce(path, Home(tmp_path / "home"))


def test_the_same_code_and_a_record_that_says_none() -> None:
    same, oldest = made("b" * 64, **PARTS), record(code="a" * 64)
    today = made("b" * 64, **PARTS)
    found = [module.Reproduction(one, today, (), ()).differing for one in (same, oldest)]
    assert found == [(), ("unknown",)]
    assert difference_in_words(found[0]) == "the code is the same"
    assert "not known" in difference_in_words(found[1])


def test_a_reproduction_that_was_stopped_says_so_and_nothing_of_the_record(again, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    path = Store(tmp_path / "records").write(made("a" * 64, **PARTS))
    again[0] = record(status="killed", code="a" * 64)
    done = CliRunner().invoke(main, ["reproduce", str(path), "--quiet"])
    assert done.exit_code == 130, done.output
    assert done.stderr == f"stopped: nothing is known of {path.stem} yet; run the command again.\n"
    assert done.stdout == ""
