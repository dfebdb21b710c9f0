"""Scores on `shapes3d-medium` by which shapes share their seen hues, under the public and the sealed checkerboards.

    python experiments/sealed_pairs.py            from leaderboards/records, preset `quick`

In a checkerboard two shapes are seen in the even hues and two in the odd ones, so the shapes form two pairs.  A sealed pattern
draws one of the three pairings, and one of two turns of the hues (`compbench.tasks.coverage`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import fmean

from claims import rows
from results_tables import ACCURACY, RECORDS

from compbench.api.factors import Holdout
from compbench.registry.registry import Registry
from compbench.store.records import read_published
from compbench.tasks.image_holdout import SHAPES

TASK = "shapes3d-medium"


def pairing(holdout: Holdout) -> str:
    """The two pairs of shapes that share their seen hues, as in "cube + sphere, cylinder + capsule"."""
    groups: dict[frozenset[int], list[str]] = {}
    for shape, name in enumerate(SHAPES):
        groups.setdefault(frozenset(hue for own, hue in holdout.seen_cells if own == shape), []).append(name)
    return ", ".join(" + ".join(names) for names in groups.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", default="quick")
    preset = parser.parse_args().preset
    task = Registry().load("tasks", TASK)
    assert task.configure is not None
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    names = [path.name for path in RECORDS.glob(f"{TASK}.*.{preset}.s*.json")]
    for record in read_published(RECORDS, names)[0]:
        value = ACCURACY(record)
        if value is None or record.shots:
            continue
        settings = task.settings.model_validate(record.spec.task_settings)
        where = "sealed" if record.sealed else "public"
        found[record.spec.method][f"{where}: {pairing(task.configure(settings).holdout)}"].append(value)
    columns = sorted({column for row in found.values() for column in row})
    lines = [
        [f"`{method}`", *(f"{fmean(row[column]):.3f} ({len(row[column])})" if column in row else "-" for column in columns)]
        for method, row in sorted(found.items())
    ]
    print(rows([["method", *columns], *lines]))


if __name__ == "__main__":
    main()
