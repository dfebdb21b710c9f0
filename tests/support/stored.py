"""Small stores for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.sample_records import png, record, score

from compbench.store.records import Store


def store(folder: Path, *accuracies: float, **facts: Any) -> Path:
    """A store with one attempt at the same run for each accuracy, each with its own picture; low ones began first."""
    folder.mkdir(exist_ok=True)
    for attempt, value in enumerate(accuracies, 1):
        more = {"started": f"2026-01-01T00:00:{round(100 * value) % 60:02d}+00:00"}
        own = record(score(value=value), attempt=attempt, more=more, **facts)
        Store(folder).write(own, {"samples.png": png(colour=(round(255 * value), 0, 0))})
    return folder
