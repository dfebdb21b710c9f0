"""Pictures of what the embedded renderers make, for people to look at."""

from __future__ import annotations

from pathlib import Path


def render_grid(name: str, output: Path, cache: Path, *, rows: int, seed: int) -> None:
    """Write a PNG of `rows` x 8 random images of "shapes3d" or "mpi3d"."""
    import torch
    from PIL import Image

    from compbench.data.lattice import choose_source, open_images
    from compbench.data.lattices import MPI3D, SHAPES3D
    from compbench.factors import Factor, FactorSpace

    lattice = {"shapes3d": SHAPES3D, "mpi3d": MPI3D}[name]
    images = open_images(lattice, choose_source(lattice, cache, "embedded"), data=cache, cache=cache, device=torch.device("cpu"))
    space = FactorSpace(Factor(factor, size) for factor, size in zip(lattice.factors, lattice.sizes, strict=True))
    pictures = images(space.uniform(8 * rows, torch.Generator().manual_seed(seed)))  # (8 R, 3, 64, 64)
    tiled = pictures.view(rows, 8, 3, 64, 64).permute(0, 3, 1, 4, 2).reshape(rows * 64, 8 * 64, 3)
    Image.fromarray(tiled.numpy()).save(output)
