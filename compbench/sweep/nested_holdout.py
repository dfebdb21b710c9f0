"""Nested holdouts: more cells are held out among a task's seen ones, so that settings are chosen without the task's own holdout.

The nested pattern is the task's own, shifted around the lattice, or single cells if no shift fits (`nested_cells`).  A method
trains on neither holdout.  Samples of the nested cells are compared with real examples that the method did not see, by the
energy score of Gneiting and Raftery (2007, equation 22), over conditions c and examples y ~ p(. | c):

    ES(p, y) = E |X - y| / sqrt(D) - E |X - X'| / (2 sqrt(D)),    X, X' ~ p(. | c) independent,  D numbers in a sample

The score is strictly proper: in expectation only the true distribution has the smallest score, so drawing means does not help.
The score needs no judge, so no model that was trained on the task's held-out combinations is involved.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from compbench.api.context import Batch, Silo
from compbench.api.factors import Holdout, identifiability
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Evaluation, OpenTask, Problem, Sampler, Score, Task, TaskContext
from compbench.registry.registry import Kind, Registry
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Generator, Tensor

NUM_EXAMPLES = 256
"""Number of real examples that samples are compared with."""
MOST_BATCHES = 400
"""Largest number of batches drawn to find enough examples on one side of the nested holdout."""
ENERGY_SCORE = "energy_score"


@lru_cache(maxsize=64)
def nested_cells(holdout: Holdout, seed: int) -> tuple[tuple[int, ...], ...]:
    """Cells to hold out among the seen ones: the holdout's own pattern, with its values shifted around the lattice.

    Shifts are tried in an order given by the seed.  The first one counts that hides at least half as many cells as the holdout
    has and leaves seen cells that determine the same main effects as all seen cells (`identifiability`).  If there is no such
    shift, single cells are hidden, in an order given by the seed, as long as the main effects stay determined, and at most a
    quarter of the seen cells.

    Returns:
        Sorted cells; () if no cell can be held out, as in a lattice of two by two.
    """
    sizes, seen = holdout.pattern_space.sizes, set(holdout.seen_cells)
    rank, chance = identifiability(sizes, sorted(seen)).rank, random.Random(seed)
    shifts = list(product(*(range(size) for size in sizes)))
    chance.shuffle(shifts)
    for shift in shifts:
        moved = {tuple((v + by) % n for v, by, n in zip(cell, shift, sizes, strict=True)) for cell in holdout.cells}
        chosen = moved & seen
        if 2 * len(chosen) >= len(holdout.cells) and identifiability(sizes, sorted(seen - chosen)).rank == rank:
            return tuple(sorted(chosen))
    hidden: set[tuple[int, ...]] = set()
    for cell in chance.sample(sorted(seen), len(seen)):
        if len(hidden) < len(seen) // 4 and identifiability(sizes, sorted(seen - hidden - {cell})).rank == rank:
            hidden.add(cell)
    return tuple(sorted(hidden))


class NestedHoldout(NamedTuple):
    """The nested cells, and the nested and the task's own cells together."""

    inner: Holdout
    union: Holdout


def nested_holdout(holdout: Holdout, seed: int) -> NestedHoldout:
    """The nested holdout of a task's holdout; each pattern of a task whose pattern changes with the run's seed has its own."""
    cells = nested_cells(holdout, seed)
    return NestedHoldout(holdout._replace(cells=cells), holdout._replace(cells=tuple(sorted({*holdout.cells, *cells}))))


def energy_score(samples: Tensor, real: Tensor) -> float:
    """The mean energy score of two samples per condition; lower is better.

    Args:
        samples: (2, N, *D), two independent samples of each example's condition.
        real: the examples, (N, *D).
    """
    flat, truth = samples.flatten(2).double(), real.flatten(1).double()
    error: float = (flat - truth).norm(dim=-1).mean().item()
    spread: float = (flat[0] - flat[1]).norm(dim=-1).mean().item()
    return (error - spread / 2) / math.sqrt(truth.shape[1])


class NestedRegistry(Registry):
    """A registry whose tasks hold out further cells among the seen ones; everything else is as installed.

    Args:
        files: files of methods that are not installed.
        seed: seed of the nested pattern.
    """

    def __init__(self, files: tuple[Path, ...], seed: int) -> None:
        super().__init__(files)
        self._seed = seed

    def load(self, kind: Kind, name: str) -> Any:
        found = super().load(kind, name)
        return nested(found, self._seed) if isinstance(found, Task) else found


