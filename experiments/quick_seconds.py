"""CPU seconds of a `quick` run of each task, with judges trained and nothing cached, from records of runs on one thread.

    compbench run --method factored --task dsprites-light --threads 1 --set budget.train_steps=100
    python experiments/quick_seconds.py --records ~/.local/share/compbench/records dsprites-light concept-space

A fit with fewer steps than the preset's is scaled up and marked; judges count in full, as the longest preparation among a task's
records.  Two cores did 1.7 times the work of one in every measurement here, so a task may take 1.7 x 180 = 306 s.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from compbench.api.context import Presets
from compbench.api.schemas import Record
from compbench.registry.registry import Registry
from compbench.store.records import Store
from compbench.system.errors import CompbenchError

ROOT = Path(__file__).parent.parent
TWO_CORES = 1.7
MOST = 180.0
PRESET: Presets = "quick"


class Row(NamedTuple):
    """CPU seconds of a method on a task: judges and references, the fit, and sampling with scoring.

    `scaled` is the number of measured steps if the fit was scaled up, else 0.
    """

    task: str
    method: str
    judges: float
    fit: float
    scores: float
    scaled: int

    @property
    def on_two_cores(self) -> float:
        return (self.judges + self.fit + self.scores) / TWO_CORES


def seconds(record: Record, *stages: str) -> float:
    """CPU seconds of some stages of a record."""
    assert record.profile is not None
    return sum(stage.cpu_seconds for stage in record.profile.stages if stage.name in stages)


def rows(records: list[Record], steps: dict[str, int]) -> list[Row]:
    """A row for each method and task, from the record with the most training steps.

    Args:
        records: finished records of the preset.
        steps: the preset's training steps, by task.
    """
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.status == "ok" and record.spec.preset == PRESET and record.spec.task in steps and not record.curve:
            found[record.spec.task, record.spec.method].append(record)
    judges = {
        task: max(seconds(one, "prepare") for own in found.values() for one in own if one.spec.task == task) for task, _ in found
    }
    made = []
    for (task, method), own in sorted(found.items()):
        record = max(own, key=lambda one: one.spec.budget.train_steps)
        did = record.spec.budget.train_steps
        fit = seconds(record, "fit") * steps[task] / did
        scores = seconds(record, "imports", "data", "sample", "score")
        made.append(Row(task, method, judges[task], fit, scores, 0 if did >= steps[task] else did))
    return made


def table(found: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| task, method | judges | fit | samples, scores | on two cores |", "| --- | --- | --- | --- | --- |"]
    for row in found:
        fit = f"{row.fit:.0f}" + (f" (from {row.scaled} steps)" if row.scaled else "")
        over = " **over**" if row.on_two_cores > MOST else ""
        lines.append(
            f"| {row.task}, `{row.method}` | {row.judges:.0f} | {fit} | {row.scores:.0f} | {row.on_two_cores:.0f}{over} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", metavar="TASK")
    parser.add_argument("--records", type=Path, default=ROOT / "leaderboards" / "records")
    asked = parser.parse_args()
    registry = Registry()
    steps = {name: registry.load("tasks", name).budgets[PRESET].train_steps for name in asked.tasks}
    found = rows(Store(asked.records.expanduser()).read()[0], steps)
    if not found:
        raise CompbenchError(f"no finished record of {', '.join(asked.tasks)} at {PRESET} in {asked.records}.")
    print(table(found))


if __name__ == "__main__":
    main()
