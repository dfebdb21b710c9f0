"""Count what a fit and its samples use: optimiser steps, backward passes, drawn examples, and evaluations of the network.

A method reports its steps and declares its evaluations per sample.  These counts are shown next to its report; they cover torch's
optimisers and matrix products, so a network in numpy has no counts.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from compbench.api.federation import LentSilo
from compbench.store.counts import FIT, KINDS, SLACK, TAKEN, evaluations_excess
from compbench.system import profiling
from compbench.system.condition_counts import ConditionCounts

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch._C import _ImperativeEngine as Engine

    from compbench.api.context import Batch, Silo
    from compbench.api.interfaces import Problem

FREE_EXAMPLES = 2**14
"""A fit may draw this many examples outside of its steps: for a mean, a list of conditions, or a closed-form fit."""

MOST_PASSES, MOST_PASSES_UNSEEN = 8, 2
"""Largest number of backward passes per training step (several networks, penalties), and the limit if no optimiser was seen."""


_living: WeakValueDictionary[int, Tally] = WeakValueDictionary()
"""The tallies of this process by number; forks inherit them."""


def _found(number: int) -> Tally:
    """The tally with a number in this process or the process that it was forked from, else a new one."""
    return _living.get(number) or Tally()


def _number(index: int) -> property:
    """A property for one count of a tally, in the memory that forked processes share."""

    def get(tally: Tally) -> int:
        return int(tally._numbers[index])

    def put(tally: Tally, value: int) -> None:
        tally._numbers[index] = value

    return property(get, put)


class Tally:
    """Counts of optimiser steps, of examples drawn from all silos, and of backward passes; draws of labels alone do not count.

    Backward passes are those of torch's engine, so they also reveal a hand-written optimiser.  The counts are in memory that
    forked processes share, and a copy of a problem adds to the same counts as the problem.
    """

    def __init__(self, optimiser_steps: int = 0, examples: int = 0, backward_passes: int = 0) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 3 * 8)).cast("q")
        self.optimiser_steps, self.examples, self.backward_passes = optimiser_steps, examples, backward_passes
        _living[id(self)] = self

    optimiser_steps, examples, backward_passes = map(_number, range(3))

    @property
    def values(self) -> tuple[int, int, int]:
        """Optimiser steps, examples and backward passes."""
        return self.optimiser_steps, self.examples, self.backward_passes

    def since(self, before: Tally) -> Tally:
        """The counts that were added after `before` was copied."""
        return Tally(*(now - then for now, then in zip(self.values, before.values, strict=True)))

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        steps, examples, passes = other.values
        self.optimiser_steps += steps
        self.examples += examples
        self.backward_passes += passes

    def copy(self) -> Tally:
        return Tally(*self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self.values == other.values

    def __deepcopy__(self, memo: object) -> Tally:
        return self

    def __reduce__(self) -> tuple[Callable[[int], Tally], tuple[int]]:
        return _found, (id(self),)

    @contextlib.contextmanager
    def counting_steps(self) -> Iterator[None]:
        """Count the steps of every torch optimiser, and the passes of torch's engine, while the block runs."""
        from torch.autograd import Variable
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def step(*_: object) -> None:
            self.optimiser_steps += 1

        torchs: Any = Variable
        handle, engine = register_optimizer_step_post_hook(step), torchs._execution_engine
        torchs._execution_engine = CountedEngine(engine, self)
        try:
            yield
        finally:
            handle.remove()
            torchs._execution_engine = engine


class CountedEngine:
    """Torch's autograd engine with a count of backward passes; it passes all other calls on."""

    def __init__(self, engine: Engine | CountedEngine, tally: Tally) -> None:
        self._counted, self._tally = engine, tally

    def run_backward(self, *given: object, **named: object) -> object:
        self._tally.backward_passes += 1
        return self._counted.run_backward(*given, **named)

    def __getattr__(self, name: str) -> object:
        return getattr(self._counted, name)


