"""Estimate how long missing runs will take from the runs that exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from compbench.api.schemas import Record, RunRequest


def expected_seconds(requests: Sequence[RunRequest], records: Iterable[Record]) -> list[float | None]:
    """Seconds of each run, by the finished runs of its preset.

    The median of its method's runs on its task; else, by the tasks u that it ran on and the methods n that ran on both,

        seconds(method, task) = median over u of ( seconds(method, u) * median over n of seconds(n, task) / seconds(n, u) )

    A method without such tasks is taken to be the median of the task's methods; None where the task has no runs.
    Settings are not looked at, nor is the machine, so it is a guide to what a sweep costs and no more.
    """
    took: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.status == "ok" and not record.resumed and record.seconds:
            took[record.spec.preset, record.spec.task][record.spec.method].append(record.seconds)
    known = {place: {method: median(seconds) for method, seconds in of.items()} for place, of in took.items()}
    return [_expected((request.preset, request.task), request.method, known) for request in requests]


def _expected(place: tuple[str, str], method: str, known: Mapping[tuple[str, str], Mapping[str, float]]) -> float | None:
    """Seconds of a method at a preset on a task, from the medians of each preset and task by method."""
    here = known.get(place, {})
    if method in here:
        return here[method]
    from_elsewhere = [
        there[method] * median(here[other] / there[other] for other in common)
        for (preset, _), there in known.items()
        if preset == place[0] and method in there and (common := here.keys() & there.keys())
    ]
    return median(from_elsewhere or here.values()) if here else None


def hours_of(seconds: Sequence[float | None]) -> str:
    """Hours of runs one after another, to a tenth; "" where those of one are unknown."""
    known = [took for took in seconds if took is not None]
    return f"{sum(known) / 3600:.1f}" if len(known) == len(seconds) else ""
