"""Total error = inference-time error + estimation error, for methods that also run on a task's analytic scores.

The method NAME on learned scores has the total error.  NAME-oracle with the same settings has the error that remains with exact
scores (inference-time approximation).  The difference is the error from estimating the scores.  Catastrophic
Compositional Generation, section 2, argues for this sum and measures none of its terms.

The error of a distance is the distance.  The error of a score of which more is better is what it lacks to real data's score.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.board.groups import Group, Section
from compbench.board.statistics import mean, sample_std

ORACLE = "-oracle"
TRAINING_ONLY = frozenset({"task.train_points"})
"""Task settings that exact scores do not depend on."""


class Parts(NamedTuple):
    """Mean of each term over the seeds that both rows have; `spread` is the sample deviation of the paired difference."""

    num_seeds: int
    total: float
    inference: float
    estimation: float
    spread: float


Attempts = Mapping[Section, Mapping[Group, Sequence[Record]]]


def decomposed(attempts: Attempts, primaries: Mapping[Section, str]) -> dict[tuple[Section, Group], Parts]:
    """The parts of the primary score of every row whose method also ran on exact scores, with any number of training points.

    Args:
        attempts: records of each row of each section.
        primaries: each section's primary score.
    """
    exact: dict[tuple[object, ...], list[tuple[Group, list[Record]]]] = defaultdict(list)
    for section, groups in attempts.items():
        for group, records in groups.items():
            if group.method.endswith(ORACLE):
                exact[section[:5], group.method].append((group, _successful(records)))
    found = {}
    for section, groups in attempts.items():
        for group, records in groups.items():
            for oracle, own in exact.get((section[:5], group.method + ORACLE), ()):
                if parts := decompose(group.knobs, oracle.knobs, _successful(records), own, primaries[section]):
                    found[section, group] = parts
    return found


def _successful(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.status == "ok"]


def decompose(knobs: str, oracle_knobs: str, learned: Sequence[Record], exact: Sequence[Record], primary: str) -> Parts | None:
    """The parts of one row's primary score; None if the oracle's row has other settings or no seed in common.

    Args:
        knobs, oracle_knobs: JSON of all settings, budget and task settings of each row.
        learned, exact: the successful records of each row.
        primary: name of the score.
    """
    if not _same(json.loads(knobs), json.loads(oracle_knobs)):
        return None
    one, other = _by_seed(learned, primary), _by_seed(exact, primary)
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return None
    differences = [one[seed] - other[seed] for seed in seeds]
    return Parts(
        num_seeds=len(seeds),
        total=mean([one[seed] for seed in seeds]),
        inference=mean([other[seed] for seed in seeds]),
        estimation=mean(differences),
        spread=sample_std(differences),
    )


def _same(knobs: Mapping[str, object], oracle: Mapping[str, object]) -> bool:
    """Whether all settings that both have are equal, except those that only affect training."""
    return all(knobs[name] == value for name, value in oracle.items() if name in knobs and name not in TRAINING_ONLY)


def _by_seed(records: Sequence[Record], primary: str) -> dict[int, float]:
    """The error of each seed; a score of which more is better has one only if real data's score is known."""
    found = {}
    for record in records:
        score = record.score(primary)
        if score is not None and score.value is not None:
            if score.direction == "lower":
                found[record.spec.seed] = score.value
            elif score.ceiling is not None:
                found[record.spec.seed] = score.ceiling - score.value
    return found
