"""Readers of the official files, by index, without ever holding a data set twice."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from compbench.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.data.lattice import Images, Lattice

CHUNK = 4096
"""Images read at once while a data set is loaded onto a GPU."""

Progress = Callable[[str, int, int], None]


def lattice_index(conditions: Tensor, sizes: Sequence[int]) -> Tensor:
    """Row of each combination in the file, the last factor varying fastest: (B, F) -> (B,) long."""
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
    """The images of an official file: on a GPU where they fit, as uint8, else read by index."""
    file: Any = (
        MPI3DFile(path, lattice.sizes, progress=progress) if lattice.name == "mpi3d" else Shapes3DFile(path, lattice.sizes)
    )
    if device.type != "cuda" or file.num_bytes > 0.6 * torch.cuda.mem_get_info(device)[0]:
        return lambda conditions: file.images(lattice_index(conditions.cpu(), lattice.sizes).numpy())
    resident = load(file, device, progress=progress)
    return lambda conditions: resident[lattice_index(conditions.to(device), lattice.sizes)].permute(0, 3, 1, 2)


def load(file: Any, device: torch.device, *, progress: Progress = lambda stage, done, total: None) -> Tensor:
    """All images of a reader in one tensor (N, H, W, 3) on the device, filled in blocks: never twice in memory."""
    resident = torch.empty((file.count, *file.shape), dtype=torch.uint8, device=device)
    for first in range(0, file.count, CHUNK):
        block = file.rows(first, min(first + CHUNK, file.count))
        resident[first : first + len(block)] = torch.from_numpy(block).to(device)
        progress("load", min(first + CHUNK, file.count), file.count)
    return resident


class Shapes3DFile:
    """3dshapes.h5: `images` (N, 64, 64, 3) uint8 and `labels` (N, 6) float64, all combinations once, in order.

    Args:
        path: the file.
        sizes: number of values of each factor.

    Raises:
        CompbenchError: not such a file, truncated, or not in lattice order.
    """

    def __init__(self, path: Path, sizes: Sequence[int]) -> None:
        try:
            import h5py
        except ImportError as error:
            raise CompbenchError("reading 3dshapes.h5 needs h5py: pip install 'compbench[run]'.") from error
        try:
            self._file = h5py.File(path, "r")
            self._images, labels = self._file["images"], self._file["labels"]
        except (OSError, KeyError) as error:
            raise CompbenchError(f"{path} is not the 3dshapes file or is damaged ({str(error)[:80]}); fetch it again.") from error
        self.count = int(numpy.prod(sizes))
        self.shape = (64, 64, 3)
        if self._images.shape != (self.count, *self.shape) or self._images.dtype != numpy.uint8:
            raise CompbenchError(
                f"{path} has images {self._images.shape} {self._images.dtype}, expected {(self.count, *self.shape)} uint8."
            )
        _check_order(path, labels, sizes)

    @property
    def num_bytes(self) -> int:
        return self.count * int(numpy.prod(self.shape))

    def rows(self, first: int, last: int) -> numpy.ndarray:
        """Images first ... last - 1, (N, 64, 64, 3) uint8."""
        return self._images[first:last]

    def images(self, indices: numpy.ndarray) -> Tensor:
        """Images by index in any order and with repeats, uint8 (B, 3, 64, 64)."""
        unique, inverse = numpy.unique(indices, return_inverse=True)  # h5py wants increasing indices
        found = numpy.stack([self._images[int(index)] for index in unique])
        return torch.from_numpy(found[inverse]).permute(0, 3, 1, 2)


class MPI3DFile:
    """The MPI3D npz: one array `images`, (N, 64, 64, 3) or one axis a factor, uint8; memory-mapped.

    An array stored without compression is mapped inside the archive; a compressed one is unpacked once, beside it.

    Args:
        path: the file.
        sizes: number of positions of each factor.
        progress: called as progress("unpack", done, total).

    Raises:
        CompbenchError: not such a file, truncated, or of the wrong shape.
    """

    def __init__(self, path: Path, sizes: Sequence[int], *, progress: Progress = lambda stage, done, total: None) -> None:
        self.count = int(numpy.prod(sizes))
        self.shape = (64, 64, 3)
        try:
            mapped = _map_npz(path, "images.npy", progress)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, struct.error) as error:
            raise CompbenchError(f"{path} is not the MPI3D file or is damaged ({str(error)[:80]}); fetch it again.") from error
        if (
            mapped.size != self.count * int(numpy.prod(self.shape))
            or mapped.dtype != numpy.uint8
            or mapped.shape[-3:] != self.shape
        ):
            raise CompbenchError(f"{path} has images {mapped.shape} {mapped.dtype}, expected {(self.count, *self.shape)} uint8.")
        self._images = mapped.reshape(self.count, *self.shape)

    @property
    def num_bytes(self) -> int:
        return self.count * int(numpy.prod(self.shape))

    def rows(self, first: int, last: int) -> numpy.ndarray:
        """Images first ... last - 1, (N, 64, 64, 3) uint8."""
        return numpy.array(self._images[first:last])

    def images(self, indices: numpy.ndarray) -> Tensor:
        """Images by index in any order, uint8 (B, 3, 64, 64)."""
        return torch.from_numpy(self._images[indices]).permute(0, 3, 1, 2)


def _check_order(path: Path, labels: Any, sizes: Sequence[int]) -> None:
    """Spot-check that labels enumerate the lattice: for each factor, that it changes exactly where it should."""
    if labels.shape != (int(numpy.prod(sizes)), len(sizes)):
        raise CompbenchError(f"{path} has labels {labels.shape}, expected {(int(numpy.prod(sizes)), len(sizes))}.")
    stride = 1
    for column in reversed(range(len(sizes))):
        if sizes[column] > 1:
            zero, one = labels[0], labels[stride]
            if zero[column] == one[column] or any(zero[k] != one[k] for k in range(len(sizes)) if k != column):
                raise CompbenchError(f"{path} is not in lattice order (factor {column}); this is not the official file.")
        stride *= sizes[column]


def _map_npz(path: Path, member: str, progress: Progress) -> numpy.ndarray:
    """Map one array of an .npz without loading it."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(member)
        if entry.compress_type != zipfile.ZIP_STORED:
            return numpy.load(_unpacked(archive, entry, path, progress), mmap_mode="r", allow_pickle=False)
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(30)  # local file header: name and extra lengths at 26 and 28
        if header[:4] != b"PK\x03\x04":
            raise ValueError("bad zip entry")
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        file.seek(entry.header_offset + 30 + name_length + extra_length)
        version = numpy.lib.format.read_magic(file)
        read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if fortran or dtype.hasobject:
            raise ValueError("unexpected array layout")
        offset = file.tell()
    if offset + int(numpy.prod(shape)) * dtype.itemsize > os.path.getsize(path):
        raise ValueError("truncated")
    return numpy.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, progress: Progress) -> Path:
    """The array as an .npy beside the archive, streamed once and then kept."""
    target = path.with_suffix(".images.npy")
    if target.is_file() and target.stat().st_size == entry.file_size:
        return target
    part = target.with_name(target.name + f".{os.getpid()}.part")
    try:
        with archive.open(entry) as source, part.open("wb") as output:
            done = 0
            while block := source.read(2**22):
                output.write(block)
                done += len(block)
                progress("unpack", done, entry.file_size)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target
