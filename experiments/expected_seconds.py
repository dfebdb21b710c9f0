"""What runs take where nothing like them ran before: CPU seconds of each stage, for the plan of a first run.

python experiments/expected_seconds.py RECORDS ...     writes compbench/cli/expected_seconds.json, for tasks among the records

Each number is a median over finished runs on a CPU, of all methods that train there.  Judges and references are made once and
then found, so theirs is the median over the runs that made them.  A task and preset that no given record is of keeps what it had.
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
"""A run whose judges and references took less than so many CPU seconds found them."""
TRAINED = 1.0
"""A fit of less than so many CPU seconds is one that another run shared, or of a method that learns nothing."""


def stages_of(records: list[Record]) -> dict[str, float]:
    """CPU seconds by what the plan calls the stages; of a fit, judges and references those of the runs that made them."""
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
        if seconds["fit"]:  # some method was trained there
            known.setdefault(task, {})[preset] = {"runs": len(records), "seconds": seconds}
    EXPECTED.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:]) if sys.argv[1:] else sys.exit(__doc__)
