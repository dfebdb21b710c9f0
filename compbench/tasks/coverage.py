"""The coverage ladder: how large a share of a factor grid's cells is seen, and which cells are seen.

    rung (d, k)    a cell is seen if at most k of its values v_i have v_i >= d_i, for thresholds d = (d_1 ... d_F)

The lowest rung, d = (1 ... 1) and k = 1, has the origin and one line along each factor: 1 + sum_i (n_i - 1) cells, called
C_min.  Higher rungs widen the thresholds in proportion to the factors' sizes, or let more values lie beyond them (k > 1).  The
rungs are nested orthotopic designs (IBM's orthotopic evaluation, arXiv 2511.02667, for classifiers only).  A random design of the
same size shows each value at least once and is otherwise drawn uniformly.  A permuted design is the task's own pattern with the
values of each factor renamed: it has as many seen cells, and their graph has the same shape.  Values without an order are
permuted.  Values on a line are reversed or stay, and values on a circle are also turned, so that neighbours stay neighbours.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field

from compbench.api.factors import FactorSpace, Holdout
from compbench.api.interfaces import MethodSettings
from compbench.system.errors import CompbenchError

V = TypeVar("V")
Order = Literal["line", "circle"]
UNORDERED: Mapping[str, Order] = {}
ATTEMPTS = 1000
"""Renamings that are tried before a pattern counts as the only one of its kind."""


class CoverageSettings(MethodSettings):
    """Settings of a task whose seen cells can be chosen by `--set task.coverage=R`."""

    coverage: float = Field(0.0, ge=0, lt=1, description="share of the cells that is seen; 0: the task's own pattern")
    design: Literal["orthotopic", "random", "permuted"] = Field(
        "orthotopic",
        description="which cells a coverage shows: those of the nearest rung, or equally many random ones; permuted takes no "
        "coverage and renames each factor's values in the task's own pattern, neighbours as neighbours",
    )
    split_seed: int = Field(0, ge=0, le=2**31, description="seed of a design's seen cells; the run's seed does not change them")


class Rung(NamedTuple):
    """One orthotopic design: its thresholds, how many values may lie beyond them, and the number of seen cells."""

    thresholds: tuple[int, ...]
    beyond: int
    num_seen: int


def rungs(sizes: Sequence[int]) -> tuple[Rung, ...]:
    """The orthotopic ladder of a factor grid, from C_min upwards, with one rung for each number of seen cells.

    Args:
        sizes: number of values of each factor; at least two factors with at least two values each.

    Raises:
        CompbenchError: the grid has a single factor, or a factor with one value.
    """
    if len(sizes) < 2 or min(sizes) < 2:
        raise CompbenchError(f"a coverage needs a lattice of two factors or more with two values each, got sizes {tuple(sizes)}.")
    largest = max(sizes)
    found: dict[int, Rung] = {}
    for beyond in range(1, len(sizes)):
        for step in range(1, largest):
            thresholds = tuple(max(1, round(step / largest * size)) for size in sizes)
            count = _count(sizes, thresholds, beyond)
            if count < math.prod(sizes):
                found.setdefault(count, Rung(thresholds, beyond, count))
    return tuple(found[count] for count in sorted(found))


def seen_cells(sizes: Sequence[int], settings: CoverageSettings) -> tuple[tuple[int, ...], ...]:
    """The seen cells of a factor grid under a coverage, sorted.

    An orthotopic design uses the nearest rung; split seeds above 0 shuffle each factor's values, which gives another design of
    the same kind.  A random design has as many cells as the nearest rung, or, below C_min, the requested share.

    Raises:
        CompbenchError: the coverage is below the lowest rung of an orthotopic design, or too small to show each value once.
    """
    ladder, cells = rungs(sizes), math.prod(sizes)
    rung = min(ladder, key=lambda one: abs(one.num_seen / cells - settings.coverage))
    below = settings.coverage * cells < ladder[0].num_seen - 0.5
    if settings.design == "orthotopic":
        if below:
            raise CompbenchError(
                f"--set task.coverage={settings.coverage:g}: the lowest orthotopic rung of sizes {tuple(sizes)} is "
                f"{ladder[0].num_seen}/{cells} = {ladder[0].num_seen / cells:.3f} (C_min); use task.design=random below it."
            )
        return _orthotope(sizes, rung, settings.split_seed)
    count = round(settings.coverage * cells) if below else rung.num_seen
    if count < max(sizes):
        raise CompbenchError(
            f"--set task.coverage={settings.coverage:g}: {count} of {cells} cells cannot show each of {max(sizes)} values; "
            f"use at least {max(sizes) / cells:.3f}."
        )
    return _random(sizes, count, settings.split_seed)


def holdout_of(
    space: FactorSpace,
    names: Sequence[str],
    settings: CoverageSettings,
    rule: Callable[..., bool],
    orders: Mapping[str, Order] = UNORDERED,
) -> Holdout:
    """The holdout on some factors: what the rule holds out, or what the settings choose in its place (`chosen`)."""
    return chosen(Holdout.by_rule(space, names, rule), settings, orders)


def chosen(own: Holdout, settings: CoverageSettings, orders: Mapping[str, Order] = UNORDERED) -> Holdout:
    """A task's own holdout, its permutation, or, if a coverage is set, all cells that the coverage does not show.

    Args:
        own: the task's own holdout.
        settings: the coverage and the design.
        orders: factors whose neighbouring values look alike and are to stay neighbours, each with the order of its values.

    Raises:
        CompbenchError: no design has the coverage, a permuted design is asked for another coverage than the task's own, the
            task holds nothing out, or a permuted design has no pattern but the task's own.
    """
    if not own.cells and (settings.coverage or settings.design == "permuted"):
        asked = f"coverage={settings.coverage:g}" if settings.coverage else "design=permuted"
        raise CompbenchError(f"--set task.{asked}: the task holds nothing out, so there is no pattern to choose.")
    if settings.design == "permuted":
        if settings.coverage:
            raise CompbenchError(
                f"--set task.coverage={settings.coverage:g}: task.design=permuted shows as many cells as the task's own pattern; "
                "leave task.coverage out, or use task.design=random."
            )
        return permuted(own, settings.split_seed, orders)
    if not settings.coverage:
        return own
    seen = set(seen_cells(own.pattern_space.sizes, settings))
    names = [factor.name for factor in own.pattern_space.factors]
    return Holdout.by_rule(own.space, names, lambda *cell: cell not in seen)


def permuted(own: Holdout, seed: int, orders: Mapping[str, Order] = UNORDERED) -> Holdout:
    """The same pattern with the values of each factor renamed; the first renaming of the seed that holds out other cells.

    Raises:
        CompbenchError: every renaming gives the task's own pattern.
    """
    kinds = [orders.get(factor.name) for factor in own.pattern_space.factors]
    for attempt in range(ATTEMPTS):
        cells = _renamed(own, f"{seed} {attempt}", kinds)
        if cells != own.cells:
            return own._replace(cells=cells)
    raise CompbenchError(
        "--set task.design=permuted: every renaming that keeps neighbouring values neighbours gives the task's own pattern; "
        "use task.design=random with a task.coverage."
    )


def said(settings: CoverageSettings, otherwise: str) -> str:
    """The words that describe the holdout in a task's summary."""
    if settings.design == "permuted":
        return f"{otherwise}, values permuted"
    return f"coverage {settings.coverage:g}, {settings.design}" if settings.coverage else otherwise


