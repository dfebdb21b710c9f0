"""Turn records into board rows.  Results that must not be compared never share a section, row or column.

A section is one task under one protocol: preset, data, task settings and budget.  Scores are compared within it, and only
between equal metric versions.  A row is one method with one set of settings; its seeds may have run on several devices, and its
speeds come from one machine type.  One row of each method competes, by its default settings.  Failed runs stay visible, with
their reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from compbench.api.schemas import Record
from compbench.board.catalogue import Catalogue
from compbench.board.cells import Cell, cells
from compbench.board.code_age import older_code
from compbench.board.decomposition import Parts, decomposed
from compbench.board.discriminability import Discriminability, discriminability
from compbench.board.groups import Defaults, Group, Method, Section, changed, default_settings, group_of, section_of, variants
from compbench.board.ranking import Rank, ranks
from compbench.board.timing import NONE, Timing, pooled_steps, timing
from compbench.registry.equal_code import equal_code
from compbench.store.conditions import untrained_in_words
from compbench.store.counts import beyond_by_phrase
from compbench.store.judges import by_one_judge, has_another_judge
from compbench.store.loss_curves import setbacks
from compbench.store.profiles import CostProfile
from compbench.store.verification import SAMPLES_ONLY, Verification
from compbench.system.files import Json

Kind = Literal["run", "ablation", "reference"]
"""`run` competes; `ablation` is a method under other settings, in another precision or of an older version than that row."""


class Failure(NamedTuple):
    status: str
    reason: str
    seeds: tuple[int, ...]


class BoardRow(NamedTuple):
    """A method under one protocol.

    Attributes:
        variant: what sets the row apart from others of its method: differing settings, version, precision.
        device: of its successful runs, as in "cpu" or "NVIDIA H200 and cpu": the device with the most runs comes first.
        kind: see `Kind`; "reference" for oracles, pooled silos, other training data and samples of
            which no training was seen: they do not compete.
        seeds: of the successful runs.
        statuses: how many runs ended how.
        scores: by column: the score's name, or name@vN for a metric version that the section has outgrown.
        unavailable: reasons, by column.
        primary: the section's primary column.
        codes: how many versions of the code the runs came from; what only GPUs run makes no other version.
        older: parts of the code that differ from those of newer records (`code_age`).
        other_judge: seeds whose distances are in another judge's features than the section's, and left out.
        threads: numbers of CPU threads that the runs had.
        setbacks: loss spikes of its runs that did not come back, one phrase each.
        beyond: what its runs took beyond their budget, or beyond what the method declares, a phrase each.
        untrained: kinds of conditions that its samples ask for and its fits hardly saw, a phrase each.
        records: names of the records that count.
        parts: inference-time and estimation error, where the method also ran on exact scores.
        level: how far its successful runs are vouched for.
        training: what they were trained on, as declared.
        group: all settings, budget and task settings.
        pooled: whether it had the data of all silos in one place: the centralised reference.
        pooled_steps: how many times the steps of one silo it then took; 0 where that is not known.
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
    pooled_steps: float = 0.0
    older: tuple[str, ...] = ()
    other_judge: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    setbacks: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.method} ({self.variant})" if self.variant else self.method


class Board(NamedTuple):
    """All rows, by section, then rank, and how well each section tells its methods apart, where that is known."""

    rows: tuple[BoardRow, ...]
    discriminability: Mapping[Section, Discriminability]


def aggregate(
    records: Iterable[Record | Mapping[str, Json]],
    standings: Mapping[str, Verification] | None = None,
    catalogue: Catalogue | None = None,
    profiles: Mapping[str, CostProfile] = NONE,
    method_defaults: Defaults | None = None,
) -> Board:
    """The board of records, the same for any order of them.

    Args:
        records: in any order, as records or as their JSON objects.  Of several attempts at one run the latest
            successful one counts, a reproduced one before others, else the latest; of several runs of one seed (the
            method's file changed, or the device), likewise, but first of all the one on the device that most seeds ran on.
        standings: what the levels of records come to, by their names; without one a record is self-reported.
        catalogue: default settings of the tasks.
        profiles: what methods cost, from `compbench.store.profiles.by_cost_key`.
        method_defaults: default settings of the methods that are installed.

    Returns:
        rows with ranks; those that do not compete, and failures, come last.
    """
    checked = by_one_judge(record if isinstance(record, Record) else Record.model_validate(record) for record in records)
    older = older_code(checked)
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
    for section, groups in kept.items():
        made = _section_rows(section, groups, primaries[section], known)
        made = [
            row._replace(
                parts=parts.get((section, row.group)),
                timing=timing(_successful(groups[row.group]), profiles),
                older=tuple(sorted({part for name in row.records for part in older.get(name, ())})),
            )
            for row in _competing(made, defaults)
        ]
        made = [_with_parts(row) for row in made]
        discriminability = _discriminability(made)
        if discriminability is not None:
            found[section] = discriminability
        rows += sorted(made if discriminability and not discriminability.ranks else _ranked(made), key=_place)
    return Board(tuple(rows), found)


def rows(
    records: Iterable[Record | Mapping[str, Json]],
    standings: Mapping[str, Verification] | None = None,
    catalogue: Catalogue | None = None,
    profiles: Mapping[str, CostProfile] = NONE,
    method_defaults: Defaults | None = None,
) -> tuple[BoardRow, ...]:
    """The rows of `aggregate` alone."""
    return aggregate(records, standings, catalogue, profiles, method_defaults).rows


