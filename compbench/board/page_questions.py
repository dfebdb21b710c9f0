"""The page's first screen, as JSON: the view's questions, each method's entry at a task, and the questions' pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from compbench.board.groups import Section
from compbench.board.notation import duration
from compbench.board.question_table import LABELS, PICTURES
from compbench.board.row import BoardRow
from compbench.board.view import Answer, Entry, Pace, Question, View, rank_commands
from compbench.store.format import clean
from compbench.system.files import Json

Places = Mapping[Section, tuple[str, tuple[BoardRow, ...]]]
"""For each section, its board on the page, and its rows in the page's order."""


def view_data(view: View, places: Places) -> dict[str, Json]:
    """A view as JSON; an entry refers to its row by position on the page's board, so no row is stored twice."""
    return {
        "preset": view.preset,
        "pace": _pace(view.pace),
        "questions": [_question(question, view.preset, places) for question in view.questions],
    }


def _pace(pace: Pace | None) -> str:
    """How long 100 TFLOP take, in words; "" where nothing was timed."""
    return f"100 take about {duration(float(f'{100 * pace.seconds:.2g}'))} on {clean(pace.hardware)}" if pace else ""


def _question(question: Question, preset: str, places: Places) -> dict[str, Json]:
    return {
        "title": question.asked.title,
        "about": question.asked.about,
        "picture": picture(question.asked.picture),
        "family": question.family,
        "silos": question.silos,
        "everywhere": list(question.best_everywhere),
        "answers": [
            _answer(answer, places) | {"commands": list(rank_commands(answer, preset, silos=question.silos))}
            for answer in question.answers
        ],
    }


def picture(name: str) -> str:
    """A question's picture as an address that contains its bytes; "" if it has no picture."""
    path = PICTURES / f"{name}.png"
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode() if name and path.is_file() else ""


def _answer(answer: Answer, places: Places) -> dict[str, Json]:
    board, rows = places[answer.section]
    index = {id(row): place for place, row in enumerate(rows)}
    cheapest, found = answer.cheapest, answer.crossing
    return {
        "task": answer.section.task,
        "label": answer.label,
        "about": LABELS.get(answer.label, ""),
        "board": board,
        "verdict": answer.verdict,
        "far": answer.way,
        "meaning": clean(answer.meaning),
        "real": answer.real,
        "unit": list(answer.unit),
        "crossing": found and [index[id(found.kept.row)], index[id(found.out.row)], found.words],
        "ranked": len(answer.competing),
        "alike": answer.alike,
        "missing": list(answer.missing),
        "waits": answer.waits_for,
        "older": answer.older,
        "cheapest": None if cheapest is None else index[id(cheapest.row)],
        "entries": [_entry(entry, index[id(entry.row)]) for entry in answer.entries],
    }


def _entry(entry: Entry, place: int) -> dict[str, Json]:
    return {
        "row": place,
        "state": entry.state,
        "shares": [round(share, 3) for share in entry.shares],
        "share": _short(entry.share),
        "low": _short(entry.low),
        "high": _short(entry.high),
        "seen": _short(entry.seen),
        "score": entry.score,
        "interval": entry.interval,
        "time": duration(entry.seconds),
        "cost": entry.cost_words,
        "flops": None if entry.cost is None else float(f"{entry.cost:.4g}"),
    }


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
