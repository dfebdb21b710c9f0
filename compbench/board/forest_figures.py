"""The page's forest plots for a paper, as PDF and SVG per question, and a BibTeX entry; `board --figures` calls this module.

A dot is a seed, and a bar is the 95 % interval.  A filled dot may be best; a hollow dot is shown to be worse.  The tick is the
best constant answer, which ignores the request; the dashed line is real data.  The same records give the same bytes.
"""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from compbench import __version__
from compbench.board.view import Answer, Entry, Question, View
from compbench.store.format import clean
from compbench.system.errors import CompbenchError
from compbench.system.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEST, WORSE, INK = "#0d6b55", "#8a9199", "#17191c"
WIDTH, LINE, FRAME = 3.4, 0.17, 0.9
"""Inches: the width of a panel, the height of a method's line, and the height of a panel's title and axis together."""

STYLE: object = {
    "font.size": 8,
    "font.family": "sans-serif",
    "svg.hashsalt": "compbench",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
NO_DATE: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}

BIBTEX = """@software{{compbench,
  title   = {{compbench: methods for compositional generation, compared under one protocol}},
  author  = {{{{the compbench authors}}}},
  version = {{{version}}},
  note    = {{Board of {runs} runs, preset {preset}}},
}}
"""


def write_figures(view: View, folder: Path) -> tuple[Path, ...]:
    """Write a figure of each question, and `compbench.bib`; a missing folder is created.

    Returns:
        the files written.

    Raises:
        CompbenchError: matplotlib is not installed.
        Unwritable: a file cannot be written.
    """
    mpl = needs_matplotlib()
    written = []
    with mpl.rc_context(STYLE):
        for question in view.questions:
            written += _write(question, folder)
    runs = sum(len(entry.row.seeds) for _, answer in view.answers() for entry in answer.entries)
    bib = folder / "compbench.bib"
    write_atomically(bib, BIBTEX.format(version=__version__, runs=runs, preset=view.preset).encode())
    return (*written, bib)


def needs_matplotlib() -> ModuleType:
    """Matplotlib, set up to draw into files.  Raises CompbenchError if it is not installed."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise CompbenchError("figures need packages that are not installed: pip install 'compbench[figures]'") from error
    mpl.use("agg")
    return mpl


def name_of(question: Question) -> str:
    """The stem of a question's file name: the stem of its picture, or its first task."""
    return question.asked.picture or question.answers[0].section.task


def _write(question: Question, folder: Path) -> list[Path]:
    from matplotlib.figure import Figure

    answers = question.answers
    height = FRAME + LINE * max(len(answer.competing) for answer in answers)
    figure = Figure(figsize=(WIDTH * len(answers), height), layout="constrained")
    for panel, answer in zip(figure.subplots(1, len(answers), squeeze=False)[0], answers, strict=True):
        _draw(panel, question, answer)
    return save(figure, folder / name_of(question))


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PDF and SVG, each whole or not at all; `stem` is the path without the suffix.  Return the files."""
    paths = []
    for kind, metadata in NO_DATE.items():
        drawn = io.BytesIO()
        figure.savefig(drawn, format=kind, metadata=metadata)
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomically(paths[-1], drawn.getvalue())
    return paths


def _draw(panel: Axes, question: Question, answer: Answer) -> None:
    entries = answer.competing
    for place, entry in enumerate(entries):
        _line(panel, entry, len(entries) - place)
    panel.axvline(0, color=INK, linewidth=0.8)
    panel.axvline(1, color=INK, linewidth=0.8, linestyle="--")
    panel.set_yticks(range(len(entries), 0, -1), [clean(entry.row.method) for entry in entries])
    title = f"{question.asked.title}, {answer.label}" if answer.label else question.asked.title
    panel.set_title(f"{title}: {answer.verdict_words}" if answer.verdict else title, loc="left", fontweight="bold")
    panel.set_xticks([0, 1], ["ignores request", "real data"])
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(length=0)
    panel.set_ylim(0.3, len(entries) + 0.7)


def _line(panel: Axes, entry: Entry, height: int) -> None:
    best = entry.state == "best"
    colour = BEST if best else WORSE
    if entry.low is not None and entry.high is not None:
        panel.plot([entry.low, entry.high], [height, height], color=colour, linewidth=1.6, alpha=0.5, solid_capstyle="butt")
    face = colour if best else "white"
    panel.scatter(entry.shares, [height] * len(entry.shares), s=9, color=face, edgecolors=colour, linewidths=0.8, zorder=3)
