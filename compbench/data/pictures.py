"""Pictures for people: a sheet of an embedded renderer's images, a matrix as colours, and the outline of a region in it."""

from __future__ import annotations

from pathlib import Path

import numpy

from compbench.api.factors import Factor, FactorSpace
from compbench.data.lattice import choose_source, open_images
from compbench.data.lattices import DSPRITES, MPI3D, SHAPES3D
from compbench.system.errors import CompbenchError, Unwritable

STOPS = numpy.array([[13, 8, 60], [70, 50, 127], [54, 108, 141], [40, 160, 130], [150, 205, 70], [253, 231, 37]], float)
"""Dark blue to yellow, of steadily rising lightness."""


def render_grid(name: str, output: Path, cache: Path, *, rows: int, seed: int) -> None:
    """Write a picture of `rows` x 8 random images of "shapes3d", "mpi3d" or "dsprites".

    Raises:
        Unwritable: the file cannot be written.
        CompbenchError: the file's name does not end as a picture's does.
    """
    import torch
    from PIL import Image

    from compbench.data.dsprites_renderer import DSpritesRenderer

    lattice, device = {"shapes3d": SHAPES3D, "mpi3d": MPI3D, "dsprites": DSPRITES}[name], torch.device("cpu")
    source = choose_source(lattice, cache, "embedded")
    images = DSpritesRenderer() if name == "dsprites" else open_images(lattice, source, data=cache, cache=cache, device=device)
    space = FactorSpace(Factor(factor, size) for factor, size in zip(lattice.factors, lattice.sizes, strict=True))
    pictures = images(space.uniform(8 * rows, torch.Generator().manual_seed(seed))).expand(-1, 3, -1, -1)  # (8 R, 3, 64, 64)
    tiled = pictures.reshape(rows, 8, 3, 64, 64).permute(0, 3, 1, 4, 2).reshape(rows * 64, 8 * 64, 3)
    try:
        Image.fromarray(tiled.numpy()).save(output)
    except OSError as error:
        raise Unwritable.of(output, error) from error
    except ValueError as error:
        raise CompbenchError(f"cannot write {output}: {error}; use a name that ends in .png.") from error


def coloured(values: numpy.ndarray) -> numpy.ndarray:
    """A matrix (H, W) as colours from its smallest (dark) to its largest value (bright), uint8 (H, W, 3)."""
    low, high = float(values.min()), float(values.max())
    place = (values - low) / max(high - low, 1e-12) * (len(STOPS) - 1)
    below = numpy.clip(place.astype(int), 0, len(STOPS) - 2)
    share = (place - below)[..., None]
    return (STOPS[below] * (1 - share) + STOPS[below + 1] * share).round().astype(numpy.uint8)


def outlined(colours: numpy.ndarray, region: numpy.ndarray, enlarged: int) -> numpy.ndarray:
    """Colours (H, W, 3), each cell `enlarged` pixels wide, with a white line around a region, bool (H, W)."""
    picture = colours.repeat(enlarged, 0).repeat(enlarged, 1)
    large = numpy.pad(region.repeat(enlarged, 0).repeat(enlarged, 1), 1)
    inside = large[1:-1, 1:-1]
    whole = large[:-2, 1:-1] & large[2:, 1:-1] & large[1:-1, :-2] & large[1:-1, 2:]
    picture[inside & ~whole] = 255
    return picture
