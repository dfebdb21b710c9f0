"""Reader of the official dSprites file: `imgs` (737280, 64, 64) uint8, 0 or 1; all combinations once, last factor fastest."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import torch

from compbench.data.dsprites_renderer import SIDE, SIZES, DSpritesRenderer
from compbench.data.readers import NOT_READABLE, lattice_index, unpack
from compbench.data.sources import SOURCES, file_hash, is_of
from compbench.system.errors import CompbenchError, unreadable

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.data.lattices import Images

COUNT = math.prod(SIZES)
ROW = SIDE * SIDE // 8
"""Number of bytes of one image with eight pixels per byte."""
BLOCK = 4096
"""Number of images unpacked at a time."""

Progress = Callable[[str, int, int], None]


def check_official(path: Path) -> None:
    """Raise CompbenchError if the file is not the official one, by its MD5."""
    expected = SOURCES["dsprites"].files[0].md5
    if (found := file_hash(path, "md5")) != expected:
        raise CompbenchError(
            f"{path} has MD5 {found[:16]}..., the official file {expected[:16]}...; move it away, or use --source embedded."
        )


def open_dsprites(path: Path, device: torch.device, *, progress: Progress = lambda stage, done, total: None) -> Images:
    """The images of the official file, from a copy of 377 MB with one bit per pixel, made next to it on first use.

    Raises:
        CompbenchError: the file is of another kind, damaged or of another shape, or there is no room for the copy.
    """
    packed = path.with_name(path.name + ".images.npy")
    if not is_of(packed, path):
        packed = unpack(path, COUNT * ROW, _packed(path), progress)
    rows = numpy.load(packed, mmap_mode="r", allow_pickle=False)

    def images(conditions: Tensor) -> Tensor:
        chosen = rows[lattice_index(conditions.cpu(), SIZES).numpy()]
        pixels = numpy.unpackbits(chosen, axis=1).reshape(-1, 1, SIDE, SIDE)
        return torch.from_numpy(pixels * numpy.uint8(255)).to(device)

    return images


def blocks(path: Path) -> Iterator[numpy.ndarray]:
    """The file's images in order, (N, 64, 64) uint8 of 0 and 1, in blocks.

    Raises:
        CompbenchError: the file is of another kind, is damaged, or has another shape or other values.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open("imgs.npy") as member:
            version = numpy.lib.format.read_magic(member)
            read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(member)
            if shape != (COUNT, SIDE, SIDE) or dtype != numpy.uint8 or fortran:
                raise CompbenchError(f"{path} has imgs {shape} {dtype}, expected {(COUNT, SIDE, SIDE)} uint8.")
            for first in range(0, COUNT, BLOCK):
                count = min(BLOCK, COUNT - first)
                data = member.read(count * SIDE * SIDE)
                block = numpy.frombuffer(data, numpy.uint8).reshape(count, SIDE, SIDE)
                if block.max() > 1:
                    raise CompbenchError(
                        f"{path} has pixels of {block.max()}, expected 0 and 1; move it away and fetch it again."
                    )
                yield block
    except NOT_READABLE as error:
        raise CompbenchError(unreadable(path, "the dSprites file", error)) from error


def wrong_pixels(path: Path, *, progress: Callable[[int], None] = lambda done: None) -> tuple[int, int]:
    """The renderer's deviation from the official file: number of wrong pixels, and of images with wrong pixels.

    Args:
        path: the official npz.
        progress: called with the number of images done.

    Raises:
        CompbenchError: as `blocks`.
    """
    renderer, first, pixels, images = DSpritesRenderer(), 0, 0, 0
    for block in blocks(path):
        places = numpy.unravel_index(numpy.arange(first, first + len(block)), SIZES)
        rendered = renderer(torch.from_numpy(numpy.stack(places, axis=1)))[:, 0].numpy() > 0
        wrong = (rendered != block).sum((1, 2))
        pixels, images, first = pixels + int(wrong.sum()), images + int((wrong > 0).sum()), first + len(block)
        progress(first)
    return pixels, images


def _packed(path: Path) -> Iterator[bytes | numpy.ndarray]:
    """The images as an .npy file of (737280, 512) bytes, in pieces."""
    header = io.BytesIO()
    fields = {"descr": "|u1", "fortran_order": False, "shape": (COUNT, ROW)}
    numpy.lib.format.write_array_header_1_0(header, fields)
    yield header.getvalue()
    for block in blocks(path):
        yield numpy.packbits(block.reshape(len(block), -1), axis=1)
