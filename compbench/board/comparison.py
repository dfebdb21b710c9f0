"""Compare two methods or two records: scores paired by seed, with intervals, costs, and pictures from the same noise.

With d_s = B_s - A_s at seed s, both on the same data order, conditions, noise and judge:

    mean d  -/+  t_{n-1} s_d / sqrt(n)      95 %; for shares of m trials, never narrower than the binomial error of
                                            independent trials, z sqrt((p_A q_A + p_B q_B) / (n m))
"""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.board.cells import known_mean, trials_of, whole_of
from compbench.board.groups import Section
from compbench.board.notation import SMOKE, in_one_place
from compbench.board.row import Board, BoardRow
from compbench.board.statistics import Interval, interval, mean
from compbench.board.timing import pooled_steps, timing
from compbench.board.view import SAMPLES, STATE_WORDS, state
from compbench.registry.declared import kind_of_data
from compbench.store.judges import IN_FEATURES, WITHOUT_UNIT, can_be_one
from compbench.store.profiles import Costs
from compbench.system.errors import CompbenchError, suggest

Z = 1.959963984540054
STATE_SENTENCES = STATE_WORDS | {"worse": "is shown to be worse", "unranked": "is not ranked", "reference": "is a reference"}
"""What is said of a row in each state."""
MARGIN = 24
"""Height in pixels of the space for the name above each picture."""


class ScoreDifference(NamedTuple):
    """One score that both sides have.

    Attributes:
        a, b: means over the common seeds; without a common seed, over all seeds of each side.
        num_seeds: number of common seeds.
        difference: b - a.
        interval: 95 % interval of the difference; None for fewer than two common seeds.
        better: "A" or "B" where the interval excludes 0, else "".
    """

    name: str
    direction: str
    primary: bool
    a: float
    b: float
    num_seeds: int
    difference: float
    interval: Interval | None
    better: str


class CostRatio(NamedTuple):
    """One cost of both sides, and b / a; the ratio is None if a cost is not known or a is 0."""

    name: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | None:
        return self.b / self.a if self.a and self.b is not None else None


class Comparison(NamedTuple):
    """A and B on one task.

    Attributes:
        task: its name, with the changes of its protocol.
        a, b: their labels.
        scores: the primary score first; a score of another metric version on one side is left out.
        costs: the costs that at least one side has.
        remarks: what a reader must know in addition to the numbers.
        records: name of one record of each side, for pictures; of the smallest common seed if there is one.
    """

    task: str
    a: str
    b: str
    scores: tuple[ScoreDifference, ...]
    costs: tuple[CostRatio, ...]
    remarks: tuple[str, ...]
    records: tuple[str, str]


def compare_methods(board: Board, records: Iterable[Record], a: str, b: str, costs: Costs) -> list[Comparison]:
    """Compare two methods on every task and preset that both ran, at their default settings where such runs exist.

    Raises:
        CompbenchError: a method without a record, or no task in common.
    """
    known = {record.name: record for record in records}
    by_section: dict[Section, dict[str, BoardRow]] = defaultdict(dict)
    for row in board.rows:
        if row.method in (a, b) and row.seeds:
            by_section[row.section].setdefault(row.method, row)  # competing rows come first
    ran = {row.method for row in board.rows if row.seeds}
    for name in (a, b):
        if name not in ran:
            raise suggest("method with records", name, sorted(ran), listed=False)
    common = {section: rows for section, rows in by_section.items() if len(rows) == 2}
    if not common:
        raise CompbenchError(f"'{a}' and '{b}' have no task and preset in common among these records.")
    found = []
    for section, rows in common.items():
        own = [[known[name] for name in rows[method].records if known[name].status == "ok"] for method in (a, b)]
        labels = rows[a].label, rows[b].label
        made = compare(own[0], own[1], labels, _title(section), costs)
        found.append(made._replace(remarks=(*_standings(section, [rows[method] for method in (a, b)]), *made.remarks)))
    return found


def _standings(section: Section, rows: Sequence[BoardRow]) -> list[str]:
    """How a board of these two rows ranks them; a board of all methods makes more comparisons and may rank them differently."""
    running = [row for row in rows if row.kind == "run"]
    found = [f"on a board of these two alone, {row.label} {STATE_SENTENCES[state(row)]}" for row in running]
    if len(running) == 2 and all(len(row.seeds) > 1 and state(row) == "unranked" for row in running):
        found = ["on a board of these two alone, neither can be ranked: runs of one method differ as much as the two methods"]
    return [*([SMOKE] if section.preset == "smoke" else []), *found]