def _count(sizes: Sequence[int], thresholds: Sequence[int], beyond: int) -> int:
    """Number of cells with at most `beyond` values at or beyond the thresholds.

    It is the sum of the coefficients of z^0 to z^beyond in prod_i (d_i + (n_i - d_i) z).
    """
    coefficients = [1]
    for size, inside in zip(sizes, thresholds, strict=True):
        outside = size - inside
        coefficients = [inside * low + outside * high for low, high in zip([*coefficients, 0], [0, *coefficients], strict=True)]
    return sum(coefficients[: beyond + 1])


def _orthotope(sizes: Sequence[int], rung: Rung, seed: int) -> tuple[tuple[int, ...], ...]:
    orders = [_shuffled(range(size), f"{seed} {factor}") if seed else list(range(size)) for factor, size in enumerate(sizes)]
    places = [{value: place for place, value in enumerate(order)} for order in orders]

    def num_beyond(cell: tuple[int, ...]) -> int:
        return sum(places[k][value] >= rung.thresholds[k] for k, value in enumerate(cell))

    return tuple(cell for cell in product(*map(range, sizes)) if num_beyond(cell) <= rung.beyond)


def _renamed(own: Holdout, seed: str, orders: Sequence[Order | None]) -> tuple[tuple[int, ...], ...]:
    sizes = own.pattern_space.sizes
    names = [_reordered(size, f"{seed} {factor}", orders[factor]) for factor, size in enumerate(sizes)]
    return tuple(sorted(tuple(name[value] for name, value in zip(names, cell, strict=True)) for cell in own.cells))


def _reordered(size: int, seed: str, order: Order | None) -> list[int]:
    """The values in a random order: any one, or on a line or circle one in which neighbours stay neighbours."""
    shuffled = _shuffled(range(size), seed)
    if order is None:
        return shuffled
    start = shuffled[0] if order == "circle" else 0
    turned = [(start + step) % size for step in range(size)]
    forwards = _shuffled((True, False), f"{seed} forwards")[0]
    return turned if forwards else turned[::-1]


def _random(sizes: Sequence[int], count: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Random cells: first one for each value of the largest factor, which together show all values; then any others."""
    orders = [_shuffled(range(size), f"{seed} {factor}") for factor, size in enumerate(sizes)]
    covering = [tuple(order[step % len(order)] for order in orders) for step in range(max(sizes))]
    others = _shuffled(set(product(*map(range, sizes))) - set(covering), f"{seed} cells")
    return tuple(sorted([*covering, *others][:count]))


def _shuffled(values: Iterable[V], seed: str) -> list[V]:
    """The values in an order that depends only on the seed and is the same on every machine and version of Python."""
    return sorted(values, key=lambda value: hashlib.sha256(f"{seed} {value}".encode()).digest())
