"""Write docs/results/unasked.md: what sealed holdouts, shots, tuned settings and the structure of networks say, from the records.

A section is left out if there is no record for it.  Every number in a sentence comes from the records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from claims import rows
from results_sentences import listed, percent
from structure import VALUES, Correlation, Run, correlation, figure, of_records, points

from compbench.api.schemas import Record
from compbench.board.groups import SEALED, Section
from compbench.board.render_shots import TITLE, sentences
from compbench.board.row import BoardRow
from compbench.board.sealed_drops import Drop, drops
from compbench.board.shot_prices import REFERENCE, Prices, prices
from compbench.board.statistics import interval, mean, welch
from compbench.board.verdict import LEARNT, Verdict
from compbench.system.errors import CompbenchError

PAGE, FIGURE = "unasked.md", "structure.svg"
LONG = re.compile(r"\d+\.\d{4,}")
"""A number with more digits than a reader needs."""
NEITHER = "in none of these pairs is the order significant both before and after tuning"


def unasked(
    found: Sequence[BoardRow], records: Sequence[Record], command: str, verdicts: Mapping[Section, Verdict]
) -> dict[str, str]:
    """The page and its figure by name; {} if there is no record for any of the four questions.

    Args:
        found: all rows of the board.
        records: the records of these rows.
        command: the comment at the top, which names the command that writes the page.
        verdicts: whether some method has learnt the seen combinations of a section.
    """
    runs = of_records(records)
    priced = prices(found)
    hidden = [row.section for row in found if SEALED in row.section.changed]
    dated = [(sealed(drops(found)), hidden), (shots(priced, verdicts), [one.section for one in priced])]
    parts = [*(f"{text}{aged(own, found)}" if text else "" for text, own in dated), tuned(found), structured(runs)]
    if not any(parts):
        return {}
    head = ("# Results: sealed holdouts, shots, tuning and structure", command)
    texts = {PAGE: "\n\n".join(part for part in (*head, *parts) if part) + "\n"}
    return {**texts, FIGURE: figure(runs)} if parts[-1] else texts


def aged(own: Sequence[Section], found: Sequence[BoardRow]) -> str:
    """A paragraph that names the sections with an older version of their task than other rows have; "" if there is none."""
    newest: dict[str, int] = {}
    for section in (row.section for row in found):
        newest[section.task] = max(section.task_version, newest.get(section.task, 0))
    older = sorted({(one.task, one.task_version) for one in own if newest[one.task] > one.task_version})
    told = listed([f"{task} (version {version}, now {newest[task]})" for task, version in older])
    return f"\n\nSome of these runs have an older version of their task: {told}." if told else ""


# -- sealed holdouts


def sealed(found: Sequence[Drop]) -> str:
    """How many of the drops from the public to the sealed holdout have an interval that contains 0, and a table of all drops."""
    parts = [(one, *one.interval) for one in found if one.interval is not None]
    if not parts:
        return ""
    kept = [one for one, low, high in parts if low <= 0 <= high]
    fell = [f"`{one.method}` on {one.task} loses {one.drop:.2f}" for one, low, _ in parts if low > 0]
    rose = [f"`{one.method}` on {one.task} gains {-one.drop:.2f}" for one, _, high in parts if high < 0]
    easier = (
        " Few patterns are possible on shapes3d-medium, and some of these are easier than the public one "
        "([why](../investigations/sealed-checkerboard.md))."
    )
    said = (
        "A hash of the method's code, its settings, the task and the seed renames the values of the public holdout, which gives "
        f"the sealed one ([how](../sealed.md)). The 95 % interval of the drop, not corrected for {len(parts)} intervals, "
        f"contains zero for {len(kept)} of {len(parts)} pairs of method and task"
        f"{'; ' + '; '.join([*fell, *rose]) if fell or rose else ''}."
        f"{easier if any(one.task == 'shapes3d-medium' and high < 0 for one, _, high in parts) else ''}"
    )
    names = ["task", "preset", "method", "public", "sealed", "drop", "interval of the drop", "runs"]
    table = [
        [
            *(one.task, one.preset, f"`{one.method}`", f"{one.public:.3f}", f"{one.sealed:.3f}", f"{one.drop:+.3f}"),
            *(f"{low:+.3f} to {high:+.3f}", f"{one.runs[0]}, {one.runs[1]}"),
        ]
        for one, low, high in parts
    ]
    return "\n\n".join(["## Sealed holdouts", said, rows([names, *table])])


# -- shots


def shots(found: Sequence[Prices], verdicts: Mapping[Section, Verdict]) -> str:
    """The worth of composition without examples, and the score of each method over the number of shots."""
    if not found:
        return ""
    said = (
        f"Some real examples of each held-out cell, the *shots*, join the training data ([how](../shots.md)). `{REFERENCE}` is "
        "one network for whole conditions, without a rule of composition, though it answers unseen combinations too. The number "
        "of shots at which it reaches another method's score without shots is what that method's lead is worth, interpolated "
        "between the numbers that were run. The steps are the preset's whatever the number of shots, and all cells are drawn "
        f"equally often, so seen cells are drawn less often with shots; the last row has what `{REFERENCE}` scores on them."
    )
    parts = [f"## {TITLE}", said]
    for one in found:
        counts = sorted({count for curve in one.curves.values() for count in curve})
        names = ["method", *(f"{count} shot{'' if count == 1 else 's'}" for count in counts)]
        table = [[f"`{name}`", *(_mean(curve.get(count)) for count in counts)] for name, curve in one.curves.items()]
        if (curve := one.curves.get(REFERENCE)) is not None:
            table.append([f"`{REFERENCE}`, seen cells", *(_mean(curve.get(count), seen=True) for count in counts)])
        parts += [f"### {one.section.task}, {one.section.preset}", rows([names, *table])]
        parts += ["\n".join(f"- {words}." for words in sentences(one))]
        verdict = verdicts.get(one.section)
        if verdict is not None and verdict.unlearnt is not None:
            parts += [
                f"At this preset no method has {percent(LEARNT)} of real data's score on seen cells without shots (at best "
                f"{percent(verdict.unlearnt)}), so these scores also measure how far the fits got."
            ]
    return "\n\n".join(part for part in parts if part)


def _mean(row: BoardRow | None, *, seen: bool = False) -> str:
    """Mean and number of seeds of the primary score, or of it on seen combinations; "-" if it was not run or not scored."""
    cell = row and (row.seen if seen else row.scores.get(row.primary))
    return f"{cell.mean:.3f} ({cell.num_seeds})" if cell else "-"


# -- tuned settings


class Pair(NamedTuple):
    """A method's competing row, at its default settings, and its row at the settings that a study chose."""

    default: BoardRow
    tuned: BoardRow

    def values(self, *, tuned: bool) -> list[float]:
        """The primary score of each seed that both rows have, with its sign changed where lower is better."""
        cells = [row.scores[row.primary] for row in self]
        common = {seed for seed, _ in cells[0].values} & {seed for seed, _ in cells[1].values}
        sign = 1 if cells[0].direction == "higher" else -1
        return [sign * value for seed, value in cells[tuned].values if seed in common]


