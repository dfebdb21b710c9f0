"""Estimate how long missing runs will take from the runs that exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from compbench.api.schemas import RunRequest
from compbench.store.listing import Listing, glimpse

MOST_RUNS = 9
"""At most this many runs of a task, method and preset are read, which is enough for their median."""


class Took(NamedTuple):
    """The duration of one finished run, in seconds."""

    task: str
    method: str
    preset: str
    seconds: float


def seconds_taken(listing: Listing, presets: Iterable[str], *, on_gpu: bool) -> Iterator[Took]:
    """Durations of runs at some presets, on CPUs or on GPUs: up to `MOST_RUNS` runs of each task and method; no resumed runs."""
    wanted = frozenset(presets)
    paths: dict[tuple[str, str, str], list[Path]] = defaultdict(list)
    for run, own in listing.runs():
        if run[2] in wanted:
            paths[run] += own
    for run, own in paths.items():
        yield from islice((Took(*run, seconds) for path in own if (seconds := _seconds(path, on_gpu))), MOST_RUNS)


def _seconds(path: Path, on_gpu: bool) -> float:
    """Seconds of a run; 0 if it failed, was resumed, or ran on the other kind of device."""
    seen = glimpse(path)
    counts = seen is not None and seen.status == "ok" and not seen.resumed and (seen.device_class != "cpu") == on_gpu
    return seen.seconds if seen is not None and counts else 0.0


def longest_first(requests: Sequence[RunRequest], known: Iterable[Took]) -> list[int]:
    """The positions of the requests, longest run first, so that no long run starts last; runs of unknown length come first."""
    seconds = expected_seconds(requests, known)
    return sorted(range(len(requests)), key=lambda place: -(float("inf") if (took := seconds[place]) is None else took))


def expected_seconds(requests: Sequence[RunRequest], known: Iterable[Took]) -> list[float | None]:
    """Estimated seconds of each run, from the finished runs at its preset.

    The estimate is the median over its method's runs on its task.  If there are none, it is computed from tasks u that the method
    ran on and methods n that ran on both u and the task:

        seconds(method, task) = median over u of ( seconds(method, u) * median over n of seconds(n, task) / seconds(n, u) )

    A method without such tasks gets the median over the task's methods; the result is None if the task has no runs.  The estimate
    ignores settings and machine, so it is only a rough guide.
    """
    took: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task, method, preset, seconds in known:
        took[preset, task][method].append(seconds)
    medians = {place: {method: median(seconds) for method, seconds in of.items()} for place, of in took.items()}
    return [_expected((request.preset, request.task), request.method, medians) for request in requests]


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
    """Total hours of some runs, to a tenth; "" if the seconds of one are unknown."""
    known = [took for took in seconds if took is not None]
    return f"{sum(known) / 3600:.1f}" if len(known) == len(seconds) else ""
