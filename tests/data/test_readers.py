import errno
import fcntl
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy
import pytest
import torch

from compbench.data import readers
from compbench.data.readers import MPI3DFile, Shapes3DFile, lattice_index, load, npz_problem
from compbench.runner.processes import DEFAULTS, environment
from compbench.system.errors import CompbenchError

SIZES = (2, 3, 2)
COUNT = 12
CPU = torch.device("cpu")


def pictures() -> numpy.ndarray:
    return numpy.random.default_rng(0).integers(0, 256, (COUNT, 64, 64, 3), dtype=numpy.uint8)


def labels() -> numpy.ndarray:
    return numpy.array([[a, b / 10, c] for a in range(2) for b in range(3) for c in range(2)], dtype=numpy.float64)


def write_h5(path: Path, images: numpy.ndarray | None = None, values: numpy.ndarray | None = None, **storage) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=pictures() if images is None else images, **storage)
        file.create_dataset("labels", data=labels() if values is None else values)
    return path


@pytest.fixture
def coarse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An h5 whose chunks hold patches of many images, as h5py chooses them for the real file's shape."""
    monkeypatch.setattr(readers, "COARSE", 2)
    return write_h5(tmp_path / "a.h5", chunks=(5, 16, 16, 1), compression="gzip")


def channels_last(images: torch.Tensor) -> numpy.ndarray:
    return images.permute(0, 2, 3, 1).numpy()


def test_lattice_index_counts_with_the_last_factor_fastest() -> None:
    grid = torch.cartesian_prod(*(torch.arange(size) for size in SIZES))
    assert lattice_index(grid, SIZES).tolist() == list(range(COUNT))


def test_shapes3d_images_come_by_index_in_any_order_and_with_repeats(tmp_path: Path) -> None:
    found = Shapes3DFile(write_h5(tmp_path / "a.h5"), SIZES).images(numpy.array([7, 2, 7]))
    assert found.shape == (3, 3, 64, 64)
    assert found.dtype == torch.uint8
    assert numpy.array_equal(channels_last(found), pictures()[[7, 2, 7]])
    assert not list(tmp_path.glob("*.npy"))