def nested(task: Task, seed: int) -> Task:
    """The task with a nested holdout in addition to its own, scored only on the nested one.

    Raises:
        CompbenchError: the task holds nothing out, or adds a factor in a second stage.
    """
    if not task.holdout.cells or task.extends:
        why = "adds a factor in a second stage" if task.extends else "holds nothing out"
        raise CompbenchError(f"'{task.name}' {why}: there is no pattern to hold out inside its seen combinations.")
    first, configure = nested_holdout(task.holdout, seed), task.configure

    def opened(ctx: TaskContext) -> OpenTask:
        return OpenNested(task.open(ctx), seed, task.budgets[ctx.preset], ctx)

    return replace(
        task,
        holdout=first.union,
        open=opened,
        primary=f"{'heldout' if first.inner.cells else 'seen'}_{ENERGY_SCORE}",
        metrics=(),
        real_pictures=None,  # a study needs no pictures, and without these settings no shots of hidden cells
        truth=None,
        configure=None if configure is None else lambda changed: nested(configure(changed), seed),
    )


class OpenNested:
    """A task with its data open, without the examples of the nested cells.

    The cells are nested in the open task's own holdout, which can depend on the run's seed.  If no cell can be nested, samples
    are compared with training examples.

    Args:
        task: the open task itself.
        seed: seed of the nested pattern.
        budget, ctx: the preset's budget and the run's context.
    """

    def __init__(self, task: OpenTask, seed: int, budget: Budget, ctx: TaskContext) -> None:
        self.task, self.seed, self.budget, self.ctx = task, seed, budget, ctx

    def problem(self, budget: Budget) -> Problem:
        """The task's problem, without any example of a nested cell."""
        whole = self.task.problem(budget)
        inner, union = nested_holdout(whole.holdout, self.seed)
        if not inner.cells:
            return whole
        silos = [SiloOutside(silo, inner) for silo in whole.federation._silos]
        return replace(whole, holdout=union, federation=Federation(silos))

    def prepare(self) -> None:
        """Do nothing: no judge is needed."""

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Two samples of each real example's condition, and their energy score."""
        problem = self.task.problem(self.budget)
        inner, union = nested_holdout(problem.holdout, self.seed)

        def is_asked(condition: Tensor) -> Tensor:
            return inner.contains(condition) if inner.cells else ~union.contains(condition)

        silo, generator = problem.federation.pooled(), self.ctx.generator("nested")
        real = _drawn(silo, NUM_EXAMPLES, generator, is_asked, "of the nested combinations")
        split = "heldout" if inner.cells else "seen"
        condition = real.condition.cpu().repeat(2, 1)
        samples = sampler(condition, stream=split).reshape(2, *real.x1.shape)
        score = Score(
            name=f"{split}_{ENERGY_SCORE}",
            metric=ENERGY_SCORE,
            split=split,
            value=energy_score(samples, real.x1.cpu()),
            n=len(condition),
            direction="lower",
            primary=True,
        )
        return Evaluation((score,))


class SiloOutside:
    """A silo without its examples of some cells: examples of these cells are replaced by new draws."""

    def __init__(self, silo: Silo, holdout: Holdout) -> None:
        self._silo, self._holdout, self.name = silo, holdout, silo.name
        conditions: Tensor | None = getattr(silo, "condition", None)
        if conditions is not None:
            self.condition = conditions[~holdout.contains(conditions)]
            self.size = len(self.condition)
        else:
            seen = len(holdout.seen_cells)
            self.size = max(1, silo.size * seen // (seen + len(holdout.cells)))

    def batch(self, size: int, generator: Generator) -> Batch:
        return _drawn(self._silo, size, generator, lambda condition: ~self._holdout.contains(condition), "outside of them")


def _drawn(silo: Silo, size: int, generator: Generator, wanted: Callable[[Tensor], Tensor], where: str) -> Batch:
    """`size` examples whose conditions are wanted.  Raises CompbenchError if many batches of the silo have too few."""
    import torch

    parts: list[Batch] = []
    found = 0
    for _ in range(MOST_BATCHES):
        batch = silo.batch(size, generator)
        rows = wanted(batch.condition)
        parts.append(Batch(batch.x1[rows], batch.condition[rows]))
        found += int(rows.sum())
        if found >= size:
            return Batch(torch.cat([part.x1 for part in parts])[:size], torch.cat([part.condition for part in parts])[:size])
    raise CompbenchError(f"silo '{silo.name}' has too few examples {where}: {found} of {size} in {MOST_BATCHES} batches.")
