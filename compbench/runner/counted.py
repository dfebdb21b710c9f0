"""Count what a fit and its samples use: optimiser steps, backward passes, drawn examples, and evaluations of the network.

A method says how many steps it reports and how many evaluations a sample costs.  These counts stand next to its report; they see
torch's optimisers and products, so a network in numpy has no counts.
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

    from compbench.api.context import Batch, Silo
    from compbench.api.interfaces import Problem

FREE_EXAMPLES = 2**14
"""A fit may draw this many examples besides its steps: for a mean, a list of distinct conditions, a closed-form fit."""

MOST_PASSES, MOST_PASSES_UNSEEN = 8, 2
"""Largest number of backward passes of a training step: of several networks and penalties; and where no optimiser was seen."""


_living: WeakValueDictionary[int, Tally] = WeakValueDictionary()
"""The tallies of this process, which a fork of it has too."""


def _found(number: int) -> Tally:
    """The tally of a number in this process or the process that it was forked from, else a new one."""
    return _living.get(number) or Tally()


def _number(index: int) -> property:
    """A number of a tally, in the memory that forked processes share."""

    def get(tally: Tally) -> int:
        return int(tally._numbers[index])

    def put(tally: Tally, value: int) -> None:
        tally._numbers[index] = value

    return property(get, put)


class Tally:
    """Counts of optimiser steps, of examples drawn from all silos, and of backward passes; draws of labels alone do not count.

    Backward passes are those of torch's engine, so an optimiser written by hand is seen by them.  The counts lie in memory that
    forked processes share, and a copy of a problem counts where the problem does.
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
        """Add what was counted elsewhere."""
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
    """Torch's engine of backward passes, which counts them; it passes all other calls on."""

    def __init__(self, engine: Any, tally: Tally) -> None:
        self._counted, self._tally = engine, tally

    def run_backward(self, *given: object, **named: object) -> object:
        self._tally.backward_passes += 1
        return self._counted.run_backward(*given, **named)

    def __getattr__(self, name: str) -> Any:
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
        """What `LentSilo.labels` gives.  Labels alone are not examples, so drawing them does not count."""
        import torch

        return LentSilo(self._counted, torch.device("cpu")).labels()

    def __getattr__(self, name: str) -> Any:
        if name == "_counted":  # of a copy that is not filled yet
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
"""If a fit's losses say of a smaller share of its examples what they regress on, its conditions are not counted: other losses of
the method say nothing."""


def regressed(counts: ConditionCounts, problem: Problem, taken: Tally) -> tuple[int, ...]:
    """How many training conditions told 0 ... F factors; () for a fit that took no steps or mostly did not say."""
    found = counts.of(len(problem.space))
    return found if taken.optimiser_steps and sum(found) >= LEAST_SHARE * taken.examples else ()


def evaluations(sample: Callable[[int], object], rows: int, forward_flops: float, examples: int, declared: int) -> float | None:
    """Evaluations of the network for a sample, in forwards of the training loss; None where that has no products.

    Where a loss evaluates the network more than once an example, as penalties do, the true number is larger.  What a request
    computes once counts for its rows, unless there is more than was declared: then it is counted for one sample more alone.

    Args:
        sample: draws so many samples.
        rows: of a request that the run asked, 2 at least: one more or less looks alike.
        forward_flops: of some training steps, without their gradients.
        examples: that these steps were made of.
        declared: evaluations of a sample, as the method says.
    """
    if not forward_flops or not examples:
        return None
    each, all_rows = forward_flops / examples, profiling.count_flops(partial(sample, rows))
    if not evaluations_excess(all_rows / rows / each, declared):
        return all_rows / rows / each
    return (all_rows - profiling.count_flops(partial(sample, rows - 1))) / each


def allowed_steps(problem: Problem, *, extending: bool = False) -> int:
    """Optimiser steps that the budget grants: to each party, and to the server that decentralised parties share.

    A method that pools the silos may take as many as they have together.
    """
    decentralised = any(account.rounds for account in problem.federation.accounts)
    steps = max(1, problem.budget.extend_steps) if extending else problem.budget.train_steps
    return steps * ((len(problem.federation) if decentralised or problem.federation.was_pooled else 1) + decentralised)


