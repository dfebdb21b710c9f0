"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from compbench.system import files
from compbench.system.files import held, lock, publish, remove_parts, write_atomically


@pytest.mark.parametrize("write", [publish, lambda source, path: write_atomically(path, source.read_bytes())])
def test_a_write_that_is_interrupted_leaves_nothing_and_keeps_what_was_there(
    write: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path = tmp_path / "source", tmp_path / "folder" / "file"
    source.write_text("new")
    path.parent.mkdir()
    path.write_text("old")

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)  # before the name is given, all must be on the disk
    with pytest.raises(KeyboardInterrupt):
        write(source, path)
    assert [found.read_text() for found in path.parent.iterdir()] == ["old"]
    monkeypatch.undo()
    write(source, path)
    assert [found.read_text() for found in path.parent.iterdir()] == ["new"]


def test_parts_of_killed_writers_go_and_whole_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "model.safetensors", b"whole")
    (tmp_path / ".hidden").touch()
    monkeypatch.setattr(os, "unlink", lambda name: None)
    monkeypatch.setattr(os, "replace", lambda name, path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "checkpoint.safetensors", b"part")
    assert len(list(tmp_path.iterdir())) == 3
    monkeypatch.undo()
    remove_parts(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", ".hidden"}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_locks_costs_double_work_and_no_run(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: object, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with held(tmp_path / "judge"), (tmp_path / "other").open("w") as file:
        assert not lock(file, wait=True)


def test_a_lock_that_another_process_holds_is_waited_for(tmp_path: Path) -> None:
    def give_up() -> None:
        raise TimeoutError

    with held(tmp_path / "judge"), pytest.raises(TimeoutError), held(tmp_path / "judge", waiting=give_up):
        raise AssertionError("two processes hold one lock")
