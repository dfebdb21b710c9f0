"""Readers of the official files by index, which never hold a data set in memory twice."""

from __future__ import annotations

import io
import math
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy
import torch
from torch import Tensor

from compbench.data.sources import is_of, stamp
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError, brief, unreadable
from compbench.system.files import lock as take

if TYPE_CHECKING:
    from compbench.data.lattices import Images, Lattice

SHAPE = (64, 64, 3)
"""Shape of one picture, height x width x RGB, in both data sets."""
BLOCK = 4096
"""Number of images read at a time while loading or unpacking; a multiple of the file's own chunks if it has chunks."""
COARSE = 16
"""Largest number of images in a chunk from which reading one image is fast enough."""
SPARE_BYTES = 2**28
"""Number of bytes that must stay free on the disk after unpacking."""

Progress = Callable[[str, int, int], None]
NOT_READABLE = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)
"""Exceptions of h5py, zipfile and numpy for a damaged file or one of another kind (NotImplementedError is a RuntimeError)."""


class LatticeFile(Protocol):
    """All pictures of a data set, one for each combination, the last factor varying fastest."""

    count: int
    block: int

    def rows(self, first: int, last: int) -> numpy.ndarray:
        """Images first ... last - 1, (N, 64, 64, 3) uint8."""
        ...

    def images(self, indices: numpy.ndarray) -> Tensor:
        """Images by index in any order and with repeats: (B,) -> uint8 (B, 3, 64, 64)."""
        ...


def lattice_index(conditions: Tensor, sizes: Sequence[int]) -> Tensor:
    """Row of each combination in the file, the last factor varying fastest: (B, F) without NULL -> (B,) long."""
    index = torch.zeros(len(conditions), dtype=torch.long, device=conditions.device)
    for column, size in enumerate(sizes):
        index = index * size + conditions[:, column]
    return index


def open_official(
    lattice: Lattice,
    path: Path,
    device: torch.device,
    *,
    progress: Progress = lambda stage, done, total: None,
) -> Images:
    """The images of an official file: on a GPU as uint8 if they fit, otherwise read by index."""
    kind: type[MPI3DFile | Shapes3DFile] = MPI3DFile if lattice.name == "mpi3d" else Shapes3DFile
    file = kind(path, lattice.sizes, progress=progress)
    if device.type != "cuda" or file.count * math.prod(SHAPE) > 0.6 * torch.cuda.mem_get_info(device)[0]:
        return lambda conditions: file.images(lattice_index(conditions.cpu(), lattice.sizes).numpy())
    resident = load(file, device, progress=progress)
    return lambda conditions: resident[lattice_index(send(conditions, device), lattice.sizes)].permute(0, 3, 1, 2)


def load(file: LatticeFile, device: torch.device, *, progress: Progress = lambda stage, done, total: None) -> Tensor:
    """All images of a file in one tensor (N, H, W, 3) uint8 on the device, filled in blocks, so that memory holds no copy."""
    resident = torch.empty((file.count, *SHAPE), dtype=torch.uint8, device=device)
    done = 0
    for block in _blocks(file):
        resident[done : done + len(block)] = torch.from_numpy(block)
        done += len(block)
        progress("load", done, file.count)
    return resident


