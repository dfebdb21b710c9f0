"""Count what a fit and its samples use: optimiser steps, drawn examples, and evaluations of the network.

A method says how many steps it reports and how many evaluations a sample costs.  These counts stand next to its report; they see
torch's optimisers and products, so a network in numpy has no counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from compbench.api.federation import LentSilo
from compbench.store.counts import FIT, evaluations_excess
from compbench.system import profiling
from compbench.system.condition_counts import ConditionCounts

if TYPE_CHECKING:
    from torch import Generator

    from compbench.api.context import Batch, Silo
    from compbench.api.interfaces import Problem

FREE_EXAMPLES = 2**14
"""A fit may draw this many examples besides its steps: for a mean, a list of distinct conditions, a closed-form fit."""


@dataclass
class Tally:
    """Counts of optimiser steps and of examples drawn from all silos; draws of labels alone do not count."""

    optimiser_steps: int = 0
    examples: int = 0

    def since(self, before: Tally) -> Tally:
        """The counts that were added after `before` was copied."""
        return Tally(self.optimiser_steps - before.optimiser_steps, self.examples - before.examples)

    def copy(self) -> Tally:
        return replace(self)

    @contextlib.contextmanager
    def counting_steps(self) -> Iterator[None]:
        """Count the steps of every torch optimiser while the block runs."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def step(*_: object) -> None:
            self.optimiser_steps += 1

        handle = register_optimizer_step_post_hook(step)
        try:
            yield
        finally:
            handle.remove()


class CountedSilo:
    """A silo that counts the examples drawn from it; it passes all other calls on."""

    def __init__(self, silo: Silo, tally: Tally) -> None:
        self._counted, self._tally = silo, tally

    def batch(self, size: int, generator: Generator) -> Batch:
        import sys

        drawn = self._counted.batch(size, generator)
        if sys._getframe(1).f_code is not LentSilo.labels.__code__:
            self._tally.examples += len(drawn.x1)
        return drawn

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


def evaluations(sample: Callable[[int], object], forward_flops: float, examples: int, declared: int) -> float | None:
    """Evaluations of the network for a sample, in forwards of the training loss; None where that has no products.

    Where a loss evaluates the network more than once an example, as penalties do, the true number is larger.  What a request
    computes once counts for its rows, unless there is more than was declared: then it is counted for one more sample alone.

    Args:
        sample: draws so many samples.
        forward_flops: of some training steps, without their gradients.
        examples: that these steps were made of.
        declared: evaluations of a sample, as the method says.
    """
    if not forward_flops or not examples:
        return None
    each, two = forward_flops / examples, profiling.count_flops(partial(sample, 2))
    if not evaluations_excess(two / 2 / each, declared):
        return two / 2 / each
    return (profiling.count_flops(partial(sample, 3)) - two) / each


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
    return {name: float(value) for name, value in zip(FIT, values, strict=True)}
