"""Distances in the features of two judges have different units, but they are comparable after division by the run's own floor.

A judge is trained in the store that first needs it.  On another type of processor the same training gives another network, whose
features have other units: on coloured MNIST the Frechet distance between the same two real samples is 142 with one judge and 207
with another.  So the noise floor identifies the judge, and a distance in floors, or a recall as a share of real data's, has the
same meaning with each judge.  Only the kernel distance is left out if a record's judge differs from that of most records: it
cannot be divided by its floor, which is zero on average.  Accuracies keep their meaning; the ceiling is shown next to them.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from compbench.api.schemas import Record

IN_FEATURES = frozenset({"fd_judge", "kid", "precision", "recall"})
"""Metrics that are computed in a judge's features (`compbench.metrics.image`)."""

WITHOUT_UNIT = frozenset({"kid"})
"""Metrics of `IN_FEATURES` whose floor is about zero, so that two judges' values cannot be compared even in floors."""

RELATIVE = 1e-3
"""Floors of one judge agree between machines up to this relative difference; floors of two judges differed by 2 % or more."""

OTHER = "in another judge's features"
"""The reason for an omitted distance begins with these words."""

Floors = Mapping[str, float]
"""A map from a split to the noise floor of its `fd_judge`."""


def can_be_one(a: Record, b: Record) -> bool:
    """Whether two records can have the same judge; floors from different real samples cannot show that the judges differ."""
    return _real_samples(a) != _real_samples(b) or _agree(_floors(a), _floors(b))


class Comparable(NamedTuple):
    """Records with comparable distances, and the names of those whose judge differs from most of their task, data and seed."""

    records: list[Record]
    others: frozenset[str]


def by_one_judge(records: Iterable[Record], left_out: Collection[str] = WITHOUT_UNIT) -> Comparable:
    """The records, without `left_out` metrics where a record's judge differs from that of most of its task, data and seed.

    Leave out only the kernel distance if the other distances are divided by their floors, and otherwise all of `IN_FEATURES`.  If
    several judges have equally many records, the judge with the lowest floors stays.
    """
    known = list(records)
    floors = [_floors(record) for record in known]
    alike: dict[str, list[int]] = defaultdict(list)
    for place, record in enumerate(known):
        if floors[place]:
            alike[_real_samples(record)].append(place)
    others = set()
    for places in alike.values():
        many = {own: sum(_agree(floors[own], floors[one]) for one in places) for own in places}
        most = min(places, key=lambda own: (-many[own], sorted(floors[own].items())))
        for place in places:
            if not _agree(floors[place], floors[most]):
                others.add(known[place].name)
                known[place] = _without(known[place], floors[most], left_out)
    return Comparable(known, frozenset(others))


def _floors(record: Record) -> Floors:
    """The floors of a record, which identify its judge; empty if no distance used a judge."""
    found = ((score.split, score.floor) for score in record.scores if score.metric == "fd_judge")
    return {split: floor for split, floor in found if floor is not None}


def _agree(a: Floors, b: Floors) -> bool:
    return all(math.isclose(a[split], b[split], rel_tol=RELATIVE) for split in a.keys() & b.keys())


def _real_samples(record: Record) -> str:
    """A key that is equal for records whose floors come from the same real samples."""
    spec = record.spec
    counts = sorted({(score.split, score.n) for score in record.scores if score.metric == "fd_judge"})
    return json.dumps([spec.task, spec.task_version, spec.task_settings, spec.fingerprint, spec.seed, counts], sort_keys=True)


def _without(record: Record, others: Floors, metrics: Collection[str]) -> Record:
    own = _floors(record)
    reasons = {
        split: f"{OTHER}: its noise floor is {own[split]:.4g}, that of most runs of this seed {floor:.4g}"
        for split, floor in others.items()
        if split in own
    }
    scores = tuple(
        score.model_copy(update={"value": None, "floor": None, "reason": reasons[score.split]})
        if score.metric in metrics and score.value is not None and score.split in reasons
        else score
        for score in record.scores
    )
    return record.model_copy(update={"scores": scores})