def compare_records(a: Record, b: Record, costs: Costs) -> Comparison:
    """Compare two records of one task; a remark names the settings and presets that differ.

    Raises:
        CompbenchError: the records are of different tasks, or one run failed.
    """
    for record in (a, b):
        if record.status != "ok":
            raise CompbenchError(f"the run of {record.name} ended as '{record.status}', so it has no scores.")
    if a.spec.task != b.spec.task:
        raise CompbenchError(f"{a.name} is of task '{a.spec.task}', {b.name} of '{b.spec.task}'; compare records of one task.")
    labels = _label(a, b), _label(b, a)
    found = compare([a], [b], labels, a.spec.task, costs)
    return found._replace(remarks=(*_differences(a, b), *found.remarks))


def _label(own: Record, other: Record) -> str:
    """Method and seed of a record; if both records are of one method, also the settings in which they differ."""
    settings, theirs = own.spec.settings, other.spec.settings
    differing = [f"{name}={value}" for name, value in sorted(settings.items()) if name in theirs and theirs[name] != value]
    named = differing if own.spec.method == other.spec.method else []
    return " ".join([own.spec.method, *named, f"seed {own.spec.seed}"])


def compare(a: Sequence[Record], b: Sequence[Record], labels: tuple[str, str], task: str, costs: Costs) -> Comparison:
    """Compare the successful records of two rows of one task; each row needs at least one."""
    seeds = sorted({one.spec.seed for one in a} & {one.spec.seed for one in b})
    judged = all(can_be_one(one, other) for one in a for other in b if one.spec.seed == other.spec.seed)
    known = {score.name: score.metric for one in (*a, *b) for score in one.scores if score.value is not None}
    left = [] if judged else sorted(name for name, metric in known.items() if metric in WITHOUT_UNIT)
    divided = [] if judged else sorted(name for name, metric in known.items() if metric in IN_FEATURES - WITHOUT_UNIT)
    asked = [(name, name in divided) for name in known if name not in left]
    scores = [found for name, by_floor in asked if (found := _difference(name, a, b, seeds, by_floor=by_floor)) is not None]
    scores.sort(key=lambda found: (not found.primary, found.name))
    remarks = [] if seeds else ["no seed in common: means of different seeds, not paired"]
    alone = sorted({one.spec.seed for one in (*a, *b)} - set(seeds)) if seeds else []
    if alone:
        remarks.append(f"left out, as only one of them has it: seed {', '.join(map(str, alone))}")
    two = "in the features of two judges, trained on two types of processor"
    if divided:
        remarks.append(f"divided by each run's own floor, since they are {two}: {', '.join(divided)}")
    if left:
        remarks.append(f"left out, since its floor is zero and it is {two}: {', '.join(left)}")
    remarks += machine_differences(a, b)
    for label, own in zip(labels, (a, b), strict=True):
        remarks += [f"{label}: {why}" for why in _aside(own)]
    pair = [next((one for one in own if not seeds or one.spec.seed == seeds[0]), own[0]).name for own in (a, b)]
    return Comparison(task, *labels, tuple(scores), _costs(a, b, costs), tuple(remarks), (pair[0], pair[1]))


def _difference(
    name: str, a: Sequence[Record], b: Sequence[Record], seeds: Sequence[int], *, by_floor: bool = False
) -> ScoreDifference | None:
    """One score, or its ratio to the run's own floor; None unless both sides have it in one version."""
    found = [{one.spec.seed: score for one in own if (score := one.score(name)) and score.value is not None} for own in (a, b)]
    if not all(found) or len({score.metric_version for own in found for score in own.values()}) > 1:
        return None
    if by_floor and any(not score.floor or score.floor <= 0 for own in found for score in own.values()):
        return None
    common = [seed for seed in seeds if seed in found[0] and seed in found[1]]
    values = [
        {seed: (score.value or 0.0) / ((score.floor or 1.0) if by_floor else 1.0) for seed, score in own.items()} for own in found
    ]
    before, after = ([value for seed, value in own.items() if not common or seed in common] for own in values)
    first = next(iter(found[0].values()))
    whole = whole_of(first.unit)
    trials = 0 if by_floor else min(trials_of(own.values(), whole) for own in found)
    span = paired_interval([values[1][seed] - values[0][seed] for seed in common], trials, whole, (mean(before), mean(after)))
    better = ""
    if span is not None and (span.low > 0 or span.high < 0):
        better = "B" if (span.low > 0) == (first.direction == "higher") else "A"
    difference = mean(after) - mean(before)
    said = f"{name} / floor" if by_floor else name
    return ScoreDifference(said, first.direction, first.primary, mean(before), mean(after), len(common), difference, span, better)


