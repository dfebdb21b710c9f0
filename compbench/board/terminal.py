"""The board in a terminal: the matrix of methods by families, or one task, as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from compbench.board.families import Contest, Family, Standing
from compbench.board.findings import findings
from compbench.board.groups import Section
from compbench.board.notation import MARK, beyond, by_section, count, discriminability_words, heading, number, open_ranks
from compbench.board.page_families import default_contest
from compbench.board.row import Board, BoardRow
from compbench.store.text import clean
from compbench.system.errors import suggest

NAME, LABEL = 24, 100
"""Largest number of characters of a method's name, and of a column's label."""


def overview(contests: Sequence[Contest]) -> str:
    """The matrix of the contest that says most: share attained and open ranks; "" without one."""
    contest = contests[default_contest(contests)] if contests else None
    families = [family for family in contest.families if family.sections] if contest else []
    if contest is None or not families:
        return ""
    spent = _spent(families)
    lines = [["method", *(f"{family.name} ({len(family.sections)})" for family in families)]]
    for method in contest.methods:
        cells = [_cell(family.standings.get(method), len(family.sections)) for family in families]
        if any(cells):
            lines.append([_marked(clean(method[0])[:NAME], spent.get(method, [])), *cells])
    left = [f"not counted: {task}: {why}" for family in contest.families for task, why in family.aside]
    title = (
        f"Share attained by family of tasks, preset {contest.preset}; in brackets the ranks left open, - unranked, * reference"
    )
    over = [line for own in spent.values() for line in own]
    return "\n".join([title, "", *aligned(lines), "", *over, *left, *findings(contest)])


def _spent(families: Sequence[Family]) -> dict[tuple[str, str], list[str]]:
    """Of each method: what its runs took beyond their budgets, a line a task."""
    found: dict[tuple[str, str], list[str]] = {}
    for family in families:
        for method, standing in family.standings.items():
            for row in standing.rows:
                if row.beyond:
                    found.setdefault(method, []).append(_over(row, f"{row.label} on {row.section.task}"))
    return found


def _over(row: BoardRow, who: str) -> str:
    return f"{MARK} {clean(who)} went {clean(beyond(row))}"


def _marked(name: str, over: Sequence[object]) -> str:
    return f"{name} {MARK}" if over else name


def _cell(found: Standing | None, num_tasks: int) -> str:
    if found is None:
        return ""
    mark = f"({open_ranks(found.rank)})" if found.rank else "(*)" if found.state == "reference" else "(-)"
    return f"{found.mean:.2f} {mark}" + (f" {found.num_tasks}/{num_tasks}" if found.num_tasks < num_tasks else "")


def task_board(board: Board, task: str) -> str:
    """The boards of one task: rank, score with its interval and ceiling, training FLOPs, seeds.

    Raises:
        CompbenchError: no record is of such a task.
    """
    sections = by_section(board.rows)
    chosen = {section: rows for section, rows in sections.items() if section.task == task}
    if not chosen:
        raise suggest("task with records", task, sorted({section.task for section in sections}))
    return "\n\n".join(_section(section, rows, list(sections), board) for section, rows in chosen.items())


def _section(section: Section, rows: Sequence[BoardRow], among: Sequence[Section], board: Board) -> str:
    primary = rows[0].primary.replace("_", " ")
    lines = [["rank", "method", primary, "95 % interval", "training", "seeds"]]
    lines += [_row(row) for row in rows]
    words = discriminability_words(board.discriminability.get(section))
    over = [_over(row, row.label) for row in rows if row.beyond]
    return "\n".join([clean(heading(section, among)), words, "", *aligned(lines), *(["", *over] if over else [])])


def _row(row: BoardRow) -> list[str]:
    cell = row.scores.get(row.primary)
    rank = open_ranks(row.rank) or {"run": "-", "ablation": "ablation", "reference": "reference"}[row.kind]
    span = f"{number(cell.interval.low)} to {number(cell.interval.high)}" if cell and cell.interval else ""
    value = "; ".join(row.statuses) if cell is None else number(cell.mean)
    value += f" of {number(cell.ceiling)}" if cell and cell.ceiling is not None else ""
    flops = row.timing.train_flops if row.timing else None
    seeds = f"{len(row.seeds)}/{sum(row.statuses.values())}"
    label = clean(row.label)
    name = _marked(label if len(label) <= LABEL else f"{label[: LABEL - 1]}…", row.beyond)
    return [rank, name, value, span, "?" if flops is None else f"{count(flops)}FLOP", seeds]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, a line a row."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