def allowed_examples(problem: Problem, *, parts: int = 1) -> int:
    """Examples of the granted steps, and one look at all data, which a fit without steps needs, for each part of a fit."""
    return allowed_steps(problem) * problem.budget.batch_size + parts * (sum(problem.federation.sizes) + FREE_EXAMPLES)


def counts(problem: Problem, tally: Tally, *, before: Tally, reported: int, parts: int = 1) -> dict[str, float]:
    """What a fit took and what it might take, as `compbench.store.counts` names it.

    Args:
        problem: that was fitted, after the fit.
        tally: what was counted, from the moment that the method got the problem.
        before: what of it came before the fit began.
        reported: steps that the fit reported.
        parts: that it was made in, stopped between them on purpose.
    """
    granted = allowed_steps(problem), allowed_examples(problem, parts=parts)
    values = (tally.optimiser_steps, tally.examples, *granted, reported, before.optimiser_steps, before.examples)
    found = {name: float(value) for name, value in zip(FIT, values, strict=True)}
    found |= {"early_backward_passes": float(before.backward_passes), "backward_passes": float(tally.backward_passes)}
    return found | {"granted_backward_passes": granted_passes(found, MOST_PASSES)}  # the most, until a step is probed


def increased(counts: Mapping[str, float], more: Tally, prefix: str = "") -> dict[str, float]:
    """Counts with what was counted besides: under the names of a fit's own, or under those of a prefix (`early_steps`)."""
    found = dict(counts)
    for name, value in zip(TAKEN if not prefix else KINDS, more.values, strict=True):
        found[prefix + name] = found.get(prefix + name, 0.0) + value
    return found


def earlier(tally: Tally) -> dict[str, float]:
    """What the processes of a resumed run took before this one, by its checkpoints; {} where there was none."""
    return increased({}, tally, "earlier_") if any(tally.values) else {}


def extension(problem: Problem, taken: Tally, *, retrained: bool) -> dict[str, float]:
    """What a second stage took and what it might take: the larger problem's budget for a fit, or that of an extension."""
    steps = allowed_steps(problem, extending=not retrained)
    look = sum(problem.federation.sizes) + FREE_EXAMPLES
    granted = (steps, steps * problem.budget.batch_size + look, ceil(SLACK * _passes(taken.optimiser_steps) * steps))
    return increased(increased({}, taken, "extension_"), Tally(*granted), "granted_extension_")


def granted_passes(counts: Mapping[str, float], each: float) -> float:
    """Backward passes that the budget grants to a fit, if a training step of a short fit takes `each`.

    Few are granted to a step, and fewer where no optimiser was seen: every pass is a look at a batch, whatever is made of it.
    """
    return ceil(SLACK * min(max(1.0, each), _passes(counts["optimiser_steps"])) * counts["granted_steps"])


def _passes(steps: float) -> int:
    return MOST_PASSES if steps else MOST_PASSES_UNSEEN


class Answers:
    """Backward passes in the answers to requests: guidance by a gradient takes some, and training would take more.

    They are held against a request that is asked again at the run's end, one with given entries against one with such entries:
    an answer may take as many as that one for each time that it has its rows, the answer to a warm-up twice as many.
    """

    def __init__(self) -> None:
        self._taken: list[tuple[int, int, bool]] = []

    def add(self, passes: int, rows: int, *, known: bool = False, warm_up: bool = False) -> None:
        if passes:
            self._taken.append((passes, rows * (1 + warm_up), known))

    def some(self, *, known: bool) -> bool:
        """Whether any were taken in answers with given entries, or without."""
        return any(kind == known for *_, kind in self._taken)

    def beyond(self, again: Mapping[bool, tuple[int, int]]) -> int:
        """Passes beyond what is granted.

        Args:
            again: the passes and the rows of the request that was asked again, with given entries (True) and without; a kind
                that is missing is granted none.
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
    """What was trained after the fit, where nothing is granted, as `compbench.store.counts` names it.

    Args:
        tally: what was counted until the run's end.
        fitted: what of it came until the fit was done.
        answers: what of it came in answers to requests.
        again: passes and rows of requests that were asked again (`Answers.beyond`).
    """
    found = tally.since(fitted)
    outside = max(0, found.backward_passes - answers.passes)
    return increased({}, Tally(found.optimiser_steps, found.examples, outside + answers.beyond(again)), "late_")