def test_an_h5_of_coarse_chunks_is_unpacked_once_and_mapped(coarse: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    file = Shapes3DFile(coarse, SIZES, progress=lambda *event: heard.append(event))
    assert numpy.array_equal(channels_last(file.images(numpy.array([11, 0, 11]))), pictures()[[11, 0, 11]])
    assert isinstance(file._mapped, numpy.memmap)
    assert {stage for stage, _, _ in heard} == {"unpack"}
    heard.clear()
    again = Shapes3DFile(coarse, SIZES, progress=lambda *event: heard.append(event))
    assert numpy.array_equal(channels_last(again.images(numpy.array([3]))), pictures()[[3]])
    assert not heard


def test_an_h5_that_changes_is_unpacked_again(coarse: Path) -> None:
    Shapes3DFile(coarse, SIZES).images(numpy.array([0]))
    write_h5(coarse, pictures()[::-1], chunks=(5, 16, 16, 1))
    os.utime(coarse, ns=(0, 10**18))
    found = Shapes3DFile(coarse, SIZES).images(numpy.array([0]))
    assert numpy.array_equal(channels_last(found), pictures()[[11]])


def test_blocks_are_whole_chunks(coarse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", 4)
    assert Shapes3DFile(coarse, SIZES).block == 5
    monkeypatch.setattr(readers, "BLOCK", 11)
    assert Shapes3DFile(coarse, SIZES).block == 10


@pytest.mark.parametrize("block", [1, 5, 4096])
@pytest.mark.parametrize("kind", ["h5", "npz"])
def test_load_fills_one_tensor_with_all_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, block: int) -> None:
    monkeypatch.setattr(readers, "BLOCK", block)
    heard: list[tuple[str, int, int]] = []
    if kind == "h5":
        file = Shapes3DFile(write_h5(tmp_path / "a.h5"), SIZES)
    else:
        numpy.savez(tmp_path / "a.npz", images=pictures())
        file = MPI3DFile(tmp_path / "a.npz", SIZES)
    assert numpy.array_equal(load(file, CPU, progress=lambda *event: heard.append(event)).numpy(), pictures())
    assert heard[-1] == ("load", COUNT, COUNT)


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
@pytest.mark.parametrize("shape", [(COUNT, 64, 64, 3), (*SIZES, 64, 64, 3)])
def test_mpi3d_is_mapped_whether_stored_or_compressed_flat_or_by_factor(tmp_path: Path, save, shape: tuple) -> None:
    save(tmp_path / "a.npz", images=pictures().reshape(shape))
    file = MPI3DFile(tmp_path / "a.npz", SIZES)
    base = file._images
    while getattr(base, "base", None) is not None and not isinstance(base, numpy.memmap):
        base = base.base
    assert isinstance(base, numpy.memmap)
    assert numpy.array_equal(channels_last(file.images(numpy.array([11, 0, 11]))), pictures()[[11, 0, 11]])
    assert (tmp_path / "a.npz.images.npy").exists() == (save is numpy.savez_compressed)
    assert not list(tmp_path.glob("*.part"))


def test_a_compressed_npz_that_changes_is_unpacked_again(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    numpy.savez_compressed(path, images=pictures())
    MPI3DFile(path, SIZES)
    numpy.savez_compressed(path, images=pictures()[::-1])
    os.utime(path, ns=(0, 10**18))
    assert numpy.array_equal(MPI3DFile(path, SIZES).rows(0, COUNT), pictures()[::-1])


def test_what_another_process_unpacks_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    numpy.savez_compressed(path, images=pictures())

    def other_process(lock: object, *, wait: bool) -> bool:  # holds the lock until it is done
        assert wait
        numpy.save(tmp_path / "a.npz.images.npy", pictures()[::-1])
        readers.stamp(tmp_path / "a.npz.images.npy", path)
        return True

    monkeypatch.setattr(readers, "take", other_process)
    assert numpy.array_equal(MPI3DFile(path, SIZES).rows(0, COUNT), pictures()[::-1])


OPEN_FOR_WRITING = "import h5py, sys; file = h5py.File(sys.argv[1], 'a'); print('open', flush=True); sys.stdin.read()"
READ = "import h5py, sys; print(h5py.File(sys.argv[1], 'r')['images'].shape[0])"


def test_a_child_reads_a_file_that_another_program_has_open_for_writing(tmp_path: Path) -> None:
    words = str(write_h5(tmp_path / "a.h5"))
    env = {name: value for name, value in environment(1).items() if name not in DEFAULTS} | DEFAULTS
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", OPEN_FOR_WRITING, words], **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        assert subprocess.check_output([sys.executable, "-c", READ, words], env=env, text=True) == f"{COUNT}\n"
        other.communicate()


def test_no_room_to_unpack_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy.savez_compressed(tmp_path / "a.npz", images=pictures())
    with monkeypatch.context() as patch:
        patch.setattr(readers, "SPARE_BYTES", 2**62)
        with pytest.raises(CompbenchError, match="must be unpacked .* GiB are free"):
            MPI3DFile(tmp_path / "a.npz", SIZES)

    def full(stage: str, done: int, total: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CompbenchError, match="No space left"):
        MPI3DFile(tmp_path / "a.npz", SIZES, progress=full)
    assert not list(tmp_path.glob("*.npy*"))


@pytest.mark.parametrize(
    ("images", "values", "message"),
    [
        (pictures()[:-1], labels(), "has images"),
        (pictures().astype(numpy.int32), labels(), "int32"),
        (pictures(), labels()[:, :2], "has labels"),
        (pictures(), labels() * 0, "not in lattice order"),
        (pictures(), labels()[::-1][:, ::-1], "not in lattice order"),
        (pictures(), labels()[[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10]], "not in lattice order"),
        (pictures(), labels() * numpy.nan, "not in lattice order"),
    ],
)
def test_a_wrong_h5_is_one_clear_line(tmp_path: Path, images, values, message: str) -> None:
    with pytest.raises(CompbenchError, match=message):
        Shapes3DFile(write_h5(tmp_path / "a.h5", images, values), SIZES)


@pytest.mark.parametrize("names", [("pictures", "labels"), ("images/a", "labels")])
def test_an_h5_of_other_arrays_is_one_clear_line(tmp_path: Path, names: tuple[str, str]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file[names[0]], file[names[1]] = pictures(), labels()
    with pytest.raises(CompbenchError, match="not the 3dshapes file") as caught:
        Shapes3DFile(tmp_path / "a.h5", SIZES)
    assert "\n" not in str(caught.value)


def test_an_h5_damaged_within_is_one_clear_line_when_read(coarse: Path) -> None:
    with h5py.File(coarse) as file:
        chunk = file["images"].id.get_chunk_info(0)
    content = bytearray(coarse.read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    coarse.write_bytes(content)
    file = Shapes3DFile(coarse, SIZES)
    for use in (lambda: file.rows(0, 1), lambda: file.images(numpy.array([0]))):
        with pytest.raises(CompbenchError, match="is damaged"):
            use()
    assert not list(coarse.parent.glob("*.npy*"))


def test_a_file_that_another_process_locks_is_not_called_damaged(tmp_path: Path) -> None:
    path = write_h5(tmp_path / "a.h5")
    with path.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CompbenchError, match="could not be read .* keep it") as caught:
            Shapes3DFile(path, SIZES)
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize("kind", ["h5", "stored", "compressed"])
@pytest.mark.parametrize("keep", [0, 100, 0.5, 0.99])
def test_a_truncated_file_is_one_clear_line(tmp_path: Path, kind: str, keep: float) -> None:
    path = tmp_path / ("a.h5" if kind == "h5" else "a.npz")
    if kind == "h5":
        write_h5(path)
    else:
        (numpy.savez if kind == "stored" else numpy.savez_compressed)(path, images=pictures())
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    with pytest.raises(CompbenchError, match="is damaged") as caught:
        (Shapes3DFile if kind == "h5" else MPI3DFile)(path, SIZES)
    assert "\n" not in str(caught.value)


def test_an_array_shorter_than_its_header_says_is_not_mapped_into_what_follows(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", pictures())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", (tmp_path / "a.npy").read_bytes()[:-1000])
        archive.writestr("more", bytes(2000))
    with pytest.raises(CompbenchError, match="does not fill its place"):
        MPI3DFile(tmp_path / "a.npz", SIZES)


def test_a_compressed_npz_damaged_within_leaves_nothing_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    numpy.savez_compressed(path, images=pictures())
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 50] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(CompbenchError, match="is damaged"):
        MPI3DFile(path, SIZES)
    assert not list(tmp_path.glob("*.npy*"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": pictures()}, "not the MPI3D file"),
        ({"images": pictures()[:5]}, "has images"),
        ({"images": pictures().astype(numpy.float32)}, "float32"),
        ({"images": pictures().reshape(3, 2, 2, 64, 64, 3)}, "has images"),
        ({"images": numpy.asfortranarray(pictures())}, "unexpected array layout"),
        ({"images": numpy.array([{}], dtype=object)}, "unexpected array layout"),
    ],
)
@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_an_npz_of_another_array_is_one_clear_line_and_nothing_is_unpickled(tmp_path: Path, save, arrays, message: str) -> None:
    save(tmp_path / "a.npz", **arrays)
    with pytest.raises(CompbenchError, match=message):
        MPI3DFile(tmp_path / "a.npz", SIZES)


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_npz_problem_finds_a_flipped_bit_and_a_missing_picture(tmp_path: Path, save) -> None:
    path = tmp_path / "a.npz"
    save(path, images=pictures())
    assert npz_problem(path, COUNT) == ""
    assert "expected (13, 64, 64, 3)" in npz_problem(path, 13)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "damaged" in npz_problem(path, COUNT)
