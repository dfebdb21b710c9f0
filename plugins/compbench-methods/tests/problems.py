"""Tiny problems that the methods' tests share: corners of a square, shades of an image, one factor of two."""

from dataclasses import replace

import torch
from torch import Generator

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem

SPACE = FactorSpace([Factor("left-right", 2), Factor("top-bottom", 2)])
NOTHING_HELD_OUT = Holdout.empty(SPACE)
SHAPES3D = FactorSpace(Factor(name, size) for name, size in zip("abcdef", (10, 10, 10, 8, 4, 15), strict=True))
MPI3D = FactorSpace(Factor(name, size) for name, size in zip("abcdefg", (6, 6, 2, 3, 3, 10, 10), strict=True))


class Corners:
    """x1 near (+-1, +-1), a corner for each combination; `seen` factors of the condition are labelled."""

    name, size = "corners", 1000

    def __init__(self, holdout: Holdout, labelled: tuple[int, ...] = (0, 1)) -> None:
        self.holdout, self.labelled = holdout, list(labelled)

    def batch(self, size: int, generator: Generator) -> Batch:
        condition = self.holdout.draw(size, generator, heldout=False)
        x1 = 2.0 * condition - 1 + 0.1 * torch.randn(size, 2, generator=generator)
        return Batch(x1, condition[:, self.labelled])


class Shades:
    """16 x 16 images: the first factor lights the left half, the second the top half."""

    name, size = "shades", 1000

    def batch(self, size: int, generator: Generator) -> Batch:
        condition = SPACE.uniform(size, generator)
        x1 = -0.8 * torch.ones(size, 3, 16, 16)
        x1[:, 0, :, :8] += 1.6 * condition[:, 0, None, None]
        x1[:, 1, :8, :] += 1.6 * condition[:, 1, None, None]
        return Batch(x1, condition)


class ThreeShades(Shades):
    """Shades without the combination that both lights are on."""

    def batch(self, size: int, generator: Generator) -> Batch:
        batch = super().batch(4 * size, generator)
        rows = (batch.condition.sum(1) < 2).nonzero()[:size, 0]
        return Batch(batch.x1[rows], batch.condition[rows])


def context(seed: int = 0, **changes) -> Context:
    generator = Generator().manual_seed(seed)
    return Context(torch.device("cpu"), "fp32", generator, NoCheckpoints(), **changes)


def vector_problem(*, train_steps: int = 200, holdout: Holdout = NOTHING_HELD_OUT, composed: tuple[int, ...] = ()) -> Problem:
    budget = Budget(
        train_steps=train_steps,
        batch_size=128,
        width=64,
        learning_rate=4e-3,
        ema_decay=0.97,
        sample_steps=20,
        extend_steps=200,
    )
    return Problem(SPACE, Event("vector", (2,)), Federation([Corners(holdout)]), budget, holdout, composed=composed)


def image_problem(*, train_steps: int = 3, prediction: str = "velocity", patch: int = 2) -> Problem:
    """Shades.  Patches of 4 pixels are a quarter of the places: a fit until images are right takes less time."""
    budget = Budget(
        train_steps=train_steps,
        batch_size=16,
        width=8,
        patch=patch,
        prediction=prediction,
        learning_rate=5e-3,
        ema_decay=0.97,
        sample_steps=8,
        extend_steps=3,
    )
    return Problem(SPACE, Event("image", (3, 16, 16)), Federation([Shades()]), budget, NOTHING_HELD_OUT)


def perturbed_images(*, train_steps: int = 3, patch: int = 2) -> Problem:
    """Lights as perturbations of a dark image, never both."""
    plain = image_problem(train_steps=train_steps, patch=patch)
    held = Holdout(SPACE, (0, 1), ((1, 1),))
    return replace(plain, federation=Federation([ThreeShades()]), holdout=held, base=(0, 0), composed=(0, 1))


def one_factor_problem() -> Problem:
    """The extension's base: all of the corners, but only left or right is labelled."""
    whole = vector_problem()
    smaller = SPACE.without("top-bottom")
    silo = Corners(NOTHING_HELD_OUT, labelled=(0,))
    return Problem(smaller, whole.event, Federation([silo]), whole.budget, Holdout.empty(smaller))
