"""Turn records into board rows.  Results that must not be compared never share a section, row or column.

A section is one task under one protocol: preset, data, task settings and budget.  Scores are compared within it, and only
between equal metric versions.  A row is one method with one set of settings; its seeds may have run on several devices, and its
speeds come from one machine type.  One row of each method competes: the one with default settings.  Failed runs stay visible,
with their reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from compbench.api.schemas import Record, Tuning
from compbench.board.catalogue import Catalogue
from compbench.board.cells import cells
from compbench.board.competition import judged
from compbench.board.decomposition import decomposed
from compbench.board.discriminability import Discriminability
from compbench.board.groups import (
    Defaults,
    Group,
    Method,
    Section,
    changed,
    default_settings,
    group_of,
    older_code,
    section_of,
    variants,
)
from compbench.board.row import NEAR, USUAL, Board, BoardRow, Failure, failed_seeds
from compbench.board.timing import NONE, pooled_steps, timing
from compbench.board.verdict import Verdict
from compbench.registry.equal_code import equal_code
from compbench.store.conditions import uncounted, untrained_in_words
from compbench.store.counts import beyond_by_phrase
from compbench.store.judges import by_one_judge
from compbench.store.loss_curves import unrecovered_spikes
from compbench.store.profiles import Costs
from compbench.store.verification import SAMPLES_ONLY, Verification
from compbench.system.files import Json


def aggregate(
    records: Iterable[Record | Mapping[str, Json]],
    standings: Mapping[str, Verification] | None = None,
    catalogue: Catalogue | None = None,
    costs: Costs = NONE,
    method_defaults: Defaults | None = None,
    required: Mapping[str, Sequence[str]] = {},
) -> Board:
    """Make the board of some records; their order does not matter.

    Args:
        records: records, or their JSON objects.  If a run has several attempts, a reproduced one counts, else the latest
            successful one, else the latest.  The same holds if a seed has several runs (because the method's file or the device
            changed), but a run on the device that most seeds used takes precedence.
        standings: verification level of each record, by its name; a record without an entry is self-reported.
        catalogue: default settings of the tasks.
        costs: measured costs of methods on one machine.
        method_defaults: versions and default settings of the methods that are installed.
        required: methods that a task must have before its rows are ranked, by task; this applies at preset `standard`.

    Returns:
        rows with ranks; rows that do not compete, and failures, come last.
    """
    read = (record if isinstance(record, Record) else Record.model_validate(record) for record in records)
    checked, others = by_one_judge(read)
    older = older_code(checked)
    newest = {method: version for method, (version, _) in (method_defaults or {}).items()}
    for record in checked:
        method = record.spec.method, record.plugin.distribution
        newest[method] = max(record.spec.method_version, newest.get(method, 0))
    attempts: dict[Section, dict[Group, list[Record]]] = defaultdict(lambda: defaultdict(list))
    known = standings or {}
    for record in _latest(checked, known):
        attempts[section_of(record, catalogue or {})][group_of(record)].append(record)
    kept = {
        section: {group: one_a_seed(own, known) for group, own in attempts[section].items()}
        for section in sorted(attempts, key=lambda section: section.place)
    }
    defaults = default_settings(kept, method_defaults or {})
    primaries = {section: _primary(groups) for section, groups in kept.items()}
    parts = decomposed(kept, primaries)
    rows: list[BoardRow] = []
    found: dict[Section, Discriminability] = {}
    verdicts: dict[Section, Verdict] = {}
    missing: dict[Section, tuple[str, ...]] = {}
    for section, groups in kept.items():
        made = _section_rows(section, groups, primaries[section], known)
        made = [
            row._replace(
                parts=parts.get((section, row.group)),
                timing=timing(_successful(groups[row.group]), costs, default=row.kind != "ablation"),
                other_judge=_seeds(groups[row.group], others),
                older=tuple(sorted({part for name in row.records for part in older.get(name, ())})),
                newer_version=last if (last := newest.get(row.group[:2], 0)) > row.method_version else 0,
            )
            for row in _competing(made, defaults)
        ]
        made = _with_sizes(made)
        listed = section.preset == "standard" and not section.changed
        lacks = _missing(made, primaries[section], required.get(section.task, ())) if listed else ()
        if lacks:
            missing[section] = lacks
        done = judged([_with_parts(row) for row in made], _recalls(primaries[section], groups), ranks=not lacks)
        if done.discriminability is not None:
            found[section] = done.discriminability
        if done.verdict is not None:
            verdicts[section] = done.verdict
        rows += sorted(done.rows, key=_place)
    return Board(tuple(rows), found, verdicts, missing)


def rows(
    records: Iterable[Record | Mapping[str, Json]],
    standings: Mapping[str, Verification] | None = None,
    catalogue: Catalogue | None = None,
    costs: Costs = NONE,
    method_defaults: Defaults | None = None,
) -> tuple[BoardRow, ...]:
    """The rows of `aggregate` alone."""
    return aggregate(records, standings, catalogue, costs, method_defaults).rows


def one_a_seed(records: Iterable[Record], standings: Mapping[str, Verification] | None = None) -> list[Record]:
    """One record for each seed of a row, sorted by seed; `aggregate` says which record counts."""
    records = list(records)
    seeds = {(record.spec.device_class, record.spec.seed) for record in _successful(records)}
    many = Counter(device for device, _ in seeds)

    def place(record: Record) -> tuple[object, ...]:
        reproduced = _is_reproduced(record, standings or {})
        return record.status == "ok", reproduced, many[record.spec.device_class], record.started, record.attempt

    return sorted(_best(records, key=lambda record: record.spec.seed, order=place), key=lambda record: record.spec.seed)


def _latest(records: Iterable[Record], standings: Mapping[str, Verification]) -> list[Record]:
    """The record that counts for each run; a later attempt does not replace a reproduced one."""

    def place(record: Record) -> tuple[object, ...]:
        return record.status == "ok", _is_reproduced(record, standings), record.attempt, record.started

    return list(_best(records, key=lambda record: equal_code().run_of(record.spec, record.identity), order=place))


def _is_reproduced(record: Record, standings: Mapping[str, Verification]) -> bool:
    return bool(standings) and standings.get(record.name, Verification()).level == "reproduced"


def _best(
    records: Iterable[Record], *, key: Callable[[Record], object], order: Callable[[Record], tuple[object, ...]]
) -> Iterable[Record]:
    best: dict[object, tuple[tuple[object, ...], Record]] = {}
    for record in records:
        found, place = key(record), order(record)
        known = best.get(found)
        if known is None or place > known[0] or (place == known[0] and _bytes(record) > _bytes(known[1])):
            best[found] = (place, record)
    return (record for _, record in best.values())


def _bytes(record: Record) -> str:
    """Break ties between records that claim to be the same attempt, so that the reading order has no effect."""
    return record.model_dump_json()


def _primary(groups: Mapping[Group, Sequence[Record]]) -> str:
    """The column that a section ranks by: the one that most runs declare primary."""
    return _most(score.name for records in groups.values() for r in _successful(records) for score in r.scores if score.primary)


def _section_rows(
    section: Section, groups: Mapping[Group, Sequence[Record]], primary: str, standings: Mapping[str, Verification]
) -> list[BoardRow]:
    newest: dict[str, int] = {}
    for records in groups.values():
        for score in (score for record in _successful(records) for score in record.scores):
            if score.metric_version > newest.get(score.name, 0):
                newest[score.name] = score.metric_version
    said = variants(groups)
    made = (_row(section, group, said[group], records, newest, primary) for group, records in groups.items())
    return [_vouched(row, standings) for row in made]


def _most(names: Iterable[str]) -> str:
    """The most frequent name (ties: alphabetical), so that a single record cannot change the score that a board ranks by."""
    counted = Counter(names)
    return min(counted, key=lambda name: (-counted[name], name), default="")


def _competing(rows: Sequence[BoardRow], defaults: Mapping[Method, str]) -> list[BoardRow]:
    """Mark all rows of a method as ablations except one: its newest version at default settings, with the most seeds.

    If a method has a single row and this row is an ablation, its label names the settings that differ from the defaults.
    """
    first: dict[tuple[str, str], BoardRow] = {}
    for row in rows:
        group = row.group
        if row.kind == "run" and defaults.get((group.method, group.distribution, group.method_version)) == group.settings:
            name = group.method, group.distribution
            if name not in first or _seniority(row) < _seniority(first[name]):
                first[name] = row
    chosen = {id(row) for row in first.values()}

    def placed(row: BoardRow) -> BoardRow:
        if row.kind == "reference" or id(row) in chosen:
            return row
        default = defaults.get((row.method, row.group.distribution, row.method_version))
        return row._replace(kind="ablation", variant=row.variant or (changed(row.group.settings, default) if default else ""))

    return [placed(row) for row in rows]


def _with_sizes(rows: Sequence[BoardRow]) -> list[BoardRow]:
    """The rows of a section; those that compete with a network of another size than `USUAL` has say how large it is."""
    usual = next(
        (row.parameters for row in rows if (row.method, row.group.distribution) == USUAL and row.kind != "ablation"), None
    )

    def size(row: BoardRow) -> float:
        found = row.parameters / usual if usual and row.parameters and row.kind == "run" else 1.0
        return found if abs(found - 1) > NEAR else 0.0

    return [row._replace(size=size(row)) for row in rows]


def _missing(rows: Sequence[BoardRow], primary: str, required: Sequence[str]) -> tuple[str, ...]:
    """The required methods that have no two seeds at default settings; a failed seed counts, because it was tried."""
    tried = {
        row.method: len(row.scores[primary].values if primary in row.scores else ()) + len(failed_seeds(row))
        for row in rows
        if row.kind != "ablation"
    }
    return tuple(name for name in required if tried.get(name, 0) < 2)


def _seniority(row: BoardRow) -> tuple[object, ...]:
    return -row.method_version, -len(row.seeds), row.precision


def _with_parts(row: BoardRow) -> BoardRow:
    """The row with two more columns next to the primary one, inference-time and estimation error, if they are known."""
    whole, parts = row.scores.get(row.primary), row.parts
    if parts is None or whole is None:
        return row._replace(parts=None)
    bare = whole._replace(direction="lower", num_seeds=parts.num_seeds, ceiling=None, floor=None, interval=None, values=())
    terms = {"inference_time_error": (parts.inference, 0.0), "estimation_error": (parts.estimation, parts.spread)}
    own = {
        f"{whole.split}_{term}": bare._replace(name=f"{whole.split}_{term}", mean=value, std=std)
        for term, (value, std) in terms.items()
    }
    return row._replace(scores={**row.scores, **own})


def _vouched(row: BoardRow, standings: Mapping[str, Verification]) -> BoardRow:
    """Add verification level and training data; a row trained on external data becomes a reference row."""
    known = [standings.get(name, Verification()) for name in row.records]
    declared = {standing.training_data for standing in known}
    training = "external" if "external" in declared else "seen" if declared == {"seen"} else "undeclared"
    many = sum(standing.level == "reproduced" for standing in known)
    if row.level == SAMPLES_ONLY:
        return row._replace(training=training)
    level = "self-reported" if not many else "reproduced" if many == len(row.seeds) else f"reproduced {many}/{len(row.seeds)}"
    return row._replace(level=level, training=training, kind="reference" if training == "external" else row.kind)


def _recalls(primary: str, groups: Mapping[Group, Sequence[Record]]) -> dict[str, float]:
    """Recall on the primary score's split, divided by real data's with the same judge in that run, by the record's name."""
    name = f"{primary.partition('_')[0]}_recall"
    known = {record.name: record.score(name) for records in groups.values() for record in _successful(records)}
    return {run: s.value / s.floor for run, s in known.items() if s is not None and s.value is not None and s.floor}


