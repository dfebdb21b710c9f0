"""Print the lattice of a record: the share of correct samples in each cell, and by distance to the seen cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from compbench.board.cells import by_distance
from compbench.registry.registry import Registry

if TYPE_CHECKING:
    from compbench.api.interfaces import CellCount, Score, Task
    from compbench.api.schemas import Record

WIDEST = 24
"""Largest number of columns of a lattice that is drawn."""

TALLEST = 40
"""Largest number of rows of a lattice that is drawn."""


Names = Sequence[tuple[str, Sequence[str]]]
"""Name and value names of each factor of the lattice; empty where they are not known."""


def lines(scores: Sequence[Score], names: Names = ()) -> Iterator[str]:
    """Lines with a record's scores by cell; a record without counts gives no lines."""
    known = {score.split: score for score in scores if score.by_cell}
    heldout, seen = known.get("heldout"), known.get("seen")
    if heldout is None:
        return
    counts = {split: score.by_cell for split, score in known.items()}
    yield from drawn(counts.get("heldout", ()), counts.get("seen", ()), names)
    shares = by_distance(heldout.by_cell, seen.by_cell if seen else ())
    if shares:
        whole = (" samples in held-out cells", " from the nearest seen cell"), *[(" in cells", "")] * (len(shares) - 1)
        parts = (
            f"of {n}{cells} that differ{from_seen} in {_values(away)}, {right / n:.3f} are right"
            for (away, (right, n)), (cells, from_seen) in zip(shares.items(), whole, strict=True)
        )
        yield "; ".join(parts)
    product = product_of_factors(heldout, scores)
    if product is not None and heldout.value is not None:
        yield f"all factors right at once: {heldout.value:.3f}; if factors failed independently: {product:.3f}"


def _values(count: int) -> str:
    return f"{count} value{'' if count == 1 else 's'}"


def drawn(heldout: Sequence[CellCount], seen: Sequence[CellCount], names: Names = ()) -> Iterator[str]:
    """One line per value of the first factor: percent correct, seen cells in brackets; needs two factors and enough room."""
    cells: Mapping[tuple[int, ...], str] = {
        **{count.cell: f"({round(100 * count.right / count.n)})" for count in seen if count.n},
        **{count.cell: f"{round(100 * count.right / count.n)} " for count in heldout if count.n},
    }
    if not cells or any(len(cell) != 2 for cell in cells):
        return
    rows, columns = (max(cell[k] for cell in cells) + 1 for k in (0, 1))
    if columns > WIDEST or rows > TALLEST:
        return
    yield "percent right of each combination of two factors (a cell); seen cells in brackets"
    (first, down), (second, across) = names if len(names) == 2 else (("factor 1", ()), ("factor 2", ()))
    left = [down[row] if row < len(down) else str(row) for row in range(rows)]
    head = f"{first} \\ {second}"
    width = max(map(len, (head, *left)))
    above = [(across[column] if column < len(across) else str(column))[:5] for column in range(columns)]
    yield f"  {head:<{width}}" + "".join(f"{name + ' ':>6}" for name in above).rstrip()
    for row in range(rows):
        yield f"  {left[row]:<{width}}" + "".join(f"{cells.get((row, column), ''):>6}" for column in range(columns))


def product_of_factors(joint: Score, scores: Sequence[Score]) -> float | None:
    """The product of the accuracies of single factors: the joint accuracy that independent errors would give.

    None if the score is not an accuracy: scores whose names extend the name of another rate measure that rate in another way.
    """
    if not joint.metric.endswith("accuracy"):
        return None
    each = [score.value for score in scores if score.name.startswith(f"{joint.name}_") and "seen_judge" not in score.name]
    known = [value for value in each if value is not None]
    if len(known) < 2:
        return None
    return math.prod(known)


def task_of(record: Record) -> Task | None:
    """The task of a record if it is our own: a stranger's code is not run to print a result."""
    registry = Registry()
    own = (entry for entry in registry.entries("tasks") if (entry.name, entry.distribution) == (record.spec.task, "compbench"))
    return next((found.value for found in map(registry.attempt, own) if found.state == "ok"), None)


def names_of(record: Record) -> Names:
    """Name and value names of each factor of the holdout; () where they are not known here."""
    task = task_of(record)
    if task is None:
        return ()
    return [(factor.name, factor.values or tuple(map(str, range(factor.size)))) for factor in task.holdout.pattern_space.factors]
