"""What a fit and its samples took, counted by the harness: optimiser steps, examples drawn, evaluations of the network.

A method says how many steps it reports and how many evaluations a sample costs.  These counts stand beside that; they see
torch's optimisers and products, so a network in numpy has none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from compbench import profiling
from compbench.federation import LentSilo

if TYPE_CHECKING:
    from torch import Generator

    from compbench.interfaces import Batch, Budget, Problem, Silo

FREE_EXAMPLES = 2**14
"""Examples that any fit may look at beside its steps: for a mean, a list of distinct conditions, a fit in closed form."""

SLACK = 1.25
"""Evaluations may be so many times those that were declared: what is computed once a request counts for every row of it."""


@dataclass
class Tally:
    """Optimiser steps, and examples drawn from all silos; draws for labels alone do not count."""

    optimiser_steps: int = 0
    examples: int = 0

    def since(self, before: Tally) -> Tally:
        """What was added after `before` was copied."""
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
    """A silo that counts the examples drawn from it; all else is the silo's own."""

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
    """The problem with its silos, and those of its extension, counted."""
    extension = problem.extension
    if extension is not None:
        extension = extension._replace(problem=counted(extension.problem, tally))
    federation = type(problem.federation)([CountedSilo(silo, tally) for silo in problem.federation._silos])
    singles = None if problem.singles is None else CountedSilo(problem.singles, tally)
    return replace(problem, federation=federation, singles=singles, extension=extension)


def evaluations(sample: Callable[[int], object], forward_flops: float, examples: int) -> float | None:
    """Evaluations of the network for one more sample, in forwards of the training loss; None where that has no products.

    Where a loss evaluates the network more than once an example, as penalties do, the true number is larger.

    Args:
        sample: draws so many samples.
        forward_flops: of some training steps, without their gradients.
        examples: that these steps were made of.
    """
    if not forward_flops or not examples:
        return None
    one, three = (profiling.count_flops(partial(sample, rows)) for rows in (1, 3))
    return (three - one) / 2 / (forward_flops / examples)


def allowed_steps(problem: Problem) -> int:
    """Optimiser steps that the budget grants: to each party, and to the server that decentralised parties share."""
    decentralised = any(account.rounds for account in problem.federation.accounts)
    return problem.budget.train_steps * (len(problem.federation) + 1 if decentralised else 1)


def allowed_examples(problem: Problem) -> int:
    """Examples of the granted steps, and one look at all data, which a fit without steps needs."""
    return allowed_steps(problem) * problem.budget.batch_size + sum(problem.federation.sizes) + FREE_EXAMPLES


def fit_excess(problem: Problem, tally: Tally, *, before: Tally, reported: int) -> str:
    """What a fit took beyond the budget or its own report; "" if nothing.

    Args:
        problem: that was fitted, after the fit.
        tally: what was counted, from the moment that the method got the problem.
        before: what of it came before the fit began.
        reported: steps that the fit reported.
    """
    steps, examples = allowed_steps(problem), allowed_examples(problem)
    if before.optimiser_steps or before.examples:
        return f"{before.optimiser_steps} optimiser steps and {before.examples} examples before the fit began"
    if tally.optimiser_steps > steps:
        return f"{tally.optimiser_steps} optimiser steps, of {steps} that the budget grants"
    if tally.optimiser_steps > reported:
        return f"{tally.optimiser_steps} optimiser steps, of which {reported} were reported"
    if tally.examples > examples:
        return f"{tally.examples} examples drawn, of {examples} that the budget grants"
    return ""


def evaluations_excess(found: float | None, declared: int | None) -> str:
    """How much more a sample takes than was declared; "" if it does not."""
    if found is None or declared is None or found <= SLACK * declared + 0.5:
        return ""
    return f"about {found:.0f} evaluations of the network for a sample, of which {declared} were declared"


def budget_of_extension(budget: Budget, *, retrained: bool) -> int:
    """Optimiser steps that a second stage is granted."""
    return budget.train_steps if retrained else max(1, budget.extend_steps)
