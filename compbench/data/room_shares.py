"""Class shares of rooms in each condition and in their composition.

target(c) = p10(c) p01(c) / p00(c), normalised; each picture belongs to exactly one class c
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor

ALPHA, BETA = 0.01, 0.05 / 3
Cell = tuple[int, int]
Shares = tuple[float, float, float, float]

SOURCES: dict[str, dict[Cell, Shares]] = {
    "id": {
        (0, 0): (0.25, 0.25, 0.25, 0.25),
        (1, 0): (ALPHA, 0.5 - ALPHA, ALPHA, 0.5 - ALPHA),
        (0, 1): (ALPHA, ALPHA, 0.5 - ALPHA, 0.5 - ALPHA),
    },
    "ood": {
        (0, 0): (1 - 3 * BETA, BETA, BETA, BETA),
        (1, 0): (BETA, 1 - 3 * BETA, BETA, BETA),
        (0, 1): (BETA, BETA, 1 - 3 * BETA, BETA),
    },
}
"""Shares of the classes (nothing, couch, second object, both) in each source."""


def exact_shares(where: str) -> Shares:
    """Class shares of the target p(1,0) p(0,1) / p(0,0), class by class and normalised: no picture has two classes."""
    base, first, second = (SOURCES[where][cell] for cell in ((0, 0), (1, 0), (0, 1)))
    products = [a * b / c for a, b, c in zip(first, second, base, strict=True)]
    total = sum(products)
    return products[0] / total, products[1] / total, products[2] / total, products[3] / total


def drawn_classes(condition: Tensor, laws: dict[Cell, Shares], generator: Generator) -> Tensor:
    """A class for each condition (B, 2), drawn by the condition's shares: long (B,)."""
    import torch

    shares = torch.tensor([laws[first, second] for first, second in condition.tolist()])
    return torch.multinomial(shares, 1, generator=generator)[:, 0]
