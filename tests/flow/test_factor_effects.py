"""Additive vectors, pure interactions, and factors whose effects span known subspaces."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from compbench.flow.factor_effects import Effects, effects

SIZES = (3, 4)
GRID = torch.cartesian_prod(torch.arange(3), torch.arange(4))


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def of(vectors: Tensor, cells: Tensor = GRID, sizes: tuple[int, ...] = SIZES) -> Effects:
    return effects(vectors @ vectors.T, cells, sizes)


def test_additive_vectors_have_an_r2_of_one_also_where_cells_are_missing() -> None:
    vectors = 5 + random(3, 20)[GRID[:, 0]] + random(4, 20)[GRID[:, 1]]
    assert of(vectors).r2 == pytest.approx(1)
    some = torch.tensor([0, 1, 2, 3, 4, 6, 9, 11])
    found = of(vectors[some], GRID[some])
    assert found.r2 == pytest.approx(1)
    assert found.num_effects == 5


def test_a_pure_interaction_has_an_r2_of_zero_and_mixtures_lie_between() -> None:
    rest = random(3, 4, 20)
    rest = rest - rest.mean(0, keepdim=True) - rest.mean(1, keepdim=True) + rest.mean((0, 1), keepdim=True)
    pure, additive = rest.flatten(0, 1), (random(3, 20) - random(3, 20).mean(0))[GRID[:, 0]]
    assert of(7 + pure).r2 == pytest.approx(0, abs=1e-12)
    share = additive.square().sum() / (additive.square().sum() + pure.square().sum())
    assert of(additive + pure).r2 == pytest.approx(share.item())
    xor = torch.tensor([[1.0], [-1.0], [-1.0], [1.0]], dtype=torch.float64)
    assert of(xor, torch.cartesian_prod(torch.arange(2), torch.arange(2)), (2, 2)).r2 == pytest.approx(0, abs=1e-12)


def test_cells_that_leave_no_degree_of_freedom_have_no_r2() -> None:
    cells = torch.tensor([[0, 0], [1, 1], [2, 2], [0, 1]])
    assert of(random(4, 20), cells, (3, 3)).r2 is None
    assert of(torch.ones(12, 20, dtype=torch.float64)).r2 is None


def planes(angle: float) -> Tensor:
    """Vectors whose two factors span a plane each, with principal angles of 0 degrees (if `angle` is 0) or `angle` twice."""
    one, other = torch.zeros(2, 8, dtype=torch.float64), torch.zeros(2, 8, dtype=torch.float64)
    one[0, 0] = one[1, 1] = 1
    other[0, 0] = other[1, 1] = math.cos(angle)
    other[0, 2] = other[1, 3] = math.sin(angle)
    return 3 + (random(3, 2) @ one)[GRID[:, 0]] + (random(4, 2) @ other)[GRID[:, 1]]


@pytest.mark.parametrize(("angle", "cosine"), [(0, 1), (math.pi / 2, 0), (math.pi / 3, 0.5)])
def test_equal_spans_have_a_cosine_of_one_orthogonal_ones_of_zero(angle: float, cosine: float) -> None:
    assert of(planes(angle)).cosine == pytest.approx(cosine, abs=1e-6)


def test_values_that_are_never_seen_together_are_not_compared() -> None:
    """The seen graph of an even/odd design falls in two, and the parts may lie anywhere."""
    even = (GRID.sum(1) % 2 == 0).nonzero()[:, 0]
    cells, vectors = GRID[even], planes(math.pi / 2)[even]
    moved = vectors + 100 * random(8) * (cells[:, :1] % 2)
    assert of(moved, cells).cosine == pytest.approx(of(vectors, cells).cosine, abs=1e-6)
    assert of(moved, cells).cosine == pytest.approx(0, abs=1e-6)


def test_one_factor_has_no_cosine() -> None:
    assert of(random(4, 5), torch.arange(4)[:, None], (4,)) == Effects(None, None, 3)
    silent = random(3, 20)[GRID[:, 0]]
    assert of(silent).cosine is None
