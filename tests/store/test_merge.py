"""Merging: every record once, every picture with its record, and nothing half-written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import png
from support.stored import contents, store

from compbench.cli.main import main
from compbench.errors import CompbenchError
from compbench.store.merge import merge
from compbench.store.records import Store
from compbench.store.verify import verify


def accuracies(folder: Path) -> dict[int, float]:
    """Attempt -> accuracy."""
    report = verify(folder)
    assert report.findings == ()
    return {record.attempt: record.score("heldout_accuracy").value for record in report.records}


def test_different_runs_are_copied_byte_for_byte_with_their_pictures(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25, seed=1)
    merged = merge([one, other], tmp_path / "c")
    assert contents(tmp_path / "c") == {**contents(one), **contents(other)}
    assert merged == (2, 0, ())


def test_identical_records_are_taken_once(tmp_path: Path) -> None:
    one = store(tmp_path / "a", 0.5, 0.25)
    other = store(tmp_path / "b", 0.5)
    assert merge([one, other], tmp_path / "c") == (2, 1, ())
    assert contents(tmp_path / "c") == contents(one)


def test_different_records_of_one_attempt_are_numbered_anew_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25)
    merged = merge([one, other], tmp_path / "c")
    assert accuracies(tmp_path / "c") == {1: 0.25, 2: 0.5}
    assert merged.num_records == 2
    ((folder, old, new),) = merged.renumbered
    assert (folder, old[-2:], new[-2:]) == (one, ".1", ".2")
    pictures = {record.attempt: Store(tmp_path / "c").picture(record) for record in verify(tmp_path / "c").records}
    assert pictures == {attempt: png(colour=(round(255 * value), 0, 0)) for attempt, value in {1: 0.25, 2: 0.5}.items()}


def test_the_order_of_the_stores_does_not_show(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5, 0.125), store(tmp_path / "b", 0.25, 0.5, 0.05)
    merge([one, other], tmp_path / "c")
    merge([other, one], tmp_path / "d")
    assert contents(tmp_path / "c") == contents(tmp_path / "d")
    assert accuracies(tmp_path / "c") == {1: 0.05, 2: 0.125, 3: 0.25, 4: 0.5}


def test_merging_again_changes_nothing(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25)
    merge([one, other], tmp_path / "c")
    assert merge([tmp_path / "c", other, one], tmp_path / "d").num_identical == 2
    assert contents(tmp_path / "d") == contents(tmp_path / "c")


def test_a_damaged_store_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25)
    next(other.glob("*.png")).write_bytes(b"another")
    with pytest.raises(CompbenchError, match=r"1 damaged file, such as .*samples.png, which is not the file"):
        merge([one, other], tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_picture_that_one_of_two_copies_lacks_is_taken_from_the_other(tmp_path: Path) -> None:
    one, other, later = (store(tmp_path / name, value) for name, value in (("a", 0.25), ("b", 0.25), ("c", 0.5)))
    next(one.glob("*.png")).unlink()
    merge([one, other], tmp_path / "same")
    assert contents(tmp_path / "same") == contents(other)
    merge([one, later, other], tmp_path / "moved")
    assert verify(tmp_path / "moved").absent == ()


def test_orphans_stay_behind(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25, seed=1)
    (one / "stray.png").write_bytes(b"")
    merge([one, other], tmp_path / "c")
    assert not (tmp_path / "c" / "stray.png").exists()


def test_a_destination_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    one = store(tmp_path / "a", 0.5)
    done = CliRunner().invoke(main, ["merge", str(one), str(one), "--to", str(one)])
    assert (done.exit_code, len(contents(one))) == (2, 2)
    assert "merge into a new folder" in done.output


def test_a_full_disk_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25)
    write, written = Path.write_bytes, []

    def full(path: Path, content: bytes) -> int:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CompbenchError, match="No space left on device; nothing was changed"):
        merge([one, other], tmp_path / "c")
    assert len(written) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
