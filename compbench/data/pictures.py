"""Sample sheets of the embedded renderers' images, for people to look at."""

from __future__ import annotations

from pathlib import Path

from compbench.system.errors import CompbenchError, Unwritable


def render_grid(name: str, output: Path, cache: Path, *, rows: int, seed: int) -> None:
    """Write a picture of `rows` x 8 random images of "shapes3d", "mpi3d" or "dsprites".

    Raises:
        Unwritable: the file cannot be written; CompbenchError: its name ends as no picture's does.
    """
    import torch
    from PIL import Image

    from compbench.api.factors import Factor, FactorSpace
    from compbench.data.dsprites_renderer import DSpritesRenderer
    from compbench.data.lattice import choose_source, open_images
    from compbench.data.lattices import DSPRITES, MPI3D, SHAPES3D

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
        raise CompbenchError(f"cannot write {output}: {error}; a name that ends in .png will do.") from error
