"""The parent reaches a plugin's files by descriptors: a link on the way counts as nothing."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from compbench.system.errors import CompbenchError
from compbench.system.files import publish, remove_tree
from compbench.system.plugin_folder import PluginFolder


def test_a_plain_file_is_published_and_a_link_to_its_folder_hides_it(tmp_path: Path) -> None:
    own, real = tmp_path / "own", tmp_path / "real"
    for folder in (own / "run", real):
        folder.mkdir(parents=True)
        (folder / "made").write_bytes(folder.name.encode())
    folder = PluginFolder(own, "run")
    folder.publish("made", tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == b"run"
    (own / "run").rename(own / "was")
    (own / "run").symlink_to(real)
    assert not folder.holds("made")
    assert folder.files() == {}
    with pytest.raises(CompbenchError, match="^made cannot be published"):
        folder.publish("made", tmp_path / "kept")
    with pytest.raises(OSError, match="run"):
        folder.link(tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == b"run"
    assert os.listdir(real) == ["made"]


def test_a_folder_that_is_swapped_for_a_link_all_the_time_never_gives_a_file_of_the_links_target(tmp_path: Path) -> None:
    own, real, stop = tmp_path / "own", tmp_path / "real", threading.Event()
    for folder in (own / "run", real):
        folder.mkdir(parents=True)
        (folder / "made").write_bytes(folder.name.encode())
    (own / "link").symlink_to(real)

    def swap() -> None:
        while not stop.is_set():
            (own / "run").rename(own / "other")
            (own / "link").rename(own / "run")
            (own / "run").rename(own / "link")
            (own / "other").rename(own / "run")

    swapping = threading.Thread(target=swap)
    swapping.start()
    found = set()
    try:
        for number in range(300):
            try:
                PluginFolder(own, "run").publish("made", tmp_path / str(number))
                found.add((tmp_path / str(number)).read_bytes())
            except CompbenchError:
                continue
    finally:
        stop.set()
        swapping.join()
    assert found <= {b"run"}


def test_a_tree_that_is_a_link_is_deleted_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "precious").write_text("precious")
    (tmp_path / "real" / "precious").chmod(0o400)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert oct((tmp_path / "real" / "precious").stat().st_mode)[-3:] == "400"


def test_a_sparse_file_stays_sparse_and_equal_when_it_is_published(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.write(b"begin")
        file.seek(2**26)
        file.write(b"middle")
        file.truncate(2**28)
    publish(tmp_path / "sparse", tmp_path / "kept")
    kept = (tmp_path / "kept").stat()
    assert kept.st_size == 2**28
    assert kept.st_blocks * 512 < 2**22
    with open(tmp_path / "kept", "rb") as file:
        assert file.read(10) == b"begin" + bytes(5)
        file.seek(2**26 - 1)
        assert file.read(8) == b"\0middle\0"
