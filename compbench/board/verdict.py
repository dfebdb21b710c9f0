"""The verdict on a task's question, in one word: solved, open, unsolved, not learnt, or draws means.

The word is about the competing rows.  A *candidate* is a row that may be best (`ranking.may_be_best`) and does not draw means;
if the task does not rank, every competing row that does not draw means is a candidate.  The first word that applies counts:

    not learnt    no competing row that learns has 0.9 of the ceiling on *seen* combinations: the table ranks learning, not
                  composing, and the task does not count for its family
    draws means   by the score alone, every row that may be best draws means
    solved        some candidate attains 0.9 of the way from the best constant answer to real data, and none of its fits failed
    unsolved      no candidate attains half of that way
    open          otherwise
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Word = Literal["solved", "open", "unsolved", "not learnt", "draws means"]

WAY = "of the way from ignoring the request to real data"
"""A constant answer is the best that a method can give which ignores the request."""
MEANINGS: dict[str, str] = {
    "solved": f"a method that may be best goes 90 % {WAY}, and each seed of it half as far as its best",
    "open": f"the furthest method that may be best goes 50 to 90 % {WAY}",
    "unsolved": f"no method that may be best goes 50 % {WAY}",
    "not learnt": "no method that learns has 90 % of real data's score on seen combinations",
    "draws means": "only methods that draw averages reach the best score",
}
"""The meaning of each verdict, as the page, the terminal and docs/boards.md print it."""

LEARNT = 0.9
"""A task counts as learnt if some row reaches this share of the ceiling on seen combinations."""
SOLVED = 0.9
"""Smallest mean share attained with which a row solves a task."""
HALF = 0.5
"""A task is unsolved if no candidate attains this mean share."""


class Candidate(NamedTuple):
    """The facts of a row that a verdict needs: its mean share attained, and whether one of its fits failed."""

    share: float
    failed: bool


class Verdict(NamedTuple):
    """A task's verdict and the facts that it follows from.

    Attributes:
        word: see the module.
        best: labels of the rows that may be best and do not draw means, the best mean first; empty if the task does not rank.
        by_score: label of the row with the best mean whether or not it draws means; "" without one.
        num_rows: how many rows compete.
        learnt: the largest share of the ceiling on seen combinations that a row that learns reaches; None without such a ceiling.
        zero, real: the scores of the best constant answer and of real data.
        log: whether shares are computed from logarithms, as for distances.
    """

    word: Word
    best: tuple[str, ...]
    by_score: str
    num_rows: int
    learnt: float | None
    zero: float
    real: float
    log: bool

    @property
    def is_learnt(self) -> bool:
        return self.word != "not learnt"

    @property
    def unlearnt(self) -> float | None:
        """`learnt` of a task that no row has learnt; None if one has."""
        return None if self.is_learnt else self.learnt


def word_of(candidates: list[Candidate], learnt: float | None, *, only_means: bool) -> Word:
    """The verdict's word.

    Args:
        candidates: at least one, unless `only_means`.
        learnt: see `Verdict`.
        only_means: whether each row that may be best by the score alone draws means.
    """
    if learnt is not None and learnt < LEARNT:
        return "not learnt"
    if only_means:
        return "draws means"
    if any(row.share >= SOLVED and not row.failed for row in candidates):
        return "solved"
    return "open" if any(row.share >= HALF for row in candidates) else "unsolved"