def one_a_seed(records: Iterable[Record], standings: Mapping[str, Verification] | None = None) -> list[Record]:
    """One record a seed of a row's, sorted by seed: which counts is said in `aggregate`."""
    records = list(records)
    seeds = {(record.spec.device_class, record.spec.seed) for record in _successful(records)}
    many = Counter(device for device, _ in seeds)

    def place(record: Record) -> tuple[object, ...]:
        reproduced = _is_reproduced(record, standings or {})
        return record.status == "ok", reproduced, many[record.spec.device_class], record.started, record.attempt

    return sorted(_best(records, key=lambda record: record.spec.seed, order=place), key=lambda record: record.spec.seed)


def _latest(records: Iterable[Record], standings: Mapping[str, Verification]) -> list[Record]:
    """One record for each run; a later attempt of someone else does not replace what was reproduced."""

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
    """Settles ties between records that claim to be the same attempt, so that the order of reading never shows."""
    return record.model_dump_json()


def _primary(groups: Mapping[Group, Sequence[Record]]) -> str:
    """The column that a section ranks by: the one that most runs call primary."""
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
    """The rows, with all but one of each method marked as ablations: its newest version, at default settings, of most seeds.

    An ablation that stands alone, so that no sibling says what it changes, is named by its settings that are not the defaults.
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


def _seniority(row: BoardRow) -> tuple[object, ...]:
    return -row.method_version, -len(row.seeds), row.precision


def _with_parts(row: BoardRow) -> BoardRow:
    """The row with inference-time and estimation error as two more columns next to the primary one, if they are known."""
    whole, parts = row.scores.get(row.primary), row.parts
    if parts is None or whole is None:
        return row._replace(parts=None)
    bare = whole._replace(num_seeds=parts.num_seeds, ceiling=None, floor=None, interval=None, values=())
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


def _successful(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.status == "ok"]


def _place(row: BoardRow) -> tuple[object, ...]:
    rank = row.rank.rank if row.rank else 1 << 30
    aside = ("run", "ablation", "reference").index(row.kind)
    cell = row.scores.get(row.primary)
    merit = 0.0 if cell is None else -cell.mean if cell.direction == "higher" else cell.mean
    return aside, rank, cell is None, not row.scores, merit, row.method, row.variant, row.device, row.precision, row.records


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
        other_judge=tuple(record.spec.seed for record in ok if has_another_judge(record)),
        threads=tuple(sorted({record.environment.threads for record in ok} - {0})),
        setbacks=setbacks(ok),
        beyond=beyond_by_phrase(ok),
        untrained=untrained_in_words(ok),
    )


def _devices(records: Sequence[Record]) -> str:
    """The devices of some runs, that of the most first."""
    many = Counter(record.spec.device_class for record in records)
    return " and ".join(sorted(many, key=lambda device: (-many[device], device)))


def _versions(ok: Sequence[Record]) -> int:
    """The largest number of code versions on one kind of device: GPU-only code does not belong to a CPU's version."""
    codes: dict[bool, set[str]] = defaultdict(set)
    for record in ok:
        codes[record.spec.device_class == "cpu"].add(equal_code().name(record.spec.code))
    return max(map(len, codes.values()), default=0)


def _failures(kept: Iterable[Record]) -> tuple[Failure, ...]:
    """Why runs are missing; the same end for the same reason is said once."""
    seeds: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in kept:
        if record.status != "ok":
            seeds[record.status, record.reason].append(record.spec.seed)
    return tuple(Failure(*end, tuple(sorted(found))) for end, found in sorted(seeds.items()))


def failed_seeds(row: BoardRow) -> tuple[int, ...]:
    """Seeds whose run failed, in its own time or memory too; what was stopped by hand or refused did not."""
    return tuple(seed for entry in row.failures if entry.status not in ("killed", "refused") for seed in entry.seeds)


def _contest(rows: Sequence[BoardRow]) -> tuple[list[BoardRow], list[dict[int, float]], int]:
    """The rows that compete, their primary scores by seed as shares of the whole, and of how many trials a share is."""
    running = [row for row in rows if row.kind == "run" and len(row.seeds) > 1 and row.primary in row.scores]
    cells = [row.scores[row.primary] for row in running]
    if not cells:
        return [], [], 0
    values = [{seed: value / cell.whole for seed, value in cell.values} for cell in cells]
    return running, values, min(cell.trials for cell in cells)


def _discriminability(rows: Sequence[BoardRow]) -> Discriminability | None:
    _, values, trials = _contest(rows)
    return discriminability(values, trials=trials) if values else None


def _ranked(rows: Sequence[BoardRow]) -> list[BoardRow]:
    """Rank what competes with two seeds or more by the primary score; the rest keeps none.

    A failed seed counts as the worst run of the section, and as nothing at all where higher is better.
    """
    running, values, trials = _contest(rows)
    if not running:
        return list(rows)
    higher = _most(row.scores[row.primary].direction for row in running) == "higher"
    worst = 0.0 if higher else max(value for own in values for value in own.values())
    values = [own | dict.fromkeys(failed_seeds(row), worst) for row, own in zip(running, values, strict=True)]
    found = {id(row): rank for row, rank in zip(running, ranks(values, higher=higher, trials=trials), strict=True)}
    return [row._replace(rank=found.get(id(row))) for row in rows]
