"""The overall board as CSV, Markdown and a part of the page: what is missing or failed stands there as that."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compbench.board.notation import heading, number, spread
from compbench.board.overall import Attained, Contender, Contest, Pair
from compbench.board.ranks import Rank
from compbench.board.render_csv import exact
from compbench.board.render_markdown import escape, line
from compbench.board.render_svg import profiles
from compbench.board.statistics import Interval
from compbench.store.text import clean, text

TEMPLATE = Path(__file__).with_name("overall.html.jinja")

HEADER = ("preset", "source", "kind", "method", "variant", "rank", "rank_best", "rank_worst", "task", "task_version",
          "fingerprint", "state", "num_ok", "num_runs", "score", "mean", "share_attained", "low", "high",
          "share_attained_on_own_tasks", "num_tasks", "note")  # fmt: skip
PAIRS = ("preset", "source", "one", "other", "num_tasks", "probability_of_improvement", "probability_low", "probability_high",
         "num_paired_tasks", "difference", "difference_low", "difference_high")  # fmt: skip

MISSING = "\u2013"

PREAMBLE = """Tables over all tasks show the share attained of what real data attain: score / ceiling of an accuracy, noise
floor / score of a distance, at most 1. *All tasks* is its interquartile mean over every task of the table, *own tasks* over
those that the method ran. A failed or refused task counts 0. So does one that nobody ran (a dash), but bounds and rank ranges
leave that open, as they do where a task has one seed only. In brackets: a reference there, which does not compete.
"""


def overall_csv(contests: Sequence[Contest]) -> str:
    """One line a contender with task `all`, then one for each of its tasks, missing ones too."""
    lines = []
    for contest in contests:
        for one in contest.contenders:
            head = {"preset": contest.preset, "source": contest.source, "kind": one.kind}
            head |= {"method": text(one.method), "variant": text(one.variant)}
            lines.append(head | _total(one))
            for section, cell in zip(contest.sections, one.cells, strict=True):
                where = {"task": section.task, "task_version": section.task_version, "fingerprint": text(section.fingerprint)}
                lines.append(head | where | _cell(cell))
    return _csv(HEADER, lines)


def _total(one: Contender) -> dict[str, Any]:
    rank = dict(zip(("rank", "rank_best", "rank_worst"), one.rank, strict=True)) if one.rank else {}
    return rank | {
        "task": "all",
        "share_attained": exact(one.total),
        "share_attained_on_own_tasks": exact(one.own),
        "num_tasks": one.num_counted,
        **_ends("low", "high", one.bounds),
    }


def _cell(cell: Attained) -> dict[str, Any]:
    found: dict[str, Any] = {"state": cell.state, "note": text(cell.reason)}
    if cell.shares:
        found["share_attained"] = exact(cell.share)
    if cell.row is None:
        return found
    score = cell.row.scores.get(cell.row.primary)
    found |= {"num_ok": len(cell.row.seeds), "num_runs": sum(cell.row.statuses.values())}
    return found | ({"score": cell.row.primary, "mean": exact(score.mean)} if score else {})


def pairs_csv(contests: Sequence[Contest]) -> str:
    """The first contenders of each contest, pair by pair."""
    return _csv(PAIRS, [_pair(contest, pair) for contest in contests for pair in contest.pairs])


def _csv(header: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> str:
    output = io.StringIO()
    writer = csv.DictWriter(output, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return output.getvalue()


def _pair(contest: Contest, pair: Pair) -> dict[str, Any]:
    return {
        "preset": contest.preset,
        "source": contest.source,
        "one": text(pair.one),
        "other": text(pair.other),
        "num_tasks": pair.num_tasks,
        "probability_of_improvement": exact(pair.probability),
        **_ends("probability_low", "probability_high", pair.probability_interval),
        "num_paired_tasks": pair.num_paired,
        "difference": exact(pair.difference),
        **_ends("difference_low", "difference_high", pair.difference_interval),
    }


def _ends(low: str, high: str, interval: Interval | None) -> dict[str, str]:
    return {low: exact(interval.low), high: exact(interval.high)} if interval else {}


def overall_markdown(contests: Sequence[Contest], *, chart: str = "") -> str:
    """A section a contest: the table, then the probability that a row beats a column."""
    parts = [PREAMBLE] if contests else []
    for contest in contests:
        parts.append(f"## All tasks: {contest.preset}, {contest.source} data\n")
        tasks = [escape(heading(section, contest.sections).split(", ")[0]) for section in contest.sections]
        rows = [["rank", "method", "tasks", "**all tasks**", "own tasks", *tasks]]
        rows.append(["---"] * len(rows[0]))
        rows += [_row(one) for one in contest.contenders]
        parts.append("\n".join(map(line, rows)) + "\n")
        if contest.left_out:
            parts.append(f"Left out: {escape('; '.join(contest.left_out))}.\n")
        if contest.pairs:
            parts.append("Probability that a run of the row beats a run of the column, over the tasks that both ran:\n")
            parts.append("\n".join(map(line, _matrix(contest.pairs))) + "\n")
    if chart and parts:
        parts.append(f"![share of the tasks on which a method attains at least so much]({chart})\n")
    return "\n".join(parts)


def _row(one: Contender) -> list[str]:
    return [
        "*ref*" if one.rank is None else f"{one.rank.rank} ({ranks_in_words(one.rank)})",
        escape(one.label),
        f"{one.num_counted}/{len(one.cells)}",
        "" if one.rank is None else f"**{two(one.total)}**{bounds(one.bounds)}",
        two(one.own),
        *(in_words(cell) for cell in one.cells),
    ]


def _matrix(pairs: Sequence[Pair]) -> list[list[str]]:
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.one, pair.other)))
    known = matrix(pairs)
    header = [["", *map(escape, names)], ["---"] * (len(names) + 1)]
    return header + [[escape(row), *(two(known.get((row, name))) for name in names)] for row in names]


def matrix(pairs: Sequence[Pair]) -> dict[tuple[str, str], float]:
    """Probability of improvement in both directions."""
    there = {(pair.one, pair.other): pair.probability for pair in pairs}
    return there | {(other, one): 1 - probability for (one, other), probability in there.items()}


def in_words(cell: Attained) -> str:
    """A cell of the table; a reference's share stands in brackets, a dash says that nobody ran it."""
    if cell.state == "missing":
        return MISSING
    if cell.state == "reference":
        return f"({two(cell.share)})" if cell.shares else "(failed)"
    if cell.state == "partly failed" and cell.row is not None:
        return f"{two(cell.share)} ({len(cell.row.seeds)} of {len(cell.shares)} ran)"
    return two(cell.share) if cell.state == "ok" else "n/a" if cell.state == "no score" else cell.state


