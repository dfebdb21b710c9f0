"""How long runs will take that are not there yet, by those that are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from compbench.schemas import Record, RunRequest


def expected_seconds(requests: Sequence[RunRequest], records: Iterable[Record]) -> list[float | None]:
    """Seconds of each run: the median of finished runs of its method on its task, at its preset.

    A method that is new there is taken to be the median of the task's other runs; None where the task has none.  Settings are
    not looked at, nor is the machine, so it is a guide to what a sweep costs and no more.
    """
    took: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for record in records:
        if record.status == "ok" and not record.resumed and record.seconds:
            spec = record.spec
            took[spec.preset, spec.task, spec.method].append(record.seconds)
            took[spec.preset, spec.task].append(record.seconds)
    known = {key: median(seconds) for key, seconds in took.items()}
    places = [(request.preset, request.task, request.method) for request in requests]
    return [known.get(place, known.get(place[:2])) for place in places]


def hours_of(seconds: Sequence[float | None]) -> str:
    """Hours of runs one after another, to a tenth; "" where those of one are unknown."""
    known = [took for took in seconds if took is not None]
    return f"{sum(known) / 3600:.1f}" if len(known) == len(seconds) else ""
