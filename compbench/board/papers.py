"""The papers' own figures, shown as reference rows; never ranked with ours."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from compbench.system.errors import CompbenchError


class Paper(NamedTuple):
    """A paper that a task or a figure comes from: its name in `papers.csv`, a short name, its title, and an address or ""."""

    key: str
    short: str
    title: str
    address: str


ARXIV, FORUM = "https://arxiv.org/abs/", "https://openreview.net/forum?id="
LITERATURE = (
    Paper("factored-velocity-fields", "FVF", "Compositional Flow Matching with Factored Velocity Fields", f"{FORUM}77sT6Xaji7"),
    Paper("decentralized-compositional-flow-matching", "DCFM", "Decentralized Compositional Flow Matching", f"{ARXIV}2606.10153"),
    Paper(
        "catastrophic-composition",
        "FKC",
        "Catastrophic Compositional Generation: Why Vanilla Diffusion Models Fail to Extrapolate",
        f"{ARXIV}2606.23920",
    ),
    Paper(
        "forced-rendering",
        "forced rendering",
        "Compositional Generalization via Forced Rendering of Disentangled Latents",
        f"{ARXIV}2501.18797",
    ),
    Paper("coind", "CoInD", "CoInD: Enabling Logical Compositions in Diffusion Models", f"{ARXIV}2503.01145"),
    Paper(
        "pem",
        "PEM",
        "Generalizable Reasoning through Compositional Energy Minimization",
        f"{ARXIV}2510.20607",
    ),
)
"""The papers that tasks and figures come from."""

COLUMNS = ("paper", "table", "task", "method", "metric", "score", "mean", "std", "note")


class PaperFigure(NamedTuple):
    """One figure of a paper; `metric` is the paper's name for it, `score` the compbench score to compare it with."""

    paper: str
    table: str
    task: str
    method: str
    metric: str
    score: str
    mean: float
    std: float | None
    note: str

    @property
    def place(self) -> str:
        """Where the figure stands, as the end of a phrase that begins with the paper's name."""
        return f", {'table ' if self.table[:1].isdigit() else ''}{self.table}" if self.table else ""


def read(path: Path | None) -> tuple[PaperFigure, ...]:
    """Read `papers.csv`; without a path there are no figures.

    Raises:
        CompbenchError: the file cannot be read, or a line of it is wrong; the message names the line.
    """
    if path is None:
        return ()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise CompbenchError(f"{path} must have the columns {', '.join(COLUMNS)}.")
            figures = [_figure(line, f"{path}, line {reader.line_num}") for line in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CompbenchError(f"{path} cannot be read: {error}.") from error
    return tuple(sorted(figures, key=lambda f: (f.task, f.paper, f.table, f.method, f.score)))


def _figure(line: Mapping[str, str | None], where: str) -> PaperFigure:
    if None in line or None in line.values():
        raise CompbenchError(f"{where}: must have {len(COLUMNS)} cells.")
    cells = {name: (line[name] or "").strip() for name in COLUMNS}
    mean, std = _number(cells.pop("mean"), where), cells.pop("std")
    for name in ("paper", "task", "method", "score"):
        if not cells[name]:
            raise CompbenchError(f"{where}: {name} is empty.")
    return PaperFigure(**cells, mean=mean, std=_number(std, where) if std else None)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CompbenchError(f"{where}: '{text}' is not a number.")
    return value


def paper_of(citation: str) -> Paper | None:
    """The paper that a task's citation begins with, or that a figure's key names."""
    return next((paper for paper in LITERATURE if citation.startswith((paper.title, paper.key))), None)


def rows_of(figures: tuple[PaperFigure, ...], task: str) -> dict[tuple[str, str], dict[str, PaperFigure]]:
    """The figures of a task, by (paper, method) and then by score."""
    found: dict[tuple[str, str], dict[str, PaperFigure]] = {}
    for figure in figures:
        if figure.task == task:
            found.setdefault((figure.paper, figure.method), {})[figure.score] = figure
    return found
