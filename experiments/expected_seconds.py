"""CPU seconds of each stage of a run, for the plan that is printed before the first run on a machine.

python experiments/expected_seconds.py RECORDS ...     writes compbench/cli/expected_seconds.json, for tasks among the records

Each number is a median over finished CPU runs of all methods that train.  Judges and references are made once and then read from
the cache, so their number is the median over the runs that made them.  Tasks and presets without a given record are not changed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from compbench.api.schemas import Record
from compbench.cli.plan import EXPECTED, STAGES
from compbench.store.records import read_records

MADE = 1.0
"""A run whose judges and references took fewer CPU seconds read them from the cache."""
TRAINED = 1.0
"""A fit that took fewer CPU seconds was shared by another run, or its method learns nothing."""


def stages_of(records: list[Record]) -> dict[str, float]:
    """CPU seconds by the plan's names of the stages; for a fit, judges and references, only of the runs that made them."""
    found = {}
    for name, stages in STAGES.items():
        took = [sum(stage.cpu_seconds for stage in record.profile.stages if stage.name in stages) for record in records]
        least = {"fit": TRAINED, "judges and references": MADE}.get(name, 0.0)
        found[name] = round(median([seconds for seconds in took if seconds >= least] or [0.0]), 1)
    return found


def main(folders: list[str]) -> None:
    known = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    by: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for folder in folders:
        for record in read_records(sorted(Path(folder).glob("*.json")))[0]:
            plain = not record.spec.budget_changed and not record.resumed
            if record.status == "ok" and record.spec.device_class == "cpu" and plain:
                by[record.spec.task, record.spec.preset].append(record)
    for (task, preset), records in sorted(by.items()):
        seconds = stages_of(records)
        if seconds["fit"]:  # some method was trained
            known.setdefault(task, {})[preset] = {"runs": len(records), "seconds": seconds}
    EXPECTED.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:]) if sys.argv[1:] else sys.exit(__doc__)
