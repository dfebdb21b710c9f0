"""remove: what goes with a record and what stays, who is asked, and what is left where a removal is interrupted."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.sample_records import png, record, spec

from compbench.api.schemas import Record
from compbench.cli.main import main
from compbench.store import removal
from compbench.store.lease import take
from compbench.store.records import Store
from compbench.store.verify import verify
from compbench.system.errors import Unwritable
from compbench.system.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    return Home.of_user()


def written(home: Home, one: Record) -> Path:
    """A record with a picture, a level, and weights of its run."""
    path = Store(home.records).write(one, {"samples.png": png(4, 4)})
    (home.runs / one.identity).mkdir(parents=True, exist_ok=True)
    (home.runs / one.identity / "model.safetensors").write_bytes(b"0" * 100)
    home.levels.mkdir(parents=True, exist_ok=True)
    (home.levels / f"{one.name}.reproduced.1.json").write_text("{}")
    return path


def called(*arguments: str, said: str | None = None) -> Result:
    return CliRunner().invoke(main, ["remove", *arguments], input=said)


def files(home: Home) -> set[str]:
    return {path.name for folder in (home.records, home.levels, home.runs) for path in folder.rglob("*") if path.is_file()}


def test_with_a_record_go_its_picture_its_level_and_its_weights_and_no_other_files(home: Home) -> None:
    keep, go = record(seed=0), record(seed=10)
    written(home, keep)
    before = files(home)
    written(home, go)
    done = called(go.name, "--yes")
    assert done.exit_code == 0, done.output
    assert "removed 1 record (3 files" in done.output
    assert files(home) == before
    assert not (home.runs / go.identity).exists()
    assert verify(home.records).findings == ()


def test_weights_stay_while_another_attempt_of_the_run_needs_them(home: Home) -> None:
    first, second = record(attempt=1), record(attempt=2)
    for one in (first, second):
        written(home, one)
    assert called(first.name, "--yes").exit_code == 0
    assert (home.runs / first.identity / "model.safetensors").is_file()
    assert called(second.name, "--yes").exit_code == 0
    assert files(home) == set()


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        (("--method", "bad-*"), {"good"}),
        (("--method", "bad-*", "--preset", "smoke"), {"bad-two", "good"}),
        (("--preset", "published"), {"bad-one", "bad-two"}),
        (("--status", "failed"), {"bad-one", "good"}),
        (("--task", "shapes3d-*"), set()),
    ],
)
def test_filters_narrow_each_other(home: Home, filters: tuple[str, ...], left: set[str]) -> None:
    written(home, record(method="bad-one", preset="smoke"))
    written(home, record(method="bad-two", status="failed"))
    written(home, record(method="good", preset="standard"))
    assert called(*filters, "--yes").exit_code == 0
    assert {name.split(".")[1] for name in Store(home.records).names()} == left


def test_an_unknown_status_is_answered_by_the_statuses_that_there_are(home: Home) -> None:
    written(home, record())
    done = called("--status", "bad", "--yes")
    assert (done.exit_code, "not one of 'ok', 'failed'" in done.output) == (2, True)
    assert called("--status", "", "--yes").exit_code == 2
    assert files(home)


def test_nothing_goes_unless_someone_says_yes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(home, record())
    done = called(path.stem)
    assert done.exit_code == 2 or isinstance(done.exception, Exception)
    assert "--yes" in f"{done.output}{done.exception}"
    monkeypatch.setattr("compbench.cli.remove.has_terminal", lambda: True)
    assert called(path.stem, said="n\n").exit_code == 1
    assert path.is_file()
    assert called(path.stem, said="y\n").exit_code == 0
    assert files(home) == set()


def test_a_record_elsewhere_is_refused_also_through_a_path(home: Home, tmp_path: Path) -> None:
    written(home, record())
    other = Store(tmp_path / "leaderboards").write(record(seed=1))
    for name in (str(other), "../leaderboards/" + other.name):
        assert called(name, "--yes").exit_code != 0
    (home.records / other.name).symlink_to(other)
    called(other.stem, "--yes")
    assert other.is_file()


@pytest.mark.parametrize("arguments", [(), ("some", "--method", "x"), ("no-such-record",), ("--method", "none")])
def test_what_asks_for_nothing_removes_nothing(home: Home, arguments: tuple[str, ...]) -> None:
    path = written(home, record())
    assert called(*arguments, "--yes").exit_code != 0
    assert path.is_file()


def test_a_file_that_is_no_record_goes_with_its_pictures(home: Home) -> None:
    path = written(home, record())
    path.write_text("not JSON")
    assert called("--status", "unreadable", "--yes").exit_code == 0
    assert files(home) == set()


def test_a_run_that_is_under_way_keeps_its_record(home: Home) -> None:
    path = written(home, record())
    lease = take(home.leases / f"{record().identity}.lease")
    try:
        done = called(path.stem, "--yes")
    finally:
        lease.release()
    assert "under way" in f"{done.output}{done.exception}"
    assert path.is_file()


def test_an_interrupted_removal_leaves_no_record_and_the_next_run_sweeps_up(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = written(home, record()), Store(home.records)
    (one,) = removal.removals(home, [path])

    def killed(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(removal, "remove_tree", killed)
    with pytest.raises(KeyboardInterrupt):
        removal.remove(home, one._replace(files=one.files[:1]))  # before the picture
    assert store.paths() == []
    store.sweep_up(spec(), record().identity)
    assert list(home.records.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_does_not_stop_a_removal_and_a_read_only_one_does(
    home: Home, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fails(path: Path) -> None:
        error = OSError(number, "no lease can be written")
        raise Unwritable.of(path, error) from error

    path = written(home, record())
    monkeypatch.setattr(removal, "take", fails)
    (going,) = removal.removals(home, [path])
    if number == errno.EROFS:
        with pytest.raises(Unwritable, match="no lease can be written"):
            removal.remove(home, going)
    else:
        removal.remove(home, going)
    assert bool(files(home)) == (number == errno.EROFS)
