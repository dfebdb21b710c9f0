"""The plan that is printed before a run: its stages, their seconds in earlier runs, and what is kept for later runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from compbench.board.notation import duration
from compbench.registry.meaning import differing
from compbench.registry.registry import Registry
from compbench.registry.resolve import metrics_of, task_of
from compbench.runner.rescore import MAY_DIFFER
from compbench.store.records import read_records

if TYPE_CHECKING:
    from compbench.api.schemas import Record, RunRequest

MOST_READ = 5
"""At most this many records are read: the newest of the same method, or of other methods on the task."""
STAGES = {
    "start": ("imports", "setup", "data"),
    "judges and references": ("prepare",),
    "fit": ("fit", "extend"),
    "samples": ("warm_up", "sample"),
    "scores": ("score",),
}
"""What the plan calls the stages of a record's profile."""
SENTENCE = "The run starts, prepares judges and references, fits the method, draws samples and scores them"
"""The stages as a sentence, for a plan without durations."""
EXPECTED = Path(__file__).with_name("expected_seconds.json")
"""CPU seconds of stages by task and preset, from published runs: `experiments/expected_seconds.py` writes them."""
MEANT = {"smoke": "seconds", "quick": "minutes on two cores", "standard": "half an hour on two cores", "paper": "hours on a GPU"}


class Plan(NamedTuple):
    """What a run will do, in words, and how long it will take; None if the duration is not known."""

    words: str
    seconds: float | None


def plan_of(request: RunRequest, paths: Sequence[Path]) -> Plan:
    """The plan of a run, from the records among some files.

    The expected seconds of a stage are their median over the newest runs of the method on the task at the preset, or else over
    runs of other methods there.  If no such run exists here, they are the CPU seconds of published runs of the task.  The plan
    ignores machine, settings and caches, so it is only a rough guide.
    """
    found, same = _like(request, paths)
    kept = "judges, references and rendered data are kept for later runs of this task"
    if found:
        took = {name: median(_seconds(record, of) for record in found) for name, of in STAGES.items()}
        total = median(record.seconds for record in found)
        by = f"{len(found)} run{'' if len(found) == 1 else 's'} of {'this method' if same else 'other methods'} here"
        return Plan(f"{_in_words(took)}; about {duration(total)} in all, by {by}", total)
    if took := _published(request.task, request.preset):
        total = sum(took.values())
        by = f"by published runs on one thread, because none ran here; {kept}"
        return Plan(f"{_in_words({name: took[name] for name in STAGES})}; about {duration(total)} in all, {by}", total)
    known = f"its duration is not known before a first run; `{request.preset}` is meant to take {MEANT[request.preset]}"
    return Plan(f"{SENTENCE}; {known}; {kept}", None)


def published_seconds(request: RunRequest) -> float | None:
    """CPU seconds of a run by published runs of its task at its preset; None if there are none, or if its budget was changed."""
    if any(name.startswith("budget.") for name in request.overrides):
        return None
    return sum(_published(request.task, request.preset).values()) or None


def _published(task: str, preset: str) -> dict[str, float]:
    """CPU seconds of each stage; {} if there are no published runs."""
    known: dict[str, float] = json.loads(EXPECTED.read_text()).get(task, {}).get(preset, {}).get("seconds", {})
    return known


def _in_words(took: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in took.items())


def rescorable(request: RunRequest, paths: Sequence[Path]) -> str:
    """Name of a finished record, among some files, of the same run with older metrics; "" if there is none.

    Such a run needs no training.
    """
    start = f"{request.task}.{request.method}.{request.preset}.s{request.seed}."
    records = read_records(path for path in paths if path.name.startswith(start))[0]
    same = [record for record in records if record.status == "ok" and _asks_the_same(request, record)]
    if not same:
        return ""
    registry = Registry(tuple(map(Path, request.plugins)))
    today = {name: metric.version for name, metric in metrics_of(task_of(request, registry), registry, request.metrics).items()}
    if any(record.spec.metrics == today for record in same):
        return ""
    return next((record.name for record in same if MAY_DIFFER.issuperset(differing(record, registry))), "")


def _asks_the_same(request: RunRequest, record: Record) -> bool:
    """Whether a record has a request's settings, as far as it says which ones were given."""
    spec = record.spec
    known = spec.overrides()
    overrides = {name: json.loads(json.dumps(value)) for name, value in request.overrides.items()}
    fixed = all(getattr(request, name) in ("auto", getattr(spec, name)) for name in ("precision", "source"))
    return fixed and record.given == tuple(sorted(overrides)) and all(known.get(name) == overrides[name] for name in overrides)


def _like(request: RunRequest, paths: Sequence[Path]) -> tuple[list[Record], bool]:
    """The newest finished records of the same method, else of other methods; and whether they are of the same method."""
    named = [path for path in paths if path.name.split(".")[0] == request.task]
    named = [path for path in named if f".{request.preset}.s" in path.name]
    own = [path for path in named if path.name.startswith(f"{request.task}.{request.method}.")]
    for like in (own, named):
        newest = sorted(like, key=lambda path: path.stat().st_mtime, reverse=True)[:MOST_READ]
        records = [record for record in read_records(newest)[0] if record.status == "ok" and not record.resumed]
        changed = Counter(record.spec.budget.train_steps for record in records).most_common(1)
        records = [record for record in records if record.spec.budget.train_steps == changed[0][0]]
        if records:
            return records, like is own
    return [], False


def _seconds(record: Record, stages: tuple[str, ...]) -> float:
    return sum(record.profile.seconds(name) for name in stages)