def paired_interval(differences: Sequence[float], trials: int, whole: float, means: tuple[float, float]) -> Interval | None:
    """The interval of a mean difference; for shares, it is at least as wide as their binomial error."""
    found = interval(differences) if len(differences) > 1 else None
    if found is None or not trials:
        return found
    spread = math.fsum(value / whole * (1 - value / whole) for value in means)
    half = max((found.high - found.low) / 2, whole * Z * math.sqrt(spread / (len(differences) * trials)))
    return Interval(mean(differences) - half, mean(differences) + half)


def _costs(a: Sequence[Record], b: Sequence[Record], costs: Costs) -> tuple[CostRatio, ...]:
    """Costs of both: exact counts from their records, and `compbench profile`'s speeds if both were measured on one machine."""
    times = [timing(own, costs) for own in (a, b)]

    def counted(name: str) -> list[float | None]:
        return [known_mean([getattr(one.profile, name) for one in own]) for own in (a, b)]

    rows = {
        "parameters": counted("parameters"),
        "evaluations a sample": counted("evaluations_per_sample"),
        "FLOPs of the fit": [found and found.train_flops for found in times],
        "FLOPs a sample": [found and found.sample_flops for found in times],
        f"FLOPs of fit and {SAMPLES:,} samples": [found and found.flops(SAMPLES) for found in times],
        "bytes sent per silo": [found.silos.bytes_out if found and found.silos else None for found in times],
        "training steps of the server": [found.silos.server_steps if found and found.silos else None for found in times],
    }
    if times[0] and times[1] and times[0].hardware == times[1].hardware != "":
        rows["seconds per training step"] = [
            1 / t.train_steps_per_second if t and t.train_steps_per_second else None for t in times
        ]
        rows["seconds a sample"] = [1 / t.sample_samples_per_second if t and t.sample_samples_per_second else None for t in times]
    return tuple(CostRatio(name, *values) for name, values in rows.items() if any(value is not None for value in values))


def machine_differences(a: Sequence[Record], b: Sequence[Record]) -> list[str]:
    """Differences in torch and processor between two groups of runs; runs repeat bit for bit only if both are the same."""
    found = []
    for name, what in (("torch", "torch"), ("cpu", "processor")):
        ours, theirs = (", ".join(sorted({getattr(one.environment, name) for one in own} - {""})) for own in (a, b))
        if ours and theirs and ours != theirs:
            found.append(f"{what} differs: {ours} and {theirs}; other rounding moves a score of the same seed a little")
    return found


def _aside(own: Sequence[Record]) -> list[str]:
    """Why a row does not compete."""
    found = []
    if any(one.oracle for one in own):
        found.append("an oracle, which knows the task's truth")
    if any(one.pooled_silos for one in own):
        found.append(in_one_place(pooled_steps(own)))
    if any(one.samples_only for one in own):
        found.append("samples only: compbench did not see its training")
    return found


def _differences(a: Record, b: Record) -> list[str]:
    """The parts of the protocol in which two records differ."""
    names = ("task_version", "task_settings", "budget", "preset", "source", "fingerprint", "precision", "device_class")
    ours, theirs = a.spec.model_dump(mode="json"), b.spec.model_dump(mode="json")
    return [
        f"{name.replace('_', ' ')} differs: {_only(ours[name], theirs[name])} and {_only(theirs[name], ours[name])}"
        for name in names
        if ours[name] != theirs[name]
    ]


def _only(value: object, other: object) -> object:
    """The entries of an object that differ from those of the other."""
    if isinstance(value, dict) and isinstance(other, dict):
        return {key: entry for key, entry in value.items() if other.get(key) != entry}
    return value


def _title(section: Section) -> str:
    changed = f" with {', '.join(section.changed)}" if section.changed else ""
    return f"{section.task}, {section.preset}, {kind_of_data(section.source)} data{changed}"


def side_by_side(pictures: Sequence[tuple[str, bytes]]) -> bytes:
    """Sample grids next to each other with their names above, as PNG; grids of one seed come from the same noise.

    Raises:
        CompbenchError: a picture cannot be read.
    """
    from PIL import Image, ImageDraw

    opened = []
    for name, content in pictures:
        try:
            opened.append((name, Image.open(io.BytesIO(content)).convert("RGB")))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise CompbenchError(f"the picture of {name} cannot be read: {str(error)[:100]}.") from error
    gap = MARGIN // 2
    width = sum(picture.width for _, picture in opened) + gap * (len(opened) - 1)
    sheet = Image.new("RGB", (width, MARGIN + max(picture.height for _, picture in opened)), "white")
    draw, left = ImageDraw.Draw(sheet), 0
    for name, picture in opened:
        draw.text((left + 2, 5), name, fill="black")
        sheet.paste(picture, (left, MARGIN))
        left += picture.width + gap
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