def _seeds(records: Iterable[Record], named: Collection[str]) -> tuple[int, ...]:
    return tuple(record.spec.seed for record in records if record.status == "ok" and record.name in named)


def _successful(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.status == "ok"]


def _place(row: BoardRow) -> tuple[object, ...]:
    """Rows that may be best come first, then other ranked rows, then rows that draw means, ablations and references."""
    rank = row.rank.rank if row.rank else 1 << 30
    aside = ("run", "ablation", "reference").index(row.kind)
    cell = row.scores.get(row.primary)
    merit = 0.0 if cell is None else -cell.mean if cell.direction == "higher" else cell.mean
    return (
        aside,
        not row.may_be_best,
        rank,
        cell is None,
        not row.scores,
        merit,
        row.method,
        row.variant,
        row.device,
        row.precision,
        row.records,
    )


def _row(
    section: Section, group: Group, variant: str, kept: Sequence[Record], newest: Mapping[str, int], primary: str
) -> BoardRow:
    ok = _successful(kept)
    scores, unavailable = cells(ok, newest, primary)
    return BoardRow(
        section=section,
        method=group.method,
        method_version=group.method_version,
        variant=variant,
        device=_devices(ok or kept),
        precision=group.precision,
        kind="reference" if any(record.oracle or record.pooled_silos or record.samples_only for record in kept) else "run",
        seeds=tuple(record.spec.seed for record in ok),
        statuses=dict(sorted(Counter(record.status for record in kept).items())),
        scores=scores,
        unavailable=unavailable,
        primary=primary,
        timing=None,
        parameters=next((p for record in ok if (p := record.profile.parameters) is not None), None),
        evaluations=next((e for record in ok if (e := record.profile.evaluations_per_sample) is not None), None),
        failures=_failures(kept),
        codes=_versions(ok),
        records=tuple(record.name for record in kept),
        group=group,
        pooled=any(record.pooled_silos for record in kept),
        pooled_steps=pooled_steps(kept),
        level=SAMPLES_ONLY if any(record.samples_only for record in kept) else "self-reported",
        threads=tuple(sorted({record.environment.threads for record in ok} - {0})),
        unrecovered_spikes=unrecovered_spikes(ok),
        beyond=beyond_by_phrase(ok),
        untrained=untrained_in_words(ok),
        uncounted=uncounted(ok),
        tuned=_tuned(ok),
    )


def _tuned(ok: Sequence[Record]) -> Tuning | None:
    """The study that chose the settings of all runs; None if there is no such study, or several."""
    studies = {record.tuning for record in ok}
    return studies.pop() if len(studies) == 1 else None


def _devices(records: Sequence[Record]) -> str:
    """Names of the devices of some runs; the device with the most runs comes first."""
    many = Counter(record.spec.device_class for record in records)
    return " and ".join(sorted(many, key=lambda device: (-many[device], device)))


def _versions(ok: Sequence[Record]) -> int:
    """The largest number of code versions on one kind of device: GPU-only code does not belong to a CPU's version."""
    codes: dict[bool, set[str]] = defaultdict(set)
    for record in ok:
        codes[record.spec.device_class == "cpu"].add(equal_code().name(record.spec.code))
    return max(map(len, codes.values()), default=0)


def _failures(kept: Iterable[Record]) -> tuple[Failure, ...]:
    """Why runs are missing; runs with the same status and reason share one entry."""
    seeds: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in kept:
        if record.status != "ok":
            seeds[record.status, record.reason].append(record.spec.seed)
    return tuple(Failure(*end, tuple(sorted(found))) for end, found in sorted(seeds.items()))
