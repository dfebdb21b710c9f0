"""Nothing overwrites a record: what changed since a commit is found, what was deleted is none."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.stored import store

from compbench.cli.main import main
from compbench.store.format import dump, parse
from compbench.store.history import overwritten
from compbench.system.errors import CompbenchError


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-q", "-m", "records")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    folder = store(tmp_path / "records", 0.5)
    commit(folder)
    return folder


def overwrite(folder: Path) -> None:
    """Another score under the same name, whole and with a right digest."""
    (path,) = folder.glob("*.json")
    found = parse(path.read_bytes())
    better = found.scores[0].model_copy(update={"value": 0.9})
    path.write_bytes(dump(found.model_copy(update={"scores": (better,)})))


def test_new_records_and_deleted_ones_are_no_change(records: Path) -> None:
    store(records, 0.2, seed=3)
    assert overwritten(records, "HEAD") == ()
    commit(records)
    for path in records.glob("*.s0.*"):
        path.unlink()
    assert overwritten(records, "HEAD~1") == ()


def test_a_record_that_was_written_over_is_found_before_and_after_the_commit(records: Path) -> None:
    overwrite(records)
    (path,) = records.glob("*.json")
    assert overwritten(records, "HEAD") == (path.name,)
    commit(records)
    assert overwritten(records, "HEAD~1") == (path.name,)
    assert overwritten(records, "HEAD") == ()
    done = CliRunner().invoke(main, ["verify", str(records), "--against", "HEAD~1"])
    assert done.exit_code == 1
    assert f"record: {path.name} differs from an earlier commit, and records never change" in done.output


def test_a_record_that_was_deleted_and_written_otherwise_later_is_found(records: Path) -> None:
    (path,) = records.glob("*.json")
    content = path.read_bytes()
    path.unlink()
    commit(records)
    path.write_bytes(content)
    assert overwritten(records, "HEAD") == ()
    overwrite(records)
    assert overwritten(records, "HEAD") == (path.name,)


def test_a_record_that_was_put_back_is_no_change_whichever_commit_is_asked(records: Path) -> None:
    (path,) = records.glob("*.json")
    content = path.read_bytes()
    overwrite(records)
    commit(records)
    path.write_bytes(content)
    assert overwritten(records, "HEAD") == ()
    commit(records)
    assert overwritten(records, "HEAD~1") == ()
    assert overwritten(records, "HEAD~2") == ()


def test_a_folder_that_no_commit_knows_holds_new_records_alone(records: Path) -> None:
    assert overwritten(store(records.parent / "others", 0.5), "HEAD") == ()


def test_another_picture_is_found(records: Path) -> None:
    picture = next(records.glob("*.png"))
    picture.write_bytes(b"another")
    assert overwritten(records, "HEAD") == (picture.name,)


def test_what_cannot_be_compared_is_one_clear_line(records: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(CompbenchError, match="cannot be compared with an earlier commit"):
        overwritten(records, "no-such-commit")
    with pytest.raises(CompbenchError, match="cannot be compared with an earlier commit: fatal: not a git repository"):
        overwritten(store(tmp_path_factory.mktemp("elsewhere") / "records", 0.5), "HEAD")