def tuned_pairs(found: Sequence[BoardRow]) -> dict[Section, list[Pair]]:
    """Rows that were tuned, with the competing row of the same version of their method, by section."""
    usual = {(row.section, row.method, row.method_version): row for row in found if row.kind == "run"}
    pairs: dict[Section, list[Pair]] = {}
    for row in found:
        default = usual.get((row.section, row.method, row.method_version))
        if row.tuned and default and row.primary == default.primary and row.primary in {*row.scores} & {*default.scores}:
            pairs.setdefault(row.section, []).append(Pair(default, row))
    return pairs


def tuned(found: Sequence[BoardRow]) -> str:
    """Scores at default and at tuned settings, what tuning took, and whether the order of the methods is another one."""
    pairs = tuned_pairs(found)
    if not pairs:
        return ""
    said = (
        "`compbench tune` chose these settings on combinations that it held out among the seen ones, never on the task's own "
        "holdout ([how](../tuning.md)). Means are over the seeds that both have. The interval is of the tuned score minus the "
        "default one, paired by seed, not corrected for the number of rows."
    )
    parts = ["## Tuned settings", said]
    for section, ones in pairs.items():
        names = ["method", "default", "tuned", "interval of the difference", "seeds", "trials", "CPU seconds", "tuned settings"]
        table = [_tuned_line(one) for one in sorted(ones, key=lambda one: -mean(one.values(tuned=False)))]
        column = ones[0].default.primary
        direction = ones[0].default.scores[column].direction
        parts += [f"### {section.task}, {section.preset}: {column}, {direction} is better", rows([names, *table]), _order(ones)]
        if not any(one.tuned.tuned.num_cells for one in ones if one.tuned.tuned):
            parts.append("No seen combination could be held out here, so trials were compared on seen ones.")
    return "\n\n".join(part for part in parts if part)


