"""Real pictures of requested conditions, which a record shows above the samples; no score depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from compbench.data.lattices import Images
    from compbench.tasks.image_evaluation import RealImages
    from compbench.tasks.lattice_images import Lattices


class Rendered(Protocol):
    """An open task that renders its pictures."""

    images: Images
    lattices: Lattices


class Judged(Protocol):
    """The evaluation of a task, with its real images."""

    real: RealImages


class Evaluated(Protocol):
    """An open task whose evaluation has real images."""

    @property
    def evaluation(self) -> Judged: ...


def of_lattice(opened: Rendered, condition: Tensor, generator: Generator) -> Tensor:
    """A random picture of each full condition (N, F) of a factor grid, uint8 (N, C, H, W)."""
    return opened.images(opened.lattices.refined(condition, generator))


def of_evaluation(opened: Evaluated, condition: Tensor, generator: Generator) -> Tensor:
    """A random real image of each full condition (N, F), from those that the evaluation compares with, uint8 (N, C, H, W)."""
    return opened.evaluation.real.of(condition, generator)
