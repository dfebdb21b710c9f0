"""Write the board as Markdown for code hosts: families, then one short table per task, and links for the rest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from compbench.board.cells import Cell
from compbench.board.groups import Section
from compbench.board.notation import MARK, SPLIT_TITLES, by_section, columns, discriminability_words, heading, number, spread
from compbench.board.papers import PaperFigure, paper_of, rows_of
from compbench.board.row import Board, BoardRow
from compbench.board.scale import real_of
from compbench.board.view import STATE_WORDS, Answer, Entry, View, answer_of
from compbench.store.format import clean

MARKS = re.compile(r"([\\`*_\[\]{}|~#!])")
LONGEST = 200
"""Largest number of characters of a note in Markdown; the page and the CSV contain the whole note."""

PREAMBLE = """# Board

Made by `compbench board` from records; do not edit. `index.html` draws, sorts and filters all of it; `board.csv` has every score,
`rows.csv` what each row costs, `families.csv` the families, `tasks.csv` how well each task separates methods.

A method *may be best* unless another is shown to be better, over the whole table at 5 %. Scores are means over seeds ± sample
standard deviation; after the slash is the score of real data (for a distance, that between two real samples). The cost is
that of training and of 10,000 samples. *Reference* rows do not compete; *paper* rows are the papers' own figures: official data,
their protocol, their judge.
"""


def to_markdown(
    board: Board, figures: Sequence[PaperFigure], *, views: Sequence[View] = (), overall: str = "", chart: str = ""
) -> str:
    """The whole board: for each task a table of its main protocol, and links to the others.

    Args:
        board: as `aggregate` gives it.
        figures: the papers' figures.
        views: the questions, whose words name the tasks.
        overall: the tables over all families, as Markdown; they come first.
        chart: file of the decomposition chart; "" for none.
    """
    tasks: dict[str, list[Section]] = defaultdict(list)
    sections = by_section(board.rows)
    for section in sections:
        tasks[section.task].append(section)
    asked = {answer.section.task: (question.asked, answer.label) for view in views for question, answer in view.answers()}
    parts = [PREAMBLE] + [overall] * bool(overall)
    if not sections:
        parts.append("There are no records yet.\n")
    for task in sorted(tasks, key=lambda task: (list(asked).index(task) if task in asked else len(asked), task)):
        section, *others = tasks[task]
        title = "" if task not in asked else ": " + ", ".join(filter(None, (asked[task][0].title, asked[task][1])))
        parts.append(f"## {escape(heading(section, list(sections)) + title)}\n")
        answer = answer_of(section, sections[section], board)
        about = asked[task][0].about if task in asked else ""
        parts.append(" ".join(filter(None, (f"**{answer.verdict_words}.**" if answer.verdict else "", about))))
        parts.append(f"{discriminability_words(board.discriminability.get(section), board.missing.get(section, ()))}\n")
        parts.append(_table(answer, sections[section], tuple(figures)))
        if others:
            parts.append(f"Also: {', '.join(_links(others, list(sections)))}.\n")
    if chart:
        parts.append(
            f"## Inference-time and estimation error\n\n![error with exact scores, and what estimating them adds]({chart})\n"
        )
    return "\n".join(part for part in parts if part)


def _links(others: Sequence[Section], among: Sequence[Section]) -> list[str]:
    """Links to the page's boards of a task's other protocols; several of one preset share a link."""
    presets: dict[str, list[Section]] = defaultdict(list)
    for section in others:
        presets[section.preset].append(section)
    return [
        f"[{escape(heading(own[0], among).partition(', ')[2] if len(own) == 1 else f'{len(own)} boards of {preset}')}]"
        f"(index.html#preset={quote(preset)}&task={quote(own[0].task)})"
        for preset, own in presets.items()
    ]


def _table(answer: Answer, rows: Sequence[BoardRow], figures: tuple[PaperFigure, ...]) -> str:
    known = columns(rows, [figure for figure in figures if figure.task == answer.section.task])
    primary = next((column for column in known if column.primary), None)
    arrow = {"higher": " ↑", "lower": " ↓"}.get(primary.direction if primary else "", "")
    split = SPLIT_TITLES[primary.split].split(" ")[0] if primary else ""
    score = f"{split} {escape(primary.title)}".strip() + arrow if primary else "score"
    lines = [line(["method", "may be best", f"**{score}**", "cost", "notes"]), line(["---"] * 5)]
    lines += [line(_row(entry)) for entry in answer.entries]
    for (paper, method), own in rows_of(figures, answer.section.task).items():
        cited = paper_of(paper)
        for figure in (figure for score, figure in own.items() if primary and score.startswith(primary.key)):
            beside = "" if figure.std is None else f" ± {spread(figure.std, figure.mean)}"
            where = f"{cited.short if cited else paper}{figure.place}: {figure.metric}"
            where += "" if primary and figure.score == primary.key else f"; compare it with our {figure.score}"
            lines.append(line([escape(method), "*paper*", f"*{number(figure.mean)}{beside}*", "", escape(where)]))
    if answer.crossing:
        lines += ["", escape(answer.crossing.words)]
    missing = [f"{column.split}: {column.title} ({column.reason})" for column in known if column.reason and not column.detail]
    if missing:
        lines += ["", f"Not available: {escape(_shortened('; '.join(missing)))}"]
    return "\n".join([*lines, ""])


def _row(entry: Entry) -> list[str]:
    row = entry.row
    device = "" if row.device == "cpu" else f" on {escape(row.device)}"
    best = {"best": "**yes**", "worse": "no"}.get(entry.state, f"*{STATE_WORDS[entry.state]}*")
    seeds = "" if len(row.seeds) == sum(row.statuses.values()) else f"{len(row.seeds)} of {sum(row.statuses.values())} runs"
    level = "" if row.level == "self-reported" else row.level
    remarks = [remark for remark in (seeds, level, *entry.notes) if remark]
    return [
        escape(row.label) + device + (f" **{escape(MARK)}**" if row.beyond else ""),
        best,
        _score(entry.cell),
        entry.cost_words,
        escape(_shortened("; ".join(remarks))),
    ]


def _score(cell: Cell | None) -> str:
    if cell is None:
        return ""
    value = number(cell.mean) + (f" ± {spread(cell.std, cell.mean)}" if cell.num_seeds > 1 else "")
    real = real_of(cell)
    return f"**{value}**" + (f" / {number(real)}" if real is not None else "")


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def escape(text: str) -> str:
    """Escape text, so that it neither leaves its table cell nor becomes markup, HTML or a link."""
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("://", "&#58;//")
    return MARKS.sub(r"\\\1", text)
