from pathlib import Path

import h5py
import numpy
import pytest
import torch

from compbench.data.lattice import choose_source, open_images
from compbench.data.lattices import MPI3D, SHAPES3D
from compbench.data.readers import lattice_index
from compbench.data.sources import SOURCES
from compbench.system.errors import CompbenchError

CPU = torch.device("cpu")


@pytest.fixture
def official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A 3dshapes.h5 of the true shape whose images are zero and unallocated, but for one; taken for the official file."""
    known = SOURCES["shapes3d"]
    monkeypatch.setitem(SOURCES, "shapes3d", known._replace(files=(known.files[0]._replace(sha256=""),)))
    grid = numpy.indices(SHAPES3D.sizes).reshape(6, -1).T.astype(numpy.float64)
    with h5py.File(tmp_path / "3dshapes.h5", "w") as file:
        images = file.create_dataset("images", (480_000, 64, 64, 3), numpy.uint8, chunks=(1, 64, 64, 3))
        images[123_456] = 77
        file.create_dataset("labels", data=grid, compression="gzip")
    return tmp_path


def test_official_data_is_taken_where_it_is_and_embedded_where_it_is_not(official: Path, tmp_path: Path) -> None:
    assert choose_source(SHAPES3D, official, "auto").kind == "official"
    assert choose_source(SHAPES3D, official, "embedded").kind == "embedded"
    assert choose_source(MPI3D, tmp_path, "auto").kind == "embedded"
    with pytest.raises(CompbenchError, match="compbench data fetch mpi3d-real"):
        choose_source(MPI3D, tmp_path, "official")


def test_the_official_fingerprint_is_the_files_hash_and_is_noted(official: Path) -> None:
    first = choose_source(SHAPES3D, official, "official").fingerprint
    assert (official / "3dshapes.h5.sha256").read_text().startswith(first)
    assert choose_source(SHAPES3D, official, "official").fingerprint == first


def test_official_images_come_by_combination(official: Path) -> None:
    images = open_images(SHAPES3D, choose_source(SHAPES3D, official, "official"), data=official, cache=official, device=CPU)
    wanted = torch.tensor(numpy.unravel_index(123_456, SHAPES3D.sizes)).view(1, 6)
    assert lattice_index(wanted, SHAPES3D.sizes).item() == 123_456
    found = images(torch.cat([wanted, wanted * 0]))
    assert found.shape == (2, 3, 64, 64)
    assert (found[0] == 77).all()
    assert (found[1] == 0).all()


class Plain:
    """A renderer that is made in no time and counts how often it was."""

    times = 0

    def __init__(self, *, device: torch.device, progress=None, table: torch.Tensor | None = None) -> None:
        Plain.times += table is None
        self.table = torch.arange(10.0) if table is None else table

    @classmethod
    def from_buffers(cls, buffers: dict[str, torch.Tensor], *, device: torch.device) -> "Plain":
        return cls(device=device, table=buffers["table"])

    def buffers(self) -> dict[str, torch.Tensor]:
        return {"table": self.table}


def test_a_whole_cache_is_loaded_and_a_damaged_one_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compbench.data.lattice._renderer_class", lambda lattice: Plain)
    source = choose_source(SHAPES3D, tmp_path, "embedded")
    made, loaded = (open_images(SHAPES3D, source, data=tmp_path, cache=tmp_path, device=CPU) for _ in range(2))
    assert Plain.times == 1
    assert torch.equal(loaded.table, made.table)
    (cached,) = tmp_path.rglob("*.safetensors")
    cached.write_bytes(cached.read_bytes()[:40])
    again = open_images(SHAPES3D, source, data=tmp_path, cache=tmp_path, device=CPU)
    assert Plain.times == 2
    assert torch.equal(again.table, made.table)


def test_a_file_that_is_not_the_official_one_is_never_recorded_as_official(tmp_path: Path) -> None:
    (tmp_path / "3dshapes.h5").write_bytes(b"something else")
    with pytest.raises(CompbenchError, match="the official file 0a0f6ed9"):
        choose_source(SHAPES3D, tmp_path, "auto")
