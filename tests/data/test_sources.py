import errno
import os
import re
import zipfile
from pathlib import Path

import pytest
import torch

from compbench.api.interfaces import Source
from compbench.data import lattice
from compbench.data.lattices import MPI3D, SHAPES3D, Images
from compbench.data.sources import SOURCES, SourceFile, file_hash, is_of, noted_sha256, recorded_sha256, stamp
from compbench.system.errors import CompbenchError, unreadable
from compbench.system.files import load_tensors
from compbench.system.home import FROM_DATA

UNKNOWN = SourceFile("thing.bin", ("https://example.org/thing.bin",))
KNOWN = UNKNOWN._replace(sha256="0" * 64)
FILES = [file for source in SOURCES.values() for file in source.files]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "thing.bin"
    path.write_bytes(b"abc")
    return path


def age(path: Path, seconds: int) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + seconds * 10**9))


def test_every_source_says_where_it_is_from() -> None:
    for name, source in SOURCES.items():
        assert name == source.name
        assert source.citation
        assert source.licence
        assert source.files


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_comes_over_https_and_from_several_mirrors_only_if_its_hash_is_known(file: SourceFile) -> None:
    assert file.urls
    assert all(url.startswith("https://") for url in file.urls)
    assert file.sha256 or len(file.urls) == 1
    assert file.size or file.about
    assert re.fullmatch("[0-9a-f]{64}|", file.sha256)
    assert re.fullmatch("[0-9a-f]{32}|", file.md5)


@pytest.mark.parametrize("lattice", [SHAPES3D, MPI3D], ids=lambda lattice: lattice.name)
def test_a_lattice_finds_its_one_file(lattice) -> None:
    (file,) = SOURCES[lattice.source].files
    count = 1
    for size in lattice.sizes:
        count *= size
    assert file.sha256 or file.num_images == count


def test_file_hash_is_that_of_the_standards(path: Path) -> None:
    assert file_hash(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_hash(path, "md5") == "900150983cd24fb0d6963f7d28e17f72"


def test_a_recorded_hash_is_not_measured_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recorded_sha256(path, UNKNOWN)
    monkeypatch.setattr("compbench.data.sources.file_hash", None)
    assert recorded_sha256(path, UNKNOWN) == first == noted_sha256(path)


@pytest.mark.parametrize("seconds", [-60, 60])
def test_a_file_of_unknown_hash_that_is_not_the_first_one_is_refused(path: Path, seconds: int) -> None:
    first = recorded_sha256(path, UNKNOWN)
    path.write_bytes(b"abd")
    age(path, seconds)  # an older copy is as suspect as a newer one
    with pytest.raises(CompbenchError, match=r"thing.bin has SHA-256 .* on its first use.*delete thing.bin.sha256"):
        recorded_sha256(path, UNKNOWN)
    assert noted_sha256(path) == first


def test_a_changed_file_of_known_hash_is_measured_again(path: Path) -> None:
    first = recorded_sha256(path, KNOWN)
    path.write_bytes(b"abd")
    age(path, 60)
    assert recorded_sha256(path, KNOWN) != first


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe"])
def test_a_damaged_note_is_written_again(path: Path, content: bytes) -> None:
    note = path.with_name("thing.bin.sha256")
    note.write_bytes(content)
    assert recorded_sha256(path, UNKNOWN) == file_hash(path)
    assert note.read_text().startswith(file_hash(path))


def test_a_folder_that_cannot_take_a_note_is_no_obstacle(path: Path) -> None:
    path.with_name("thing.bin.sha256").mkdir()
    assert recorded_sha256(path, UNKNOWN) == file_hash(path)


def test_a_derived_file_belongs_to_its_original_until_that_changes(path: Path) -> None:
    derived = path.with_name("derived")
    assert not is_of(derived, path)
    derived.write_text("")
    stamp(derived, path)
    assert is_of(derived, path)
    age(path, 1)
    assert not is_of(derived, path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO, errno.ENOLCK, errno.ESTALE, errno.EMFILE, errno.EAGAIN])
def test_a_file_that_the_machine_could_not_read_is_to_be_kept(path: Path, number: int) -> None:
    said = str(unreadable(path, "a picture", OSError(number, os.strerror(number))))
    assert said.startswith(f"{path} could not be read ([Errno {number}] {os.strerror(number)}); keep it")
    assert not re.search(r"damaged|move it|delete|fetch", said)


@pytest.mark.parametrize(
    "error",
    [OSError("no signature"), IsADirectoryError(errno.EISDIR, "Is a directory"), zipfile.BadZipFile("cut"), EOFError()],
)
def test_a_file_with_wrong_content_is_to_be_moved_away(path: Path, error: Exception) -> None:
    said = str(unreadable(path, "a picture", error))
    assert re.fullmatch(rf"{path} is not a picture or is damaged \(.+\); move it away and fetch it again\.", said)


UNREADABLE = Path("/proc/self/mem")
"""A plain file that the kernel lets nobody map or read from its beginning."""


def test_tensors_that_the_machine_could_not_read_are_no_damaged_ones(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(b"abc")
    with pytest.raises(CompbenchError, match="cut is not a file of tensors or is damaged .*; delete it to start again"):
        load_tensors(tmp_path / "cut")
    for path in (tmp_path, tmp_path / "missing", UNREADABLE):  # safetensors gives these errors no number
        with pytest.raises(OSError, match=rf"^\[Errno \d+\] .*; keep it, .*: '{path}'"):
            load_tensors(path)


def shapes(cache: Path) -> Images:
    source = Source("embedded", "", "")
    return lattice.open_images(SHAPES3D, source, data=cache, cache=cache, device=torch.device("cpu"))


def test_a_cache_goes_if_it_is_damaged_and_stays_if_the_machine_could_not_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Renderer:
        """A renderer that traces nothing."""

        def __init__(self, **options: object) -> None:
            return None

        def buffers(self) -> dict[str, torch.Tensor]:
            return {"traced": torch.ones(1)}

        @staticmethod
        def from_buffers(buffers: object, device: object) -> None:
            raise AssertionError("damaged buffers were taken")

    monkeypatch.setattr(lattice, "_renderer_class", lambda asked: Renderer)
    path = tmp_path / FROM_DATA / f"{SHAPES3D.name}-buffers-{SHAPES3D.renderer_version}.safetensors"
    path.parent.mkdir()
    path.write_bytes(b"abc")
    assert isinstance(shapes(tmp_path), Renderer)
    assert torch.equal(load_tensors(path)[0]["traced"], torch.ones(1))
    path.unlink()
    path.symlink_to(UNREADABLE)
    with pytest.raises(OSError, match="keep it, and check its rights, the disk"):
        shapes(tmp_path)
    assert path.readlink() == UNREADABLE
