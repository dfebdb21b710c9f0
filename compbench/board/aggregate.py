"""Records -> board rows.  What must not be compared is never in one section, row or column.

A section is (task, task version, preset, data source, fingerprint): scores are compared within it, and only between
equal metric versions.  A row is one method with one set of settings on one device class; its speeds come from one
machine type.  Failed runs stay visible, with their reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from compbench.board.decomposition import ORACLE, Parts, decompose
from compbench.board.groups import Group, group_of, variants
from compbench.board.ranks import Rank, ranks
from compbench.board.statistics import Interval, interval, mean, sample_std
from compbench.board.timing import Timing, known_mean, timing
from compbench.interfaces import PRESETS, Score
from compbench.schemas import Record
from compbench.store.verification import Standing

Kind = Literal["run", "reference"]


class Section(NamedTuple):
    """What scores may be compared within."""

    task: str
    task_version: int
    preset: str
    source: str
    fingerprint: str


class Cell(NamedTuple):
    """One score of a row: mean over seeds, sample standard deviation, means of ceiling and floor.

    Of the primary score only: `interval`, the 95 % bootstrap interval of the mean, and `values`, by seed.
    """

    name: str
    split: str
    metric_version: int
    unit: str
    direction: str
    mean: float
    std: float
    num_seeds: int
    ceiling: float | None
    floor: float | None
    interval: Interval | None = None
    values: tuple[tuple[int, float], ...] = ()


class Failure(NamedTuple):
    status: str
    reason: str
    seeds: tuple[int, ...]


class BoardRow(NamedTuple):
    """A method under one protocol on one device class.

    Attributes:
        variant: what sets the row apart from others of its method: changed budget, differing settings, version.
        kind: "reference" for oracles, pooled silos and other training data, which do not compete.
        seeds: of the successful runs.
        statuses: how many runs ended how.
        scores: by column: the score's name, or name@vN for a metric version that the section has outgrown.
        unavailable: reasons, by column.
        primary: the section's primary column.
        codes: how many versions of the method's file the runs came from.
        records: names of the records that count.
        parts: inference-time and estimation error, where the method also ran on exact scores.
        level: how far its successful runs are vouched for.
        training: what they were trained on, as declared.
        group: all settings, budget and task settings.
        pooled: whether it had the data of all silos in one place: the centralised reference.
    """

    section: Section
    method: str
    method_version: int
    variant: str
    device: str
    precision: str
    kind: Kind
    seeds: tuple[int, ...]
    statuses: dict[str, int]
    scores: dict[str, Cell]
    unavailable: dict[str, str]
    primary: str
    timing: Timing | None
    parameters: int | None
    evaluations: int | None
    failures: tuple[Failure, ...]
    codes: int
    records: tuple[str, ...]
    group: Group
    rank: Rank | None = None
    parts: Parts | None = None
    level: str = "self-reported"
    training: str = "undeclared"
    pooled: bool = False

    @property
    def label(self) -> str:
        return f"{self.method} ({self.variant})" if self.variant else self.method


def rows(records: Iterable[Record | Mapping[str, Any]], standings: Mapping[str, Standing] | None = None) -> tuple[BoardRow, ...]:
    """All rows, by section, then rank; those that do not compete, and failures, come last.

    Args:
        records: in any order, as records or as their JSON objects.  Of several attempts at one run the latest
            successful one counts, a reproduced one before others, else the latest; of several runs of one seed (the
            method's file changed), likewise.
        standings: what the levels of records come to, by their names; without one a record is self-reported.

    Returns:
        rows with ranks; the same for any order of the records.
    """
    checked = (record if isinstance(record, Record) else Record.model_validate(record) for record in records)
    sections: dict[Section, dict[Group, list[Record]]] = defaultdict(lambda: defaultdict(list))
    known = standings or {}
    for record in _latest(checked, known):
        spec = record.spec
        section = Section(spec.task, spec.task_version, spec.preset, spec.source, spec.fingerprint)
        sections[section][group_of(record)].append(record)
    ordered = sorted(sections, key=lambda s: (s.task, s.task_version, PRESETS.index(s.preset), s.source, s.fingerprint))
    return tuple(row for section in ordered for row in _section_rows(section, sections[section], known))


def _by_seed(records: Iterable[Record], standings: Mapping[str, Standing]) -> list[Record]:
    """One record a seed, sorted by seed."""

    def place(record: Record) -> tuple[Any, ...]:
        return record.status == "ok", _is_reproduced(record, standings), record.started, record.attempt

    return sorted(_best(records, key=lambda record: record.spec.seed, order=place), key=lambda record: record.spec.seed)


def _latest(records: Iterable[Record], standings: Mapping[str, Standing]) -> list[Record]:
    """One record for each identity; a later attempt of somebody else does not replace what was reproduced."""

    def place(record: Record) -> tuple[Any, ...]:
        return record.status == "ok", _is_reproduced(record, standings), record.attempt, record.started

    return list(_best(records, key=lambda record: record.identity, order=place))


def _is_reproduced(record: Record, standings: Mapping[str, Standing]) -> bool:
    return bool(standings) and standings.get(record.name, Standing()).level == "reproduced"


def _best(records: Iterable[Record], *, key: Any, order: Any) -> Iterable[Record]:
    best: dict[Any, tuple[Any, Record]] = {}
    for record in records:
        found, place = key(record), order(record)
        known = best.get(found)
        if known is None or place > known[0] or (place == known[0] and _bytes(record) > _bytes(known[1])):
            best[found] = (place, record)
    return (record for _, record in best.values())


def _bytes(record: Record) -> str:
    """Settles ties between records that claim to be the same attempt, so that the order of reading never shows."""
    return record.model_dump_json()


def _section_rows(
    section: Section, attempts: Mapping[Group, Sequence[Record]], standings: Mapping[str, Standing]
) -> list[BoardRow]:
    groups = {group: _by_seed(records, standings) for group, records in attempts.items()}
    ok = [record for group in groups.values() for record in group if record.status == "ok"]
    scores = [score for record in ok for score in record.scores]
    newest: dict[str, int] = {}
    for score in scores:
        if score.metric_version > newest.get(score.name, 0):
            newest[score.name] = score.metric_version
    primary = _most(score.name for score in scores if score.primary)
    said = variants(groups)
    made = [_row(section, group, said[group], records, newest, primary) for group, records in groups.items()]
    parts = _decomposed(groups, primary)
    made = [_vouched(_with_parts(row, parts.get(group)), standings) for row, group in zip(made, groups, strict=True)]
    return sorted(_ranked(made), key=_place)


def _most(names: Iterable[str]) -> str:
    """The name that most say, the first of equals: one record alone does not change what a board ranks by."""
    counted = Counter(names)
    return min(counted, key=lambda name: (-counted[name], name), default="")


def _decomposed(groups: Mapping[Group, Sequence[Record]], primary: str) -> dict[Group, Parts]:
    """The parts of the primary score of every row whose method also ran on exact scores."""
    exact = {group: _successful(records) for group, records in groups.items() if group.method.endswith(ORACLE)}
    found = {}
    for group, records in groups.items():
        for oracle, own in exact.items():
            if oracle.method == group.method + ORACLE and (
                parts := decompose(group.knobs, oracle.knobs, _successful(records), own, primary)
            ):
                found[group] = parts
    return found


def _with_parts(row: BoardRow, parts: Parts | None) -> BoardRow:
    """The row with inference-time and estimation error as two more columns beside the primary."""
    whole = row.scores.get(row.primary)
    if parts is None or whole is None:
        return row
    bare = whole._replace(num_seeds=parts.num_seeds, ceiling=None, floor=None, interval=None, values=())
    terms = {"inference_time_error": (parts.inference, 0.0), "estimation_error": (parts.estimation, parts.spread)}
    own = {
        f"{whole.split}_{term}": bare._replace(name=f"{whole.split}_{term}", mean=value, std=std)
        for term, (value, std) in terms.items()
    }
    return row._replace(scores={**row.scores, **own}, parts=parts)


def _vouched(row: BoardRow, standings: Mapping[str, Standing]) -> BoardRow:
    """The row with its level and its training data, by which it may become a reference."""
    known = [standings.get(name, Standing()) for name in row.records]
    declared = {standing.training_data for standing in known}
    training = "external" if "external" in declared else "seen" if declared == {"seen"} else "undeclared"
    many = sum(standing.level == "reproduced" for standing in known)
    level = "self-reported" if not many else "reproduced" if many == len(row.seeds) else f"reproduced {many}/{len(row.seeds)}"
    return row._replace(level=level, training=training, kind="reference" if training == "external" else row.kind)


def _successful(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.status == "ok"]


def _place(row: BoardRow) -> tuple[Any, ...]:
    rank = row.rank.rank if row.rank else 1 << 30
    return row.kind != "run", rank, not row.scores, row.method, row.variant, row.device, row.precision, row.records


def _row(
    section: Section, group: Group, variant: str, kept: Sequence[Record], newest: Mapping[str, int], primary: str
) -> BoardRow:
    ok = _successful(kept)
    cells, unavailable = _cells(ok, newest, primary)
    return BoardRow(
        section=section,
        method=group.method,
        method_version=group.method_version,
        variant=variant,
        device=group.device,
        precision=group.precision,
        kind="reference" if any(record.oracle or record.pooled_silos for record in kept) else "run",
        seeds=tuple(record.spec.seed for record in ok),
        statuses=dict(sorted(Counter(record.status for record in kept).items())),
        scores=cells,
        unavailable=unavailable,
        primary=primary,
        timing=timing(ok),
        parameters=next((p for record in ok if (p := record.profile.parameters) is not None), None),
        evaluations=next((e for record in ok if (e := record.profile.evaluations_per_sample) is not None), None),
        failures=_failures(kept),
        codes=len({record.spec.code for record in ok}),
        records=tuple(record.name for record in kept),
        group=group,
        pooled=any(record.pooled_silos for record in kept),
    )


def _cells(ok: Sequence[Record], newest: Mapping[str, int], primary: str) -> tuple[dict[str, Cell], dict[str, str]]:
    found: dict[str, dict[int, Score]] = defaultdict(dict)
    unavailable: dict[str, str] = {}
    for record in ok:
        for score in record.scores:
            old = score.metric_version != newest[score.name]
            column = f"{score.name}@v{score.metric_version}" if old else score.name
            if score.value is None:
                unavailable.setdefault(column, score.reason)
            else:
                found[column][record.spec.seed] = score
    cells = {column: _cell(scores, primary=column == primary) for column, scores in sorted(found.items())}
    return cells, {column: reason for column, reason in sorted(unavailable.items()) if column not in cells}


def _cell(scores: Mapping[int, Score], *, primary: bool) -> Cell:
    by_seed = [(seed, score.value) for seed, score in scores.items() if score.value is not None]
    values = [value for _, value in by_seed]
    first, centre = next(iter(scores.values())), mean(values)
    return Cell(
        name=first.name,
        split=first.split,
        metric_version=first.metric_version,
        unit=first.unit,
        direction=first.direction,
        mean=centre,
        std=sample_std(values, centre),
        num_seeds=len(values),
        ceiling=known_mean([score.ceiling for score in scores.values()]),
        floor=known_mean([score.floor for score in scores.values()]),
        interval=interval(values) if primary else None,
        values=tuple(by_seed) if primary else (),
    )


def _failures(kept: Iterable[Record]) -> tuple[Failure, ...]:
    """Why runs are missing; the same end for the same reason is said once."""
    seeds: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in kept:
        if record.status != "ok":
            seeds[record.status, record.reason].append(record.spec.seed)
    return tuple(Failure(*end, tuple(sorted(found))) for end, found in sorted(seeds.items()))


def _ranked(section: Sequence[BoardRow]) -> list[BoardRow]:
    """Rank what competes by the primary score; the rest keeps none."""
    running = [row for row in section if row.kind == "run" and row.primary in row.scores]
    if not running:
        return list(section)
    cells = [row.scores[row.primary] for row in running]
    placed = ranks([c.mean for c in cells], [c.interval for c in cells], higher=_most(c.direction for c in cells) == "higher")
    found = {id(row): rank for row, rank in zip(running, placed, strict=True)}
    return [row._replace(rank=found.get(id(row))) for row in section]