def _tuned_line(one: Pair) -> list[str]:
    before, after = ([abs(value) for value in one.values(tuned=how)] for how in (False, True))
    between = interval([b - a for a, b in zip(before, after, strict=True)])
    study, failed = one.tuned.tuned, sum(one.tuned.statuses.values()) - one.tuned.statuses.get("ok", 0)
    assert study is not None
    return [
        *(f"`{one.default.method}`", f"{mean(before):.3f}", f"{mean(after):.3f}"),
        f"{between.low:+.3f} to {between.high:+.3f}" if between else "one run",
        f"{len(after)}{f', {failed} failed' if failed else ''}",
        *(str(study.trials), f"{study.cpu_seconds:.0f}"),
        LONG.sub(lambda found: f"{float(found.group()):.2g}", one.tuned.variant),
    ]


def _order(ones: Sequence[Pair]) -> str:
    """Which pairs of methods change places when all are tuned, and whether both orders are significant; "" for one method."""
    if len(ones) < 2:
        return ""
    swapped, shown = [], 0
    for first, second in combinations(sorted(ones, key=lambda one: -mean(one.values(tuned=False))), 2):
        if mean(first.values(tuned=True)) >= mean(second.values(tuned=True)):
            continue
        swapped.append(f"`{second.default.method}` and `{first.default.method}`")
        before, after = (welch(first.values(tuned=how), second.values(tuned=how)) for how in (False, True))
        shown += bool(before and after and before.low > 0 > after.high)
    many = len(ones) * (len(ones) - 1) // 2
    if not swapped:
        return f"The order of the means is the same with tuned settings, in all of {many} pairs of methods."
    sure = f"in {shown} of these pairs both orders are significant at 95 %, uncorrected" if shown else NEITHER
    return f"{len(swapped)} of {many} pairs of methods change places when both are tuned ({listed(swapped)}); {sure}."


# -- structure


def structured(runs: Sequence[Run]) -> str:
    """Spearman's correlations of structure and share attained, over all runs and within tasks; "" if runs are too few."""
    table = [["structure", "runs", "correlation", "interval", "number of runs", "pairs of method and task"]]
    told = []
    try:
        for name, of in VALUES:
            for how, within in (("all", False), ("within tasks", True)):
                one = correlation(points(runs, of, within=within))
                table.append([name, how, f"{one.value:+.2f}", _span(one), str(one.num_runs), str(one.num_pairs)])
                if within and one.low * one.high > 0:
                    told.append(f"a larger {name} goes with a {'larger' if one.value > 0 else 'smaller'} share")
    except CompbenchError:
        return ""
    verdict = f"Within tasks, {' and '.join(told)}." if told else "Within tasks, neither predicts it."
    used = [run for run in runs if any(of(run) is not None for _, of in VALUES)]
    presets = Counter(run.preset for run in used)
    made = f"The runs are of {listed(sorted({run.task for run in used}))}, at {_presets(presets)}."
    said = (
        "The structure of a trained network is measured on seen cells alone ([how](../hidden_structure.md)), and compared with "
        f"the share attained on held-out cells. {verdict} Theory predicts a larger share for a larger R2. {made} Methods also "
        "sample in different ways, so a correlation over methods is not one over networks alone. The correlation is Spearman's, "
        "and its interval is a bootstrap over pairs of method and task."
    )
    return "\n\n".join(["## Does structure predict composition?", said, rows(table), f"![structure and share]({FIGURE})"])


def _presets(counts: Mapping[str, int]) -> str:
    return listed([f"`{preset}` ({count})" for preset, count in counts.items()])


def _span(one: Correlation) -> str:
    return f"{one.low:+.2f} to {one.high:+.2f}"