class Shapes3DFile:
    """3dshapes.h5: `images` (N, 64, 64, 3) uint8 and `labels` (N, 6) float64, all combinations once, in order.

    If its chunks hold many images, the first call of `images` unpacks the file once to an .npy next to it, and maps that.
    (Chunks of h5py's default size hold a 4x4 patch of 15,000 images; an image is spread over 768 chunks, which allows 6
    images/s.)

    Args:
        path: the file.
        sizes: number of values of each factor.
        progress: called as progress("unpack", done, total).

    Raises:
        CompbenchError: the file is of another kind, truncated, or not in lattice order; from `rows` and `images` also: it is
            damaged, or there is no room to unpack it.
    """

    def __init__(self, path: Path, sizes: Sequence[int], *, progress: Progress = lambda stage, done, total: None) -> None:
        try:
            import h5py
        except ImportError as error:
            raise CompbenchError("reading 3dshapes.h5 needs h5py: pip install 'compbench[run]'.") from error
        self._path, self._progress = path, progress
        self._mapped: numpy.ndarray | None = None
        self.count = math.prod(sizes)
        try:
            self._file = h5py.File(path, "r")
            images, labels = self._file["images"], self._file["labels"]
            if not (isinstance(images, h5py.Dataset) and isinstance(labels, h5py.Dataset)):
                raise ValueError("images and labels are not arrays")
            _check_images(path, images, [(self.count, *SHAPE)])
            _check_order(path, labels, sizes)
        except NOT_READABLE as error:
            raise CompbenchError(unreadable(path, "the 3dshapes file", error)) from error
        self._images: Any = images
        chunk = images.chunks[0] if images.chunks else 1
        self._coarse = chunk > COARSE
        self.block = chunk * max(1, BLOCK // chunk)  # whole chunks, so that none is decompressed twice

    def rows(self, first: int, last: int) -> numpy.ndarray:
        """Images first ... last - 1, (N, 64, 64, 3) uint8."""
        try:
            return self._images[first:last]
        except NOT_READABLE as error:
            raise CompbenchError(unreadable(self._path, "the 3dshapes file", error)) from error

    def images(self, indices: numpy.ndarray) -> Tensor:
        """Images by index in any order and with repeats: (B,) -> uint8 (B, 3, 64, 64)."""
        if self._coarse:
            if self._mapped is None:
                target = unpack(self._path, self.count * math.prod(SHAPE), self._array(), self._progress)
                self._mapped = numpy.load(target, mmap_mode="r", allow_pickle=False)
            return torch.from_numpy(self._mapped[indices]).permute(0, 3, 1, 2)
        unique, inverse = numpy.unique(indices, return_inverse=True)
        found = numpy.concatenate([self.rows(int(index), int(index) + 1) for index in unique])
        return torch.from_numpy(found[inverse]).permute(0, 3, 1, 2)

    def _array(self) -> Iterator[bytes | numpy.ndarray]:
        """The images as an .npy file, in pieces."""
        header = io.BytesIO()
        fields = {"descr": "|u1", "fortran_order": False, "shape": (self.count, *SHAPE)}
        numpy.lib.format.write_array_header_1_0(header, fields)
        yield header.getvalue()
        yield from _blocks(self)


class MPI3DFile:
    """The MPI3D npz: one array `images`, (N, 64, 64, 3) or one axis per factor, uint8; memory-mapped.

    An array stored without compression is mapped inside the archive; a compressed one is unpacked once, next to it.

    Args:
        path: the file.
        sizes: number of positions of each factor.
        progress: called as progress("unpack", done, total).

    Raises:
        CompbenchError: the file is of another kind, truncated or of the wrong shape, or there is no room to unpack it.
    """

    def __init__(self, path: Path, sizes: Sequence[int], *, progress: Progress = lambda stage, done, total: None) -> None:
        self.count, self.block = math.prod(sizes), BLOCK
        try:
            mapped = _map_npz(path, "images.npy", progress)
        except NOT_READABLE as error:
            raise CompbenchError(unreadable(path, "the MPI3D file", error)) from error
        _check_images(path, mapped, [(self.count, *SHAPE), (*sizes, *SHAPE)])
        self._images = mapped.reshape(self.count, *SHAPE)

    def rows(self, first: int, last: int) -> numpy.ndarray:
        """Images first ... last - 1, (N, 64, 64, 3) uint8."""
        return numpy.array(self._images[first:last])

    def images(self, indices: numpy.ndarray) -> Tensor:
        """Images by index in any order and with repeats: (B,) -> uint8 (B, 3, 64, 64)."""
        return torch.from_numpy(self._images[indices]).permute(0, 3, 1, 2)


def npz_problem(path: Path, count: int) -> str:
    """What is wrong with an .npz that should hold `count` pictures as `images`; "" if nothing is wrong.

    The function reads the whole file: if no hash is published, only the archive's own CRC-32 reveals a damaged copy.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open("images.npy") as member:
            shape, dtype = _array_header(member)
            if shape[-3:] != SHAPE or math.prod(shape) != count * math.prod(SHAPE) or dtype != numpy.uint8:
                return f"it has images {shape} {dtype}, expected {(count, *SHAPE)} uint8"
            while member.read(2**22):
                pass
    except NOT_READABLE as error:
        return f"it is damaged ({brief(error)})"
    return ""


def _blocks(file: LatticeFile) -> Iterator[numpy.ndarray]:
    for first in range(0, file.count, file.block):
        yield file.rows(first, min(first + file.block, file.count))


def _check_images(path: Path, images: Any, shapes: list[tuple[int, ...]]) -> None:
    if images.shape not in shapes or images.dtype != numpy.uint8:
        raise CompbenchError(f"{path} has images {images.shape} {images.dtype}, expected {shapes[0]} uint8.")


def _check_order(path: Path, labels: Any, sizes: Sequence[int]) -> None:
    """Check that labels enumerate the lattice: along its own axis each factor's values differ, along the others they don't."""
    if labels.shape != (math.prod(sizes), len(sizes)):
        raise CompbenchError(f"{path} has labels {labels.shape}, expected {(math.prod(sizes), len(sizes))}.")
    grid = labels[:].reshape(*sizes, len(sizes))
    for factor, size in enumerate(sizes):
        column = numpy.moveaxis(grid[..., factor], factor, -1)
        values = column.reshape(-1, size)[0]
        if len(numpy.unique(values)) != size or not (column == values).all():
            raise CompbenchError(f"{path} is not in lattice order (factor {factor}); this is not the official file.")


def _map_npz(path: Path, name: str, progress: Progress) -> numpy.ndarray:
    """Map one array of an .npz without loading it."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED:
            with archive.open(entry) as member:
                _array_header(member)  # refuses objects and Fortran order before 12 GB are written
            target = unpack(path, entry.file_size, _pieces(path, archive, entry), progress)
            return numpy.load(target, mmap_mode="r", allow_pickle=False)
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(30)  # local file header: lengths of name and extra at 26 and 28
        if header[:4] != b"PK\x03\x04":
            raise ValueError("bad zip entry")
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        start = file.seek(entry.header_offset + 30 + name_length + extra_length)
        shape, dtype = _array_header(file)
        offset = file.tell()
    if offset - start + math.prod(shape) * dtype.itemsize != entry.file_size:
        raise ValueError("the array does not fill its place in the archive")
    return numpy.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], numpy.dtype]:
    version = numpy.lib.format.read_magic(file)
    read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if fortran or dtype.hasobject:
        raise ValueError("unexpected array layout")
    return shape, dtype


