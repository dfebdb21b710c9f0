"""The papers' own figures, shown as reference rows; never ranked with ours."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from compbench.errors import CompbenchError

COLUMNS = ("paper", "table", "task", "method", "metric", "score", "mean", "std", "note")


class PaperFigure(NamedTuple):
    """One figure of a paper; `score` is the compbench score that it compares with."""

    paper: str
    table: str
    task: str
    method: str
    score: str
    mean: float
    std: float | None
    note: str


def read(path: Path | None) -> list[PaperFigure]:
    """Read `papers.csv`.  Raises CompbenchError naming the line that is wrong."""
    if path is None:
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise CompbenchError(f"{path} must have the columns {', '.join(COLUMNS)}.")
        figures = []
        for number, line in enumerate(reader, start=2):
            try:
                std = float(line["std"]) if line["std"] else None
                figures.append(
                    PaperFigure(
                        line["paper"], line["table"], line["task"], line["method"], line["score"], float(line["mean"]), std,
                        line["note"],
                    )
                )
            except ValueError as error:
                raise CompbenchError(f"{path}, line {number}: {error}.") from error
    return figures
