"""Records -> board rows.  A row is one method under one protocol; what must not be compared is never in one section.

A section is (task, task version, preset, data source): scores are compared within it.  Speeds are compared within a device
class only.  Failed runs stay visible, with their reason.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compbench.schemas import Record

BOOTSTRAP = 1000
SPEEDS = ("train_steps_per_second", "sample_samples_per_second")


class Section(NamedTuple):
    """What scores may be compared within."""

    task: str
    task_version: int
    preset: str
    source: str
    fingerprint: str


class Cell(NamedTuple):
    """One score of a row: mean over seeds, sample standard deviation, 95 % bootstrap interval of the mean, and n seeds."""

    mean: float
    std: float
    low: float
    high: float
    num_seeds: int
    ceiling: float | None
    floor: float | None
    direction: str
    metric_version: int


class Row(NamedTuple):
    """A method under one protocol on one device class.

    Attributes:
        label: the method's name, with what its settings or budget change.
        kind: "run", "reference" (oracle, or pooled silos) or "paper".
        scores: by score name.
        unavailable: reason by score name.
        speeds: medians over records; `shared` says that the machine was shared while some were measured.
        failures: one "status: reason" a failed run, without repeats.
        rank: (best, worst) rank by the primary score among runs of the section, ties by overlapping intervals.
    """

    section: Section
    label: str
    method: str
    kind: str
    device: str
    seeds: tuple[int, ...]
    scores: dict[str, Cell]
    unavailable: dict[str, str]
    primary: str
    speeds: dict[str, float]
    shared: bool
    parameters: int | None
    evaluations: int | None
    seconds: float | None
    failures: tuple[str, ...]
    rank: tuple[int, int] | None
    records: tuple[str, ...]


def rows(records: Iterable[Record]) -> list[Row]:
    """All rows, sorted by section, then by the primary score's rank, then by label.

    Args:
        records: in any order; of several attempts at one run the latest successful one counts, else the latest.

    Returns:
        rows with ranks; the same for any order of the records.
    """
    groups: dict[tuple[Section, str, str], list[Record]] = defaultdict(list)
    for record in _latest(records):
        spec = record.spec
        section = Section(spec.task, spec.task_version, spec.preset, spec.source, spec.fingerprint)
        groups[section, spec.device_class, _label(record)].append(record)
    made = [_row(section, device, label, group) for (section, device, label), group in groups.items()]
    ranked = [row for section in {row.section for row in made} for row in _ranked([r for r in made if r.section == section])]
    return sorted(ranked, key=lambda row: (row.section, row.rank or (10**6, 10**6), row.label, row.device))


def _latest(records: Iterable[Record]) -> list[Record]:
    best: dict[str, Record] = {}
    for record in records:
        known = best.get(record.identity)
        key = (record.status == "ok", record.attempt, record.name)
        if known is None or key > (known.status == "ok", known.attempt, known.name):
            best[record.identity] = record
    return sorted(best.values(), key=lambda record: record.name)


def _label(record: Record) -> str:
    """The method's name and version, and what makes this variant differ from its defaults, shortly."""
    spec = record.spec
    extra = [f"v{spec.method_version}"] if spec.method_version > 1 else []
    extra += [f"budget.{name}={getattr(spec.budget, name)}" for name in sorted(spec.budget_changed)]
    defaults = {"judge": "plain", "axis_bins": 10}
    extra += [f"task.{k}={json.dumps(v)}" for k, v in sorted(spec.task_settings.items()) if defaults.get(k, v) != v]
    settings = json.dumps(spec.settings, sort_keys=True, separators=(",", ":"))
    return f"{spec.method}" + (f" ({', '.join(extra)})" if extra else "") + f"\x00{settings}\x00{spec.precision}"


def _row(section: Section, device: str, label: str, group: Sequence[Record]) -> Row:
    ok = [record for record in group if record.status == "ok"]
    clean = [record for record in ok if record.environment.slots == 1]
    timed = clean or ok
    names = sorted({score.name for record in ok for score in record.scores})
    cells, unavailable = {}, {}
    for name in names:
        found = [score for record in ok if (score := record.score(name)) is not None]
        newest = max(score.metric_version for score in found)
        valued = [score for score in found if score.value is not None and score.metric_version == newest]
        if valued:
            values = [score.value for score in valued if score.value is not None]
            low, high = interval(values)
            cells[name] = Cell(
                mean=statistics.fmean(values),
                std=statistics.stdev(values) if len(values) > 1 else 0.0,
                low=low,
                high=high,
                num_seeds=len(values),
                ceiling=_mean(score.ceiling for score in valued),
                floor=_mean(score.floor for score in valued),
                direction=valued[0].direction,
                metric_version=newest,
            )
        else:
            unavailable[name] = found[0].reason
    primary = next((score.name for record in ok for score in record.scores if score.primary), "")
    return Row(
        section=section,
        label=label,
        method=group[0].spec.method,
        kind="reference" if any(record.oracle or record.pooled_silos for record in group) else "run",
        device=device,
        seeds=tuple(sorted(record.spec.seed for record in ok)),
        scores=cells,
        unavailable=unavailable,
        primary=primary,
        speeds={
            name: statistics.median(values)
            for name in SPEEDS
            if (values := [v for record in timed if (v := getattr(record.profile, name)) is not None])
        },
        shared=not clean,
        parameters=next((record.profile.parameters for record in ok), None),
        evaluations=next((record.profile.evaluations_per_sample for record in ok), None),
        seconds=statistics.median([record.seconds for record in ok]) if ok else None,
        failures=tuple(sorted({f"seed {r.spec.seed} {r.status}: {r.reason}" for r in group if r.status != "ok"})),
        rank=None,
        records=tuple(sorted(record.name for record in group)),
    )


def _ranked(section: list[Row]) -> list[Row]:
    """Rank ranges by the primary score: a row ties with those whose intervals overlap its own."""
    running = [row for row in section if row.kind == "run" and row.primary in row.scores]
    done = []
    for row in section:
        if row not in running:
            done.append(row)
            continue
        own = row.scores[row.primary]
        better = [_better(other.scores[other.primary], own) for other in running if other is not row]
        worse = [_better(own, other.scores[other.primary]) for other in running if other is not row]
        done.append(row._replace(rank=(1 + sum(better), len(running) - sum(worse))))
    return done


def _better(a: Cell, b: Cell) -> bool:
    """Whether a is surely better than b: its whole interval is."""
    return a.low > b.high if a.direction == "higher" else a.high < b.low


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean, seeded; one value is its own interval."""
    if len(values) < 2:
        return values[0], values[0]
    generator = random.Random(0)
    ordered = sorted(values)  # the same interval for any order of the records
    means = sorted(statistics.fmean(generator.choices(ordered, k=len(ordered))) for _ in range(BOOTSTRAP))
    return means[int(0.025 * BOOTSTRAP)], means[int(0.975 * BOOTSTRAP) - 1]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(known) if known else None


def shown_label(row: Row, others: Sequence[Row]) -> str:
    """The label without what all rows of that name share: settings are shown only where variants differ."""
    name, *rest = row.label.split("\x00")
    same = [other for other in others if other.section == row.section and other.label.split("\x00")[0] == name]
    if len({other.label for other in same}) < 2 or not rest:
        return name
    return f"{name} {rest[0]} {rest[1]}"
