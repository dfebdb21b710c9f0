"""Write the board as CSV: one line per score, so that the header depends on no names of scores, and one line per row of costs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from compbench.board.cells import Cell
from compbench.board.notation import failure, notes
from compbench.board.papers import PaperFigure
from compbench.board.row import BoardRow
from compbench.board.timing import Timing
from compbench.store.format import text

ROW = ("kind", "task", "task_version", "preset", "source", "fingerprint", "changed", "method", "method_version", "variant",
       "device", "precision", "rank", "rank_best", "rank_worst", "group", "num_ok", "num_failed")  # fmt: skip
SCORE = ("score", "split", "metric_version", "unit", "direction", "primary", "num_seeds", "mean", "std", "low", "high",
         "ceiling", "floor", "in_floors", "median", "worst")  # fmt: skip
COST = ("samples_per_second", "train_steps_per_second", "latency_p50_ms", "latency_p95_ms", "peak_memory_bytes", "timing",
        "hardware", "seconds", "shared_fit", "train_flops", "flops_per_sample", "parameters",
        "evaluations_per_sample", "threads", "level", "training_data")  # fmt: skip
MARKS = ("may_be_best", "recall_of_real", "draws_means", "worse_than_constant", "num_failed_fits")
SILOS = ("num_silos", "silo_rounds", "silo_bytes_out", "silo_bytes_in", "silo_seconds",
         "slowest_silo_seconds", "server_steps")  # fmt: skip
SCORES = (*ROW, *SCORE, "note")
"""Columns of the file of scores."""
ROWS = (*ROW, *MARKS, *COST, *SILOS, "note")
"""Columns of the file of rows."""
EMPTY = ("",) * (len(SCORE) - 1)


def scores_csv(rows: Sequence[BoardRow], figures: Sequence[PaperFigure]) -> str:
    """Every score of every row, with the reason of each that is missing, and the papers' figures."""
    lines = (line for row in rows for line in _scores(row))
    return csv_text(SCORES, (*lines, *map(_paper_line, figures)))


def rows_csv(rows: Sequence[BoardRow]) -> str:
    """What each row costs, its verification level, and its notes; a row whose runs all failed has a line too."""
    return csv_text(ROWS, map(_row, rows))


def csv_text(header: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """A header and lines as CSV; None becomes an empty field."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return output.getvalue()


def _head(row: BoardRow) -> tuple[str, ...]:
    num_ok = row.statuses.get("ok", 0)
    rank = tuple(map(str, row.rank)) if row.rank else ("",) * 4
    return (
        row.kind,
        *(text(part) if isinstance(part, str) else str(part) for part in row.section[:5]),
        text(", ".join(row.section.changed)),
        text(row.method),
        str(row.method_version),
        text(row.variant),
        text(row.device),
        row.precision,
        *rank,
        str(num_ok),
        str(sum(row.statuses.values()) - num_ok),
    )


def _row(row: BoardRow) -> tuple[str, ...]:
    threads = " ".join(map(str, row.threads))
    size = _whole(row.parameters), _whole(row.evaluations)
    note = text("; ".join((*notes(row), *map(failure, row.failures))))
    return (*_head(row), *_marks(row), *_timing(row.timing), *size, threads, row.level, row.training, *_silos(row.timing), note)


def _marks(row: BoardRow) -> tuple[str, ...]:
    """The row's marks; "" where nothing is known."""
    best = "" if row.may_be_best is None else "yes" if row.may_be_best else "no"
    marks = ("yes" if mark else "" for mark in (row.draws_means, row.worse_than_constant))
    return (best, exact(row.recall), *marks, str(row.fits.num_failed) if row.fits else "")


def _scores(row: BoardRow) -> Iterator[tuple[str, ...]]:
    head = _head(row)
    for column, cell in row.scores.items():
        fits = row.fits if column == row.primary else None
        beside = (fits.median, fits.worst) if fits else (None, None)
        yield (*head, *_score(column, cell, primary=column == row.primary), *map(exact, beside), "")
    for column, reason in row.unavailable.items():
        yield (*head, column, *EMPTY, text(f"unavailable: {reason or 'no reason given'}"))


def _score(column: str, cell: Cell, *, primary: bool) -> tuple[str, ...]:
    low, high = cell.interval or (None, None)
    return (
        column,
        cell.split,
        str(cell.metric_version),
        text(cell.unit),
        cell.direction,
        "yes" if primary else "",
        str(cell.num_seeds),
        *map(exact, (cell.mean, cell.std if cell.num_seeds > 1 else None, low, high, cell.ceiling, cell.floor, cell.relative)),
    )


def _timing(timing: Timing | None) -> tuple[str, ...]:
    if timing is None:
        return ("",) * 11
    rates = (
        timing.sample_samples_per_second,
        timing.train_steps_per_second,
        timing.latency_p50_ms,
        timing.latency_p95_ms,
        timing.peak_memory_bytes,
    )
    how = ("alone" if timing.clean else "shared machine: lower bound") if timing.hardware else "not measured"
    how += f", {timing.remark}" if timing.remark else ""
    charged = exact(timing.seconds), "yes" if timing.shared else "", exact(timing.train_flops), exact(timing.sample_flops)
    return (*map(exact, rates), how, text(timing.hardware), *charged)


def _silos(timing: Timing | None) -> tuple[str, ...]:
    return tuple(map(exact, timing.silos)) if timing and timing.silos else ("",) * len(SILOS)


def _paper_line(figure: PaperFigure) -> tuple[str, ...]:
    cells = {
        "kind": "paper",
        "task": text(figure.task),
        "preset": "paper",
        "source": "official",
        "method": text(figure.method),
        "score": text(figure.score),
        "mean": exact(figure.mean),
        "std": exact(figure.std),
        "note": text(f"{figure.paper}{figure.place}: {figure.metric}. {figure.note}"),
    }
    return tuple(cells.get(name, "") for name in SCORES)


def exact(value: float | None) -> str:
    """A number with six significant digits, more than the precision of any score."""
    return "" if value is None else f"{value:.6g}"


def _whole(value: int | None) -> str:
    return "" if value is None else str(value)
