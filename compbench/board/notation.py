"""How a board prints numbers, ranks, notes and columns; Markdown and the page use the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compbench.board.discriminability import Discriminability
from compbench.board.families import Standing
from compbench.board.groups import Section
from compbench.board.papers import PaperFigure
from compbench.board.ranking import Rank
from compbench.board.row import USUAL, BoardRow, Failure
from compbench.registry.declared import kind_of_data
from compbench.registry.meaning import UNKNOWN
from compbench.store.conditions import UNCOUNTED
from compbench.store.format import clean
from compbench.store.verification import SAMPLES_ONLY

SPLITS = ("heldout", "all", "seen", "none")
SPLIT_TITLES = {
    "heldout": "held-out combinations",
    "all": "all combinations",
    "seen": "seen combinations",
    "none": "",
}

MARGINAL = frozenset({"fd_imagenet", "fd_judge", "fid", "fwd", "kid", "precision", "recall"})
"""Metrics between sets of pictures, pooled over all combinations of a split: they hardly depend on what was requested."""


WORSE = "worse than ignoring the request"
"""The remark on a score that is worse than the best constant answer's."""


class Column(NamedTuple):
    """A score's column.  `detail` columns are shown on demand; `reason` says why a column is empty."""

    key: str
    title: str
    split: str
    direction: str
    unit: str
    primary: bool
    detail: bool
    reason: str


def columns(rows: Sequence[BoardRow], figures: Sequence[PaperFigure]) -> tuple[Column, ...]:
    """The score columns of a section: primary first, then by split, then by name.

    A column without a value in any row has a reason, unless a paper's figure fills it.
    """
    cells = {key: cell for row in rows for key, cell in row.scores.items()}
    reasons = {key: reason for row in rows for key, reason in row.unavailable.items()}
    reported = {figure.score for figure in figures}
    primary = rows[0].primary if rows else ""
    keys = cells.keys() | reasons.keys()
    made = []
    for key in keys:
        cell = cells.get(key)
        name = key.split("@")[0]
        split = cell.split if cell else next((known for known in SPLITS if name.startswith(f"{known}_")), "none")
        made.append(
            Column(
                key=key,
                title=_title(key, split),
                split=split,
                direction=cell.direction if cell else "",
                unit=clean(cell.unit) if cell else "",
                primary=key == primary,
                detail=_is_detail(name, keys),
                reason="" if cell or name in reported else clean(reasons[key]) or "no reason given",
            )
        )
    return tuple(sorted(made, key=lambda c: (not c.primary, SPLITS.index(c.split), c.detail, c.key)))


def _title(key: str, split: str) -> str:
    name, _, version = key.partition("@")
    words = name.removeprefix(f"{split}_")
    words = ("marginal " if words in MARGINAL else "") + words.replace("_", " ")
    return f"{words} ({version})" if version else words


def _is_detail(name: str, names: Sequence[str] | set[str]) -> bool:
    """Whether a score refines another: accuracy_wall_hue refines accuracy, but accuracy_seen_judge is a separate score."""
    return not name.endswith("_judge") and any(name.startswith(f"{other}_") for other in names)


def number(value: float | None) -> str:
    """Three decimals below ten, three significant digits above; two significant digits where three decimals would be zeros."""
    if value is None:
        return ""
    size = abs(value)
    if size >= 1e6:
        return f"{value:.2e}"
    if 0 < size < 0.0095:
        return f"{value:.2g}"
    if size < 10:
        return f"{value:.3f}"
    return f"{value:.{max(0, 3 - len(str(int(size))))}f}" if size < 1000 else f"{value:,.0f}"


def spread(std: float, around: float) -> str:
    """A standard deviation with as many decimals as the mean next to it."""
    text = number(around)
    if "e" in text:
        return f"{std:.1e}"
    return f"{std:.{len(text.partition('.')[2])}f}"


def count(value: float | None) -> str:
    """Parameters, bytes, operations: 1.52 M."""
    if value is None:
        return ""
    for limit, letter in ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:.2f}{letter}"
    return f"{value:.0f}"


def operations(value: float) -> str:
    """Operations: 1.52 GFLOP; 0 FLOP."""
    number, _, letter = count(value).partition(" ")
    return f"{number} {letter}FLOP"