def _pieces(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(entry) as member:
            while piece := member.read(2**22):
                yield piece
    except NOT_READABLE as error:  # distinguished from errors of writing the copy
        raise CompbenchError(unreadable(path, "the MPI3D file", error)) from error


def unpack(path: Path, num_bytes: int, pieces: Iterable[bytes | numpy.ndarray], progress: Progress) -> Path:
    """Write an array to an .npy next to its file, whole or not at all, and again if the file has changed since."""
    target, part = (path.with_name(path.name + end) for end in (".images.npy", ".images.npy.part"))
    if is_of(target, path):
        return target
    try:
        with path.with_name(path.name + ".lock").open("a") as lock:
            take(lock, wait=True)  # contestant and referee both unpack: the second waits, then finds it done
            if is_of(target, path):
                return target
            target.unlink(missing_ok=True)
            if (free := shutil.disk_usage(path.parent).free) < num_bytes + SPARE_BYTES:
                raise OSError(f"{free / 2**30:.1f} GiB are free")
            try:
                done = 0
                with part.open("wb") as output:
                    for piece in pieces:
                        done += output.write(piece if isinstance(piece, bytes) else piece.data)
                        progress("unpack", done, num_bytes)
                stamp(part, path)
                os.replace(part, target)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise CompbenchError(
            f"{path.name} must be unpacked to {target} once, which needs {num_bytes / 2**30:.1f} GiB: {error}."
        ) from error
    return target
