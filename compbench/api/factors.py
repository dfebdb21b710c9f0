"""Factors, combinations and holdouts of a task's lattice, and what the seen part of the lattice determines.

A condition gives each factor a value or NULL: a LongTensor (B, F).  A condition without NULL is a combination.
The holdout is a set of combinations never trained on; it is given as cells of the sub-lattice of its own factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from compbench.system.errors import CompbenchError, suggest

if TYPE_CHECKING:  # torch is imported only where a tensor is made, because listing tasks needs none
    from numpy import ndarray
    from torch import Generator, Tensor

NULL = -1
"""The value of a factor that a condition leaves open."""

Value = TypeVar("Value", int, "Tensor", "ndarray")


def excluding(value: Value) -> Value:
    """The code in a condition for "any value but this one": -2 - value, which lies below NULL.

    The function is its own inverse.

    Args:
        value: a value, or such a code, or a tensor or array of either; NULL has no code.

    Returns:
        the code of the value, or the value of the code.
    """
    return -2 - value


class Factor(NamedTuple):
    """A named axis of variation with values 0 ... size - 1.

    Attributes:
        values: names of the values; () if they are only numbered.
        periodic: whether the last value is a neighbour of the first one, as for angles; codes of the values are then periodic.
    """

    name: str
    size: int
    values: tuple[str, ...] = ()
    periodic: bool = False


class Weighted(NamedTuple):
    """One member of a composition: the density p(x | condition)^weight; `condition` is a LongTensor (B, F)."""

    weight: float
    condition: Tensor


class FactorSpace:
    """The lattice of all combinations of some factors, in a fixed order (the last factor varies fastest)."""

    def __init__(self, factors: Iterable[Factor]) -> None:
        self.factors = tuple(factors)
        names = [factor.name for factor in self.factors]
        if len(set(names)) != len(names) or any(factor.size < 1 for factor in self.factors):
            raise CompbenchError(f"factors need distinct names and at least one value each, got {self.factors}.")

    def __len__(self) -> int:
        return len(self.factors)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FactorSpace) and self.factors == other.factors

    def __hash__(self) -> int:
        return hash(self.factors)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(factor.name for factor in self.factors)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(factor.size for factor in self.factors)

    @property
    def periodic(self) -> tuple[bool, ...]:
        return tuple(factor.periodic for factor in self.factors)

    @property
    def num_combinations(self) -> int:
        return math.prod(self.sizes)

    def index(self, name: str) -> int:
        """Position of a factor by name.  Raises CompbenchError with a suggestion for an unknown one."""
        if name not in self.names:
            raise suggest("factor", name, list(self.names))
        return self.names.index(name)

    def without(self, name: str) -> FactorSpace:
        """The space without one factor; the base model of an extension task is trained on it."""
        self.index(name)
        return FactorSpace(factor for factor in self.factors if factor.name != name)

    def check(self, condition: Tensor, *, allow_null: bool = True) -> Tensor:
        """Return `condition` if it is a LongTensor (B, F) within bounds; raise CompbenchError otherwise."""
        low = NULL if allow_null else 0
        if condition.ndim != 2 or condition.shape[1] != len(self) or condition.is_floating_point():
            raise CompbenchError(
                f"a condition must be an integer tensor (B, {len(self)}), got {condition.dtype} {tuple(condition.shape)}."
            )
        bad = (condition < low) | (condition >= condition.new_tensor(self.sizes))
        if bool(bad.any()):
            row, column = bad.nonzero()[0].tolist()
            raise CompbenchError(
                f"factor '{self.names[column]}' takes {low} to {self.sizes[column] - 1}, got {int(condition[row, column])}."
            )
        return condition

    def uniform(self, count: int, generator: Generator) -> Tensor:
        """`count` combinations drawn uniformly from the whole lattice, LongTensor (count, F) on the CPU."""
        import torch

        columns = [torch.randint(size, (count,), generator=generator) for size in self.sizes]
        return torch.stack(columns, dim=1)


def distance(cell: Sequence[int], seen: Iterable[Sequence[int]]) -> int:
    """Hamming distance of a cell to the nearest seen cell: how many of its values must change to reach that cell."""
    return min(sum(own != its for own, its in zip(cell, other, strict=True)) for other in seen)


class Holdout(NamedTuple):
    """The combinations never trained on: cells of the sub-lattice spanned by `factors`; the other factors are free.

    Attributes:
        space: the whole lattice.
        factors: positions of the pattern's factors.
        cells: held-out value tuples of those factors, sorted.
    """

    space: FactorSpace
    factors: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]

    @classmethod
    def by_rule(cls, space: FactorSpace, names: Sequence[str], rule: Callable[..., bool]) -> Holdout:
        """Hold out every cell of the named factors for which `rule(*values)` is true."""
        positions = tuple(space.index(name) for name in names)
        grid = product(*(range(space.sizes[position]) for position in positions))
        return cls(space, positions, tuple(cell for cell in grid if rule(*cell)))

    @classmethod
    def empty(cls, space: FactorSpace) -> Holdout:
        """A holdout without cells (extension tasks)."""
        return cls(space, (), ())

    @property
    def pattern_space(self) -> FactorSpace:
        """The sub-lattice of the pattern's factors; the whole lattice if nothing is held out."""
        if not self.factors:
            return self.space
        return FactorSpace(self.space.factors[position] for position in self.factors)

    @property
    def seen_cells(self) -> tuple[tuple[int, ...], ...]:
        held = set(self.cells)
        grid = product(*(range(size) for size in self.pattern_space.sizes)) if self.factors else ()
        return tuple(cell for cell in grid if cell not in held)

    def anchors(self, cell: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Seen cells that differ from `cell` in every value, and from which each single change towards it gives a seen cell."""
        seen = set(self.seen_cells)

        def steps(anchor: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            return ((*anchor[:k], cell[k], *anchor[k + 1 :]) for k in range(len(cell)))

        far = (anchor for anchor in self.seen_cells if all(own != its for own, its in zip(cell, anchor, strict=True)))
        return [anchor for anchor in far if all(step in seen for step in steps(anchor))]

    def draw(self, count: int, generator: Generator, *, heldout: bool) -> Tensor:
        """`count` combinations drawn uniformly from the held-out or the seen part, LongTensor (count, F)."""
        import torch

        condition = self.space.uniform(count, generator)
        cells = self.cells if heldout else self.seen_cells
        if not self.factors and not heldout:
            return condition
        if not cells:
            raise CompbenchError("this task holds nothing out: it has no held-out combinations to draw.")
        chosen = torch.randint(len(cells), (count,), generator=generator)
        condition[:, list(self.factors)] = torch.tensor(cells)[chosen]
        return condition

    def contains(self, condition: Tensor) -> Tensor:
        """Which rows of a condition (B, F) are held out: bool (B,)."""
        import torch

        if not self.cells:
            return torch.zeros(len(condition), dtype=torch.bool, device=condition.device)
        cells = torch.tensor(self.cells, device=condition.device)  # (C, P)
        return (condition[:, None, list(self.factors)] == cells).all(-1).any(-1)

    def frequencies(self) -> tuple[tuple[float, ...], ...]:
        """Frequency of each value among the seen combinations, for each factor; a centred one-hot code subtracts it."""
        seen = self.seen_cells
        rows = []
        for position, size in enumerate(self.space.sizes):
            if position in self.factors:
                column = self.factors.index(position)
                counts = [sum(cell[column] == value for cell in seen) for value in range(size)]
                rows.append(tuple(count / len(seen) for count in counts))
            else:
                rows.append((1 / size,) * size)
        return tuple(rows)


class Identifiability(NamedTuple):
    """What can be derived from a holdout before any training.

    Attributes:
        num_seen, num_cells: seen and all cells of the pattern's sub-lattice.
        coverage: their ratio (DCFM, section 3).
        minimum_coverage: C_min, definition 3.1.
        marginal_coverage: for each factor, the share of its values that some seen cell has.
        num_components: connected components of the seen graph (a vertex is a value, seen cells join their values).
        rank, full_rank: rank of the main-effects design on the seen cells, and on all cells.
    """

    num_seen: int
    num_cells: int
    coverage: float
    minimum_coverage: float
    marginal_coverage: tuple[float, ...]
    num_components: int
    rank: int
    full_rank: int

    @property
    def feasible(self) -> bool:
        """Whether the seen cells determine all main effects: full marginal coverage, C >= C_min and full rank."""
        return (
            self.coverage >= self.minimum_coverage
            and min(self.marginal_coverage, default=1.0) == 1.0
            and self.rank == self.full_rank
        )


def minimum_coverage(sizes: Sequence[int]) -> float:
    """C_min = (1 + sum_i (n_i - 1)) / prod_i n_i: the main-effect degrees of freedom over the number of cells.

    DCFM, definition 3.1 (equation 2).
    """
    return (1 + sum(size - 1 for size in sizes)) / math.prod(sizes)


def identifiability(sizes: Sequence[int], seen: Sequence[tuple[int, ...]]) -> Identifiability:
    """Whether seen cells of a lattice can determine an additive (main-effects) model of the others.

    Args:
        sizes: number of values of each factor.
        seen: the seen cells.

    Returns:
        coverage, C_min, components of the seen graph and rank of the main-effects design.
    """
    num_cells = math.prod(sizes)
    if not sizes:
        return Identifiability(1, 1, 1.0, 1.0, (), 1, 1, 1)
    marginal = tuple(len({cell[i] for cell in seen}) / size for i, size in enumerate(sizes))
    return Identifiability(
        num_seen=len(seen),
        num_cells=num_cells,
        coverage=len(seen) / num_cells,
        minimum_coverage=minimum_coverage(sizes),
        marginal_coverage=marginal,
        num_components=_num_components(sizes, seen),
        rank=_main_effects_rank(sizes, seen),
        full_rank=1 + sum(size - 1 for size in sizes),
    )


def _num_components(sizes: Sequence[int], seen: Sequence[tuple[int, ...]]) -> int:
    parent = {(i, value): (i, value) for i, size in enumerate(sizes) for value in range(size)}

    def root(vertex: tuple[int, int]) -> tuple[int, int]:
        while parent[vertex] != vertex:
            vertex = parent[vertex]
        return vertex

    for cell in seen:
        for i in range(1, len(sizes)):
            parent[root((i, cell[i]))] = root((0, cell[0]))
    return len({root(vertex) for vertex in parent})


def _main_effects_rank(sizes: Sequence[int], seen: Sequence[tuple[int, ...]]) -> int:
    import numpy

    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    design = numpy.zeros((len(seen), sum(sizes)))
    for row, cell in enumerate(seen):
        for offset, value in zip(offsets, cell, strict=True):
            design[row, offset + value] = 1.0
    return int(numpy.linalg.matrix_rank(design)) if len(seen) else 0


def symmetry_of(space: FactorSpace, shape: tuple[int, ...]) -> Literal["translation", "rotation"] | None:
    """The symmetry by which a space's factors act on an image (C, H, W): translation by whole pixels, rotation, or none.

    Factors "x" and "y" with as many values as the image has columns and rows translate it; a single periodic factor rotates it.
    """
    if len(shape) != 3:
        return None
    if space.names == ("x", "y") and space.sizes == (shape[2], shape[1]):
        return "translation"
    return "rotation" if len(space) == 1 and space.factors[0].periodic else None