class CountedSilo:
    """A silo that counts the examples drawn from it; it passes all other calls on."""

    def __init__(self, silo: Silo, tally: Tally) -> None:
        self._counted, self._tally = silo, tally

    def batch(self, size: int, generator: Generator) -> Batch:
        drawn = self._counted.batch(size, generator)
        self._tally.examples += len(drawn.x1)
        return drawn

    @property
    def condition(self) -> Tensor:
        """The conditions for `LentSilo.labels`.  Labels alone are not examples, so drawing them does not count."""
        import torch

        return LentSilo(self._counted, torch.device("cpu")).labels()

    def __getattr__(self, name: str) -> Any:
        if name == "_counted":  # while a copy is being made
            raise AttributeError(name)
        return getattr(self._counted, name)


def counted(problem: Problem, tally: Tally) -> Problem:
    """The problem, with counting silos in it and in its extension."""
    extension = problem.extension
    if extension is not None:
        extension = extension._replace(problem=counted(extension.problem, tally))
    federation = type(problem.federation)([CountedSilo(silo, tally) for silo in problem.federation._silos])
    singles = None if problem.singles is None else CountedSilo(problem.singles, tally)
    return replace(problem, federation=federation, singles=singles, extension=extension)


LEAST_SHARE = 0.5
"""If the losses of a fit report conditions for a smaller share of its examples, its conditions are not counted, because other
losses of the method report none."""


def regressed(counts: ConditionCounts, problem: Problem, taken: Tally) -> tuple[int, ...]:
    """Number of training conditions with values of 0 ... F factors; () for a fit without steps or with too few reports."""
    found = counts.of(len(problem.space))
    return found if taken.optimiser_steps and sum(found) >= LEAST_SHARE * taken.examples else ()


def evaluations(sample: Callable[[int], object], rows: int, forward_flops: float, examples: int, declared: int) -> float | None:
    """Evaluations of the network per sample, in forward passes of the training loss; None if the loss has no matrix products.

    If a loss evaluates the network more than once per example, as penalties do, the true number is larger.  Work done once per
    request is divided among its rows, unless the result exceeds the declared number: then only the cost of one more row counts.

    Args:
        sample: draws a number of samples.
        rows: number of rows of a request of the run, at least 2.
        forward_flops: FLOPs of the forward passes of some training steps.
        examples: number of examples in these steps.
        declared: evaluations per sample that the method declares.
    """
    if not forward_flops or not examples:
        return None
    each, all_rows = forward_flops / examples, profiling.count_flops(partial(sample, rows))
    if not evaluations_excess(all_rows / rows / each, declared):
        return all_rows / rows / each
    return (all_rows - profiling.count_flops(partial(sample, rows - 1))) / each


def allowed_steps(problem: Problem, *, extending: bool = False) -> int:
    """Optimiser steps that the budget grants to each party and to the server that decentralised parties share.

    A method that pools the silos may take as many steps as all silos together.
    """
    decentralised = any(account.rounds for account in problem.federation.accounts)
    steps = max(1, problem.budget.extend_steps) if extending else problem.budget.train_steps
    return steps * ((len(problem.federation) if decentralised or problem.federation.was_pooled else 1) + decentralised)


def allowed_examples(problem: Problem, *, parts: int = 1) -> int:
    """Examples of the granted steps, plus one pass over all data, which a fit without steps needs, for each part of a fit."""
    return allowed_steps(problem) * problem.budget.batch_size + parts * (sum(problem.federation.sizes) + FREE_EXAMPLES)


def counts(problem: Problem, tally: Tally, *, before: Tally, reported: int, parts: int = 1) -> dict[str, float]:
    """What a fit used and what the budget grants, under the names of `compbench.store.counts`.

    Args:
        problem: the fitted problem, after the fit.
        tally: counts from the moment that the method got the problem.
        before: the part of these counts from before the fit began.
        reported: steps that the fit reported.
        parts: number of parts of the fit, with planned stops between them.
    """
    granted = allowed_steps(problem), allowed_examples(problem, parts=parts)
    values = (tally.optimiser_steps, tally.examples, *granted, reported, before.optimiser_steps, before.examples)
    found = {name: float(value) for name, value in zip(FIT, values, strict=True)}
    found |= {"early_backward_passes": float(before.backward_passes), "backward_passes": float(tally.backward_passes)}
    return found | {"granted_backward_passes": granted_passes(found, MOST_PASSES)}  # the limit, until a step is probed


