"""The board in a terminal, as plain text: one answer for each question, or one task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap

from compbench.board.families import Contest
from compbench.board.findings import findings
from compbench.board.groups import Section
from compbench.board.notation import (
    MARK,
    SMOKE,
    WORSE,
    beyond,
    by_section,
    discriminability_words,
    heading,
    number,
    open_ranks,
)
from compbench.board.row import Board, BoardRow
from compbench.board.scale import real_of
from compbench.board.verdict import MEANINGS
from compbench.board.view import (
    STATE_WORDS,
    Answer,
    Entry,
    Question,
    View,
    answer_of,
    cost,
    flop_words,
    rank_commands,
)
from compbench.store.format import clean
from compbench.system.errors import suggest

NAME, LABEL, NAMED = 24, 100, 3
"""Largest number of characters of a method's name and of a column's label, and largest number of methods that a line names."""

TWO_METHODS = "Not ranked yet: a rank needs two methods with two seeds each, better three:"

GAP, LEAST = "  ", 8
"""What separates columns, and the least width to which a column is narrowed."""


def overview(view: View, contest: Contest | None = None, width: int = 0) -> str:
    """One row for each task: methods that may be best, the score of the first, the cheapest, the verdict; then findings.

    The table is at most `width` characters wide; 0 is no limit.
    """
    if not view.questions:
        return ""
    lines = [["question", "may be best", "score of the first", "cheapest of them", "verdict"]]
    for question, answer in view.answers():
        lines.append([_title(question, answer), _best(answer), _first(answer), _cheapest(answer), answer.verdict_words])
    title = f"Methods that may be best, preset {view.preset}: no other is shown to be better. Cost: training and 10,000 samples."
    over = dict.fromkeys(
        _over(entry.row, f"{entry.row.label} on {answer.section.task}")
        for _, answer in view.answers()
        for entry in answer.entries
        if entry.row.beyond
    )
    said = [*over, *(findings(contest) if contest else ())]
    said += [f"{answer.section.task}: {answer.older}" for _, answer in view.answers() if answer.older]
    waiting = [(question, answer) for question, answer in view.answers() if answer.waits_for]
    if waiting:
        question, answer = waiting[0]
        said.append(f"Not ranked yet: {answer.waits_for}; run" if answer.missing else TWO_METHODS)
        said += [f"  {command}" for command in rank_commands(answer, view.preset, silos=question.silos)]
        others = [f"{other.section.task} ({other.waits_for})" for _, other in waiting[1:]]
        said += [f"Neither are {', '.join(others)}."] if others else []
    smoke = [SMOKE] if view.preset == "smoke" else []
    return "\n".join([title, *smoke, "", *aligned(lines, width), "", *_verdicts(view), *said])


def _verdicts(view: View) -> list[str]:
    """The meanings of the verdicts in a view."""
    met = {answer.verdict for _, answer in view.answers()}
    return [f"{word}: {meaning}." for word, meaning in MEANINGS.items() if word in met]


def _title(question: Question, answer: Answer) -> str:
    return f"{question.asked.title}, {answer.label}" if answer.label else question.asked.title


def _best(answer: Answer) -> str:
    names = [_marked(clean(entry.row.method)[:NAME], entry.row.beyond) for entry in answer.best]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    if not names:
        return "none stands out" if answer.alike else "not ranked yet"
    return f"{', '.join(names[:NAMED])}{more} of {len(answer.competing)}"


def _first(answer: Answer) -> str:
    first = next(iter(answer.best or answer.entries), None)
    name = "" if first is None or answer.best else f"{clean(first.row.method)[:NAME]}: "
    return "" if first is None else f"{name}{first.score}, real {answer.real or '?'}"


def _cheapest(answer: Answer) -> str:
    found = answer.cheapest
    return "?" if found is None else f"{clean(found.row.method)[:NAME]}, {found.cost_words}"


def _over(row: BoardRow, who: str) -> str:
    return f"{MARK} {clean(who)} went {clean(beyond(row))}"


def _marked(name: str, over: Sequence[object]) -> str:
    return f"{name} {MARK}" if over else name


def task_board(board: Board, task: str, width: int = 0) -> str:
    """The boards of one task: rank, score next to that of real data, interval, cost, seeds; tables of at most `width` characters.

    Raises:
        CompbenchError: there is no record of such a task.
    """
    sections = by_section(board.rows)
    chosen = {section: rows for section, rows in sections.items() if section.task == task}
    if not chosen:
        raise suggest("task with records", task, sorted({section.task for section in sections}), listed=False)
    return "\n\n".join(_section(section, rows, list(sections), board, width) for section, rows in chosen.items())


def _section(section: Section, rows: Sequence[BoardRow], among: Sequence[Section], board: Board, width: int) -> str:
    primary = rows[0].primary.replace("_", " ")
    lines = [["rank", "method", primary, "95 % interval", "cost", "may be best", "seeds"]]
    answer = answer_of(section, rows, board)
    entries = {id(entry.row): entry for entry in answer.entries}
    lines += [_row(row, entries.get(id(row))) for row in rows]
    words = discriminability_words(board.discriminability.get(section), board.missing.get(section, ()))
    said = [clean(answer.crossing.words)] if answer.crossing else []
    said += [*_marks(rows), *(_over(row, row.label) for row in rows if row.beyond)]
    smoke, meaning = [SMOKE] if section.preset == "smoke" else [], [clean(answer.meaning)] if answer.meaning else []
    return "\n".join(
        [clean(heading(section, among)), *smoke, words, *meaning, "", *aligned(lines, width), *(["", *said] if said else [])]
    )


def _marks(rows: Sequence[BoardRow]) -> list[str]:
    """One line for the rows whose fits failed, and one for those that are worse than ignoring the request."""
    found: dict[str, list[str]] = {}
    for row in rows:
        marks = [row.fits.words if row.fits and row.kind != "ablation" else "", WORSE if row.worse_than_constant else ""]
        for mark in filter(None, marks):
            found.setdefault(mark, []).append(clean(row.label)[:LABEL])
    return [f"{mark}: {', '.join(labels)}" for mark, labels in sorted(found.items())]


def _row(row: BoardRow, entry: Entry | None) -> list[str]:
    cell = row.scores.get(row.primary)
    rank = open_ranks(row.rank) or {"run": "-", "ablation": "ablation", "reference": "reference"}[row.kind]
    span = f"{number(cell.interval.low)} to {number(cell.interval.high)}" if cell and cell.interval else ""
    value = "; ".join(row.statuses) if cell is None else number(cell.mean)
    real = real_of(cell) if cell else None
    value += f" / {number(real)}" if real is not None else ""
    seeds = f"{len(row.seeds)}/{sum(row.statuses.values())}"
    label = clean(row.label)
    name = _marked(label if len(label) <= LABEL else f"{label[: LABEL - 1]}…", row.beyond)
    best = {"best": "yes", "worse": "no"}.get(entry.state, STATE_WORDS[entry.state]) if entry else ""
    return [rank, name, value, span, flop_words(cost(row)), best, seeds]


def aligned(lines: Sequence[Sequence[str]], width: int = 0) -> list[str]:
    """Columns of equal width, one line for each row.

    If they are wider than `width`, the widest columns are narrowed, to `LEAST` characters at the least, and their cells take
    several lines; words stay whole where they fit.  0 is no limit.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while width and sum(widths) + len(GAP) * (len(widths) - 1) > width and max(widths) > LEAST:
        widths[widths.index(max(widths))] -= 1
    found = []
    for line in lines:
        cells = [wrap(cell, width) if len(cell) > width else [cell] for cell, width in zip(line, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            found.append(GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return found
