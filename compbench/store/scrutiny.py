"""Records against what this compbench knows of its own tasks and metrics.

A record that claims a version from the future, or that higher is better where lower is, would push the honest ones aside.
Only what is shipped with compbench itself is asked, so that a board does not depend on whose plugins are installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from compbench.errors import CompbenchError
from compbench.registry import Kind, Registry
from compbench.schemas import Record
from compbench.store.records import Problem


def plausible(records: Iterable[Record], folder: Path) -> tuple[list[Record], list[Problem]]:
    """The records that contradict nothing that is known, and the others with the reason."""
    own = _shipped()
    kept, problems = [], []
    for record in records:
        try:
            _check(record, own)
            kept.append(record)
        except CompbenchError as error:
            problems.append(Problem(folder / f"{record.name}.json", str(error)))
    return kept, problems


def _check(record: Record, own: Any) -> None:
    task = own("tasks", record.spec.task)
    if task is not None and record.spec.task_version > task.version:
        raise CompbenchError(f"has version {record.spec.task_version} of '{task.name}', which is at {task.version} here: update.")
    for score in record.scores:
        metric = own("metrics", score.metric)
        if metric is None:
            continue
        if score.metric_version > metric.version:
            raise CompbenchError(
                f"has version {score.metric_version} of metric '{metric.name}', which is at {metric.version} here: update."
            )
        if score.direction != metric.direction:
            raise CompbenchError(f"says that {score.direction} is better of '{metric.name}', of which {metric.direction} is.")


def _shipped() -> Any:
    registry = Registry()

    @cache
    def own(kind: Kind, name: str) -> Any:
        entry = next((entry for entry in registry.entries(kind) if entry.name == name), None)
        return registry.attempt(entry).value if entry is not None and entry.distribution == "compbench" else None

    return own
