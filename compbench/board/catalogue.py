"""Facts about tasks that are not in their records (defaults, question, factor grid), read from the installed tasks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.api.shots import SETTING
from compbench.registry.registry import Registry
from compbench.system.errors import CompbenchError
from compbench.system.files import Json


class TaskFacts(NamedTuple):
    """A task with its default settings.

    Attributes:
        summary: one sentence that says what the task asks.
        settings: default of each of its settings, as JSON values.
        factors: names and sizes of the factors that the holdout is defined on.
        cells: held-out cells of those factors.
        silos: number of silos; 1 is centralised.
        citation: the paper that it comes from.
        files: names of its official data's files.
        values: names of the values of those factors; () for a factor whose values are only numbered.
        kind: the family and the shape of one sample; tasks of one kind share measurements of cost.
        version: the version of the task's scores.
    """

    summary: str
    settings: Mapping[str, Json]
    factors: tuple[tuple[str, int], ...] = ()
    cells: tuple[tuple[int, ...], ...] = ()
    silos: int = 1
    citation: str = ""
    files: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    kind: str = ""
    version: int = 0


Catalogue = Mapping[str, TaskFacts]
"""A map from the name of each installed task to its facts."""


def catalogue(names: Iterable[str], registry: Registry | None = None) -> dict[str, TaskFacts]:
    """Facts of the named tasks, as far as they are installed and load."""
    registry = registry or Registry()
    known = {entry.name: entry for entry in registry.entries("tasks")}
    found = {}
    for name in sorted(set(names) & known.keys()):
        loaded = registry.attempt(known[name])
        if loaded.state == "ok":
            task = loaded.value
            pattern = task.holdout.pattern_space.factors if task.holdout.factors else ()
            found[name] = TaskFacts(
                summary=task.summary,
                settings=task.settings.model_dump(mode="json"),
                factors=tuple((factor.name, factor.size) for factor in pattern),
                cells=tuple(task.holdout.cells),
                silos=task.silos,
                citation=task.citation,
                files=tuple(task.files),
                values=tuple(tuple(factor.values) for factor in pattern),
                kind=f"{task.family} {task.event.kind} {task.event.shape}" if task.family else "",
                version=task.version,
            )
    return found


class Lattice(NamedTuple):
    """The factors that a holdout is defined on: their sizes, and how many of their cells are seen."""

    sizes: tuple[int, ...]
    num_seen: int

    @property
    def num_cells(self) -> int:
        return math.prod(self.sizes)


def lattice_key(task: str, settings: Mapping[str, Json]) -> tuple[str, str]:
    """The key under which `lattices` keeps a task with some settings."""
    return task, json.dumps(settings, sort_keys=True)


def lattices(records: Iterable[Record], registry: Registry | None = None) -> dict[tuple[str, str], Lattice]:
    """The factor grid of each task that was run at a coverage, if the task is installed and accepts the record's settings."""
    registry = registry or Registry()
    known = {entry.name: entry for entry in registry.entries("tasks")}
    found: dict[tuple[str, str], Lattice] = {}
    for record in records:
        settings = dict(record.spec.task_settings)
        key = lattice_key(record.spec.task, settings)
        if key in found or not settings.get("coverage") or record.spec.task not in known:
            continue
        loaded = registry.attempt(known[record.spec.task])
        if loaded.state != "ok" or loaded.value.configure is None:
            continue
        try:
            own = {name: value for name, value in settings.items() if name != SETTING}  # shots do not change the holdout
            holdout = loaded.value.configure(type(loaded.value.settings).model_validate(own)).holdout
        except (ValueError, CompbenchError):
            continue  # settings of another version of the task
        found[key] = Lattice(holdout.pattern_space.sizes, len(holdout.seen_cells))
    return found
