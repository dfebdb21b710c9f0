from pathlib import Path

import h5py
import numpy
import pytest
import torch

from compbench.data.readers import MPI3DFile, Shapes3DFile, lattice_index, load
from compbench.errors import CompbenchError

SIZES = (2, 3, 2)
COUNT = 12


def pictures() -> numpy.ndarray:
    return numpy.random.default_rng(0).integers(0, 256, (COUNT, 64, 64, 3), dtype=numpy.uint8)


def labels() -> numpy.ndarray:
    return numpy.array([[a, b, c] for a in range(2) for b in range(3) for c in range(2)], dtype=numpy.float64)


def write_h5(path: Path, images: numpy.ndarray, values: numpy.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        file["images"], file["labels"] = images, values
    return path


def test_lattice_index_counts_with_the_last_factor_fastest() -> None:
    assert lattice_index(torch.tensor(labels()).long(), SIZES).tolist() == list(range(COUNT))


def test_shapes3d_images_come_by_index_in_any_order(tmp_path: Path) -> None:
    images = pictures()
    file = Shapes3DFile(write_h5(tmp_path / "a.h5", images, labels()), SIZES)
    found = file.images(numpy.array([7, 2, 7]))
    assert numpy.array_equal(found.permute(0, 2, 3, 1).numpy(), images[[7, 2, 7]])


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
@pytest.mark.parametrize("shape", [(COUNT, 64, 64, 3), (*SIZES, 64, 64, 3)])
def test_mpi3d_is_mapped_whether_stored_or_compressed_flat_or_by_factor(tmp_path: Path, save, shape: tuple) -> None:
    images = pictures()
    save(tmp_path / "a.npz", images=images.reshape(shape))
    file = MPI3DFile(tmp_path / "a.npz", SIZES)
    base = file._images
    while getattr(base, "base", None) is not None and not isinstance(base, numpy.memmap):
        base = base.base
    assert isinstance(base, numpy.memmap)
    assert numpy.array_equal(file.images(numpy.array([11, 0])).permute(0, 2, 3, 1).numpy(), images[[11, 0]])


def test_load_fills_one_tensor_with_all_images(tmp_path: Path) -> None:
    images = pictures()
    file = Shapes3DFile(write_h5(tmp_path / "a.h5", images, labels()), SIZES)
    assert numpy.array_equal(load(file, torch.device("cpu")).numpy(), images)


@pytest.mark.parametrize(
    ("images", "values", "message"),
    [
        (pictures()[:-1], labels(), "has images"),
        (pictures().astype(numpy.int32), labels(), "int32"),
        (pictures(), labels()[:, :2], "has labels"),
        (pictures(), labels()[::-1].copy()[[1, 0, *range(2, 12)]] * 0, "not in lattice order"),
    ],
)
def test_a_wrong_h5_is_one_clear_line(tmp_path: Path, images, values, message: str) -> None:
    with pytest.raises(CompbenchError, match=message):
        Shapes3DFile(write_h5(tmp_path / "a.h5", images, values), SIZES)


@pytest.mark.parametrize("name", ["a.h5", "a.npz"])
def test_a_truncated_file_is_one_clear_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.h5":
        write_h5(path, pictures(), labels())
    else:
        numpy.savez(path, images=pictures())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    reader = Shapes3DFile if name == "a.h5" else MPI3DFile
    with pytest.raises(CompbenchError, match="is damaged"):
        reader(path, SIZES)


def test_an_npz_of_the_wrong_array_is_one_clear_line(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "a.npz", pictures=pictures())
    with pytest.raises(CompbenchError, match="not the MPI3D file"):
        MPI3DFile(tmp_path / "a.npz", SIZES)
    numpy.savez(tmp_path / "b.npz", images=pictures()[:5])
    with pytest.raises(CompbenchError, match="has images"):
        MPI3DFile(tmp_path / "b.npz", SIZES)
