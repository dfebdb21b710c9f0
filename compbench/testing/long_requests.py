"""Requests that are longer than the batch of a network or of the referee, and requests that differ only in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from compbench.testing.watched import FEWEST_STEPS, FIT_SEED, SAMPLE_SEED, Broken, Subject

if TYPE_CHECKING:
    from compbench.testing.known_answers import KnownAnswer

LONG = 8_192 + 7
"""Number of rows of a long request: a few more than a referee requests at once."""

FIRST = 128
"""Number of first rows of a long request with which the other rows are compared."""

PLACES = (0, 1, 127, 128, 4_095, 8_191, 8_192, LONG - 1)
"""Rows of a long request that are requested again without the others."""

LESS = 0.3
"""Largest drop in the share of right rows from the first rows to later ones; the last seven rows may drop twice as far."""


def middle_changed(condition: Tensor, noise: Tensor) -> tuple[slice, Tensor, Tensor]:
    """Three rows in the middle, and the request with another combination and the opposite noise in these rows."""
    middle = slice(len(condition) // 2 - 1, len(condition) // 2 + 2)
    changed, other = condition.clone(), noise.clone()
    for row in range(middle.start, middle.stop):
        others = (condition != condition[row]).any(1).nonzero()[:, 0]
        changed[row] = condition[others[0]] if len(others) else condition[row]
    other[middle] *= -1
    return middle, changed, other


def middle_obeys(subject: Subject, whole: Tensor, condition: Tensor, noise: Tensor) -> float:
    """Request other conditions and noise in the middle, with another seed; return the largest change in any other row.

    Raises Broken: the middle rows did not change.
    """
    middle, changed, other = middle_changed(condition, noise)
    made = subject.sample(changed, other, seed=SAMPLE_SEED + 1, precision="fp32")
    if not (subject.method.regresses and subject.method.ignores_condition) and not subject.differ(made[middle], whole[middle]):
        raise Broken(
            f"other conditions and noise in rows {middle.start} to {middle.stop - 1} of {len(condition)} left them as they were",
            "do not keep answers from one request to the next",
        )
    rest = torch.ones(len(condition), dtype=torch.bool, device=condition.device)
    rest[middle] = False
    return float((made[rest] - whole[rest]).abs().max())


def obeys_long(learner: Subject, known: KnownAnswer, *, draws: bool, rounding: float) -> None:
    """Check that all rows of a long request are right as often as its first rows, and that rows requested alone do not change.

    Args:
        learner: a method on a known problem of vectors, where rows cost little.
        known: where its samples must lie.
        draws: whether the sampler draws its own random numbers.
        rounding: largest change of a row if other rows change, relative to its largest entry.
    """
    generator = torch.Generator().manual_seed(FIT_SEED)
    cells = known.cells
    condition = cells[torch.randint(len(cells), (LONG,), generator=generator)].to(learner.device)
    noise, places = learner.noise(LONG), torch.tensor(PLACES, device=learner.device)
    with learner.shortened(FEWEST_STEPS):
        made = learner.sample(condition, noise, precision="fp32")
        alone = None if draws else learner.sample(condition[places], noise[places], precision="fp32")
    share = [known.own_share(condition[rows], made[rows]) for rows in (slice(FIRST), slice(FIRST, -7), slice(-7, None))]
    for place, later, less in ((f"rows after {FIRST}", share[1], LESS), ("the last 7 rows", share[2], 2 * LESS)):
        if later < share[0] - less:
            raise Broken(
                f"of a request of {LONG} rows, {later:.0%} of {place} lie where they should, and {share[0]:.0%} of those before"
            )
    if alone is not None:
        gap = float((alone - made[places]).abs().max())
        if not gap <= rounding * float(made.abs().max()):
            raise Broken(f"rows of a request of {LONG} change when requested alone, by up to {gap:.3g}")