def increased(counts: Mapping[str, float], more: Tally, prefix: str = "") -> dict[str, float]:
    """Add further counts, under a fit's own names or under names with a prefix (`early_steps`)."""
    found = dict(counts)
    for name, value in zip(TAKEN if not prefix else KINDS, more.values, strict=True):
        found[prefix + name] = found.get(prefix + name, 0.0) + value
    return found


def earlier(tally: Tally) -> dict[str, float]:
    """What earlier processes of a resumed run took, by its checkpoints; {} if there were none."""
    return increased({}, tally, "earlier_") if any(tally.values) else {}


def extension(problem: Problem, taken: Tally, *, retrained: bool) -> dict[str, float]:
    """What a second stage used and what is granted: the larger problem's budget for a new fit, or the extension's budget."""
    steps = allowed_steps(problem, extending=not retrained)
    look = sum(problem.federation.sizes) + FREE_EXAMPLES
    granted = (steps, steps * problem.budget.batch_size + look, ceil(SLACK * _passes(taken.optimiser_steps) * steps))
    return increased(increased({}, taken, "extension_"), Tally(*granted), "granted_extension_")


def granted_passes(counts: Mapping[str, float], each: float) -> float:
    """Backward passes that the budget grants to a fit, if one training step of a short fit takes `each` passes.

    The number per step has a limit, because every pass uses a batch; the limit is lower if no optimiser was seen.
    """
    return ceil(SLACK * min(max(1.0, each), _passes(counts["optimiser_steps"])) * counts["granted_steps"])


def _passes(steps: float) -> int:
    return MOST_PASSES if steps else MOST_PASSES_UNSEEN


class Answers:
    """Backward passes in the answers to requests: gradient guidance takes some, and training would take more.

    They are compared with a request that is repeated at the end of the run, separately for requests with and without given
    entries.  An answer may take as many passes as the repeated one, in proportion to its rows; the answer to a warm-up may take
    twice as many.
    """

    def __init__(self) -> None:
        self._taken: list[tuple[int, int, bool]] = []

    def add(self, passes: int, rows: int, *, known: bool = False, warm_up: bool = False) -> None:
        if passes:
            self._taken.append((passes, rows * (1 + warm_up), known))

    def some(self, *, known: bool) -> bool:
        """Whether answers with given entries (or without) took any passes."""
        return any(kind == known for *_, kind in self._taken)

    def beyond(self, again: Mapping[bool, tuple[int, int]]) -> int:
        """Number of passes beyond the granted ones.

        Args:
            again: passes and rows of the repeated request, with given entries (True) and without (False); a missing kind is
                granted no passes.
        """
        found = 0
        for taken, own, known in self._taken:
            passes, rows = again.get(known, (0, 1))
            found += max(0, taken - ceil(SLACK * passes * ceil(own / rows)))
        return found

    @property
    def passes(self) -> int:
        """All passes in answers."""
        return sum(taken for taken, *_ in self._taken)


def late(tally: Tally, *, fitted: Tally, answers: Answers, again: Mapping[bool, tuple[int, int]]) -> dict[str, float]:
    """Training after the fit, where none is granted, under the names of `compbench.store.counts`.

    Args:
        tally: counts until the end of the run.
        fitted: the part of these counts until the end of the fit.
        answers: the part of these counts in answers to requests.
        again: passes and rows of repeated requests (`Answers.beyond`).
    """
    found = tally.since(fitted)
    outside = max(0, found.backward_passes - answers.passes)
    return increased({}, Tally(found.optimiser_steps, found.examples, outside + answers.beyond(again)), "late_")