def duration(seconds: float | None) -> str:
    """A duration in words: 12.3 s, 4.5 min or 6.7 h; "" if it is not known."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def open_ranks(rank: Rank | None) -> str:
    """The ranks that the comparisons leave open, as in 1-3; one number if they leave only one open; "" without a rank."""
    if rank is None:
        return ""
    return str(rank.best) if rank.best == rank.worst else f"{rank.best}-{rank.worst}"


def standing_words(found: Standing, num_tasks: int) -> str:
    """An aggregate score in words: 0.71 (0.66 to 0.75), or 0.71 on 3 of 6 if it is incomplete."""
    text = share_words(found.mean)
    if found.num_tasks < num_tasks:
        return f"{text} on {found.num_tasks} of {num_tasks}"
    if found.interval is None:
        return f"{text} (one seed)" if found.state == "one seed" else text
    return f"{text} ({share_words(found.interval.low)} to {share_words(found.interval.high)})"


def share_words(share: float) -> str:
    """A share attained with two decimals; a small loss is 0.00 and not -0.00."""
    return f"{round(share, 2) + 0.0:.2f}"


def discriminability_words(found: Discriminability | None, missing: Sequence[str] = ()) -> str:
    """A sentence that says how well a task separates methods; before it, the methods that the task needs before it ranks."""
    if missing:
        known = f" {discriminability_words(found)}" if found else ""
        return f"Not ranked yet: it lacks {', '.join(missing)} with two seeds each.{known}"
    if found is None:
        return "It is not known yet how well this task separates methods: two methods with two seeds each are needed."
    share = f"{found.share:.2f} ({found.low:.2f} to {found.high:.2f})"
    of = f"of the variance is between methods ({found.num_methods} methods, {found.num_seeds} seeds)"
    return f"{share} {of}." if found.ranks else f"Does not rank at this preset: {share} {of}."


def failure(entry: Failure) -> str:
    """timeout (seeds 1, 2): no progress for 60 s."""
    seeds = f"seed{'' if len(entry.seeds) == 1 else 's'} {', '.join(map(str, entry.seeds))}"
    return f"{entry.status} ({seeds}): {clean(entry.reason) or 'no reason given'}"


def reference(row: BoardRow) -> str:
    """The name for a row that does not compete."""
    return SAMPLES_ONLY if row.level == SAMPLES_ONLY else "centralised reference" if row.pooled else "reference"


def in_one_place(steps: float) -> str:
    """The note on a centralised reference, with its training steps in units of one silo's steps (0: not known)."""
    found = "had the data of all silos in one place"
    if not steps:
        return found
    return f"{found}, and the steps of {'one silo' if steps <= 1 else f'{steps:.3g} silos'}"


def notes(row: BoardRow) -> tuple[str, ...]:
    """Notes that a reader of a row needs in addition to its numbers and failures."""
    found = []
    if row.kind == "reference":
        why = "trained on other data too" if row.training == "external" else "an oracle"
        why = "ignores the request" if row.ignores_request else why
        why = in_one_place(row.pooled_steps) if row.pooled else why
        why = "compbench did not see its training" if row.level == SAMPLES_ONLY else why
        found.append(f"{reference(row)}: {why}; does not compete")
    if row.beyond:
        found.append(beyond(row))
    if row.tuned:
        cost = f"{count(row.tuned.train_flops)}FLOP of training"
        found.append(f"tuned in {row.tuned.trials} trials by the {row.tuned.objective}, which took {cost}")
    found += row.untrained
    if row.uncounted:
        found.append(UNCOUNTED)
    if row.size:
        found.append(f"{row.size:.2g} times the parameters of {USUAL[0]}")
    if row.draws_means:
        found.append(f"draws means: its recall is {row.recall or 0:.2f} of real data's; not eligible for first")
    if row.worse_than_constant:
        found.append(WORSE)
    if row.fits and row.fits.words:
        found.append(row.fits.words)
    if row.unrecovered_spikes:
        found.append(f"unstable fit, its loss did not recover: {'; '.join(row.unrecovered_spikes)}")
    if row.kind == "run" and not row.rank and len(row.seeds) == 1:
        found.append("one seed: not ranked")
    if row.codes > 1:
        found.append(f"runs of {row.codes} versions of the code")
    if row.newer_version:
        found.append(f"version {row.method_version} of the method, whose newest is {row.newer_version}")
    if row.older:
        found.append(older(row.older))
    if row.other_judge:
        found.append(
            f"another judge's features, comparable only as multiples of real data's: seed {', '.join(map(str, row.other_judge))}"
        )
    if len(row.threads) > 1:
        found.append(f"runs with {' and '.join(map(str, row.threads))} threads")
    return tuple(found)


SMOKE = "Preset smoke only tests that a run works: its scores mean nothing."
BARS = (
    "Ranks come from a test that compares methods seed by seed over the whole table, and each bar is of one method alone. So "
    "methods whose bars are apart may both be the best, and methods whose bars overlap may differ significantly."
)

MARK = "(!)"
"""This mark stands next to a method that exceeded its budget."""


def beyond(row: BoardRow) -> str:
    """How far a row's runs exceeded their budget."""
    return f"beyond its budget: {'; '.join(row.beyond)}"


def older(parts: Sequence[str]) -> str:
    """The mark of a row whose code is older."""
    known = [part for part in parts if part != UNKNOWN]
    return f"older code: {', '.join(known)} changed since" if known else "older code: how much of it changed since is not known"


def heading(section: Section, among: Sequence[Section]) -> str:
    """The section in words, with all changes; version and fingerprint only if they distinguish it from another section."""
    parts = [section.task]
    versions = {other.task_version for other in among if other.task == section.task}
    if versions - {1}:
        parts[0] += f" v{section.task_version}"
    parts += [protocol(section), f"{kind_of_data(section.source)} data"]
    if any(other != section and other._replace(fingerprint="") == section._replace(fingerprint="") for other in among):
        parts.append(clean(section.fingerprint))
    return ", ".join(parts)


def protocol(section: Section) -> str:
    """The preset and its changes; a changed preset must not be mistaken for the plain one."""
    return f"{section.preset} with {', '.join(map(clean, section.changed))}" if section.changed else section.preset


def by_section(rows: Sequence[BoardRow]) -> dict[Section, list[BoardRow]]:
    """Rows of each section, in the order of the rows."""
    found: dict[Section, list[BoardRow]] = {}
    for row in rows:
        found.setdefault(row.section, []).append(row)
    return found
