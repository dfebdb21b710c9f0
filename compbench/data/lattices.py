"""The data sets whose images are all combinations of their factors: Shapes3D, MPI3D and dSprites."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from compbench.flow.transfer import numbers, send
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Images = Callable[["Tensor"], "Tensor"]
"""A function from fine combinations (B, F) to uint8 images (B, C, H, W) on the device."""


class Lattice(NamedTuple):
    """A dataset whose images are all combinations of its factors, once each, last factor fastest.

    Attributes:
        name: name of the dataset.
        source: name of its official source.
        sizes: number of positions of each factor in the data (MPI3D's axes have 40).
        factors: their names.
        renderer_version: raise it when an image of the embedded renderer changes.
    """

    name: str
    source: str
    sizes: tuple[int, ...]
    factors: tuple[str, ...]
    renderer_version: int


SHAPES3D = Lattice(
    "shapes3d",
    "shapes3d",
    (10, 10, 10, 8, 4, 15),
    ("floor hue", "wall hue", "object hue", "scale", "shape", "orientation"),
    renderer_version=1,
)

MPI3D = Lattice(
    "mpi3d",
    "mpi3d-real",
    (6, 6, 2, 3, 3, 40, 40),
    (
        "object colour",
        "object shape",
        "object size",
        "camera height",
        "background colour",
        "horizontal axis",
        "vertical axis",
    ),
    renderer_version=2,
)

DSPRITES = Lattice(
    "dsprites",
    "dsprites",
    (3, 6, 40, 32, 32),
    ("shape", "scale", "orientation", "x", "y"),
    renderer_version=1,
)


def checked(name: str, conditions: Tensor, sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Fine combinations, LongTensor (B, F), on a renderer's device; if they come from the CPU, the check waits for nothing.

    Raises:
        CompbenchError: a value out of range, or the wrong number of factors.
    """
    if conditions.ndim != 2 or conditions.shape[1] != len(sizes):
        raise CompbenchError(f"{name} conditions must be (B, {len(sizes)}), got {tuple(conditions.shape)}.")
    if bool(((conditions < 0) | (conditions >= numbers(sizes, conditions.device, conditions.dtype))).any()):
        raise CompbenchError(f"{name} factors must lie in 0 ... {[size - 1 for size in sizes]}.")
    return send(conditions, device)
