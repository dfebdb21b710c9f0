"""How a notebook shows a record: the run, its scores next to those of the best constant answer and of real data, and a picture.

An error that a user can correct is shown as one line, as on the command line.  Its traceback has only the caller's own lines, and
a notebook shows only the message.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import ParamSpec, TypeVar

from compbench.api.interfaces import Score
from compbench.api.schemas import Record
from compbench.board.scale import real_of, zero_of
from compbench.store.captions import caption
from compbench.store.records import Store
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

HEADS = ("score", "value", "best constant answer", "real data", "samples")


P = ParamSpec("P")
T = TypeVar("T")


def show_records() -> None:
    """Let notebooks show records by `html` from now on."""
    Record.view = html


def html(record: Record) -> str:
    """A record as self-contained HTML, without scripts and links, and with escaped text.

    The ranked score is next to the scores of the best constant answer (a model that ignores the request) and of real data; for a
    distance, the latter is the distance between two real samples.  The picture comes from the user's own store.
    """
    spec = record.spec
    head = f"<b>{escape(spec.method)}</b> on <b>{escape(spec.task)}</b>, {escape(spec.preset)}, seed {spec.seed}"
    parts = [f"<p>{head}, {escape(spec.device_class)}, {spec.precision}</p>"]
    if record.status != "ok":
        parts.append(f"<p><b>{record.status}</b>: {escape(record.reason)}</p>")
    if primary := record.primary:
        twin = record.score(primary.name.replace("heldout", "seen", 1))
        rows = [_row(record, primary), *([_row(record, twin)] if twin is not None and twin is not primary else [])]
        heads = "".join(f"<th>{name}</th>" for name in HEADS)
        parts.append(f"<table><tr>{heads}</tr>{''.join(rows)}</table>")
    if (picture := Store(Home.of_user().records).picture(record)) is not None:
        about = escape(caption(record) or f"samples of {spec.method}")
        parts.append(f'<img alt="{about}" style="max-width: 100%" src="data:image/png;base64,{b64encode(picture).decode()}">')
        parts.append(f"<p><small>{about}</small></p>")
    parts.append(f"<p><small>{escape(record.name)}</small></p>")
    return "".join(parts)


def _row(record: Record, score: Score) -> str:
    values = (score.value, zero_of(record, score), real_of(score))
    unit = f" {score.unit}" if score.unit else ""
    name = f"{score.name}{unit} ({score.direction} is better)"
    cells = [name, *("" if value is None else f"{value:.4g}" for value in values), str(score.n)]
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def plain_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function so that its `CompbenchError`s show neither their causes nor the function's inner frames."""

    @wraps(function)
    def call(*arguments: P.args, **settings: P.kwargs) -> T:
        CompbenchError._render_traceback_ = message  # type: ignore[attr-defined]  # IPython shows what this returns
        try:
            return function(*arguments, **settings)
        except CompbenchError as error:
            plain = error.with_traceback(None)
        raise plain from None

    return call


def message(error: CompbenchError) -> list[str]:
    """The lines that a notebook shows for an error: its type and its message, which says what to do."""
    return [f"{type(error).__name__}: {error}"]