def explained(cell: Attained) -> str:
    """What stands behind a cell: the score itself, and why there is none."""
    if cell.row is None:
        return "nobody ran it"
    score = cell.row.scores.get(cell.row.primary)
    words = []
    if score:
        beside = f" ± {spread(score.std, score.mean)}" if score.num_seeds > 1 else ""
        words.append(f"{cell.row.primary.replace('_', ' ')} {number(score.mean)}{beside}")
    words.append(f"{len(cell.row.seeds)} of {sum(cell.row.statuses.values())} runs ok")
    if cell.state == "reference":
        words.append("a reference here: does not compete")
    return clean("; ".join([*words, *([cell.reason] if cell.reason else [])]))


def overall_html(contests: Sequence[Contest]) -> str:
    """The part of the page; names and reasons are escaped by the template."""
    import jinja2
    import markupsafe

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    words = {"two": two, "bounds": bounds, "ranks": ranks_in_words, "in_words": in_words, "explained": explained, "clean": clean}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"), globals=words)
    boards = [_facts(contest) for contest in contests]
    return template.render(boards=[board | {"chart": markupsafe.Markup(board["chart"])} for board in boards])


def _facts(contest: Contest) -> dict[str, Any]:
    return {
        "preset": contest.preset,
        "source": contest.source,
        "tasks": [heading(section, contest.sections).split(", ")[0] for section in contest.sections],
        "contenders": contest.contenders,
        "names": list(dict.fromkeys(name for pair in contest.pairs for name in (pair.one, pair.other))),
        "matrix": matrix(contest.pairs),
        "pairs": {(pair.one, pair.other): _pair_in_words(pair) for pair in contest.pairs},
        "left_out": [clean(entry) for entry in contest.left_out],
        "chart": profiles([contest]),
    }


def _pair_in_words(pair: Pair) -> str:
    between = f", 95 % interval{bounds(pair.probability_interval)}" if pair.probability_interval else ""
    words = f"over {pair.num_tasks} task{'' if pair.num_tasks == 1 else 's'}{between}"
    if pair.difference is not None:
        words += f"; at the same seeds it attains {pair.difference:+.2f}{bounds(pair.difference_interval)} of the other's"
    return words


def two(value: float | None) -> str:
    """Two decimals: no share is known better."""
    return "" if value is None else f"{value:.2f}"


def bounds(interval: Interval | None) -> str:
    return "" if interval is None else f" ({two(interval.low)} to {two(interval.high)})"


def ranks_in_words(rank: Rank) -> str:
    return str(rank.best) if rank.best == rank.worst else f"{rank.best}-{rank.worst}"
