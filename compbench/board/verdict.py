"""What is known of a task's question, in one word: solved, open, unsolved, not learnt, or draws means.

The word is about the rows that compete.  A *candidate* is a row that may be best (`ranking.may_be_best`) and does not draw means;
where the task does not rank, every row that competes and does not draw means is one.  The first of these that is true counts:

    not learnt    no row that competes and learns has 0.9 of the ceiling on *seen* combinations: the table ranks learning, not
                  composing, and the task is no part of a family's order
    draws means   by the score alone, every row that may be best draws means: only they reach it
    solved        some candidate attains 0.9 of the way from the best constant answer to real data, and none of its fits failed
    unsolved      no candidate attains half of that way
    open          all else
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
    "not learnt": "no method gets 90 % of the seen combinations right",
    "draws means": "only methods that draw averages reach the best score",
}
"""The meaning of each verdict, as the page, the terminal and docs/boards.md print it."""

LEARNT = 0.9
"""Part of the ceiling on seen combinations that some row must have, so that a task counts as learnt."""
SOLVED = 0.9
"""Least mean share attained of a row that solves a task."""
HALF = 0.5
"""Largest mean share attained by which a task is unsolved."""


class Candidate(NamedTuple):
    """What a verdict needs of a row: its mean share attained, and whether one of its fits failed."""

    share: float
    failed: bool


class Verdict(NamedTuple):
    """A task's verdict and the facts that it follows from.

    Attributes:
        word: see the module.
        best: labels of the rows that may be best, the best mean first; they draw no means.  Empty where the task does not rank.
        by_score: label of the row with the best mean whether or not it draws means; "" without one.
        num_rows: how many rows compete.
        learnt: the largest part of the ceiling on seen combinations of a row that learns; None without such a ceiling.
        zero, real: the scores of the best constant answer and of real data.
        log: whether shares are of logarithms, as of distances.
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
