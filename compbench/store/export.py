"""Records as flat rows, one a score: CSV with what every Python has, parquet with pyarrow."""

from __future__ import annotations

import csv
import io
import json
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from compbench.errors import CompbenchError
from compbench.files import write_atomically
from compbench.interfaces import Score
from compbench.schemas import Record
from compbench.store.text import text

PARQUET_NEEDS = "parquet needs pyarrow, which is not installed: pip install 'compbench[export]'; CSV works without it."


class Column(NamedTuple):
    """A column; `kind` is str, int, float or bool, and what is none of them stands as JSON in a str."""

    name: str
    kind: type
    of: Callable[[Any], Any]


def columns() -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """(of the record, of one of its scores): every field there is, so that none is forgotten when one is added."""
    own = [Column("record", str, lambda record: record.name)]
    own += [column for column in _columns(Record, "", lambda record: record) if column.name != "scores"]
    return tuple(own), tuple(_columns(Score, "score.", lambda score: score))


def rows(records: Sequence[Record]) -> Iterator[list[Any]]:
    """One row a score, by record; a record without scores has one row, in which they are None."""
    own, scored = columns()
    for record in sorted(records, key=lambda record: record.name):
        head = [column.of(record) for column in own]
        for score in record.scores:
            yield head + [column.of(score) for column in scored]
        if not record.scores:
            yield head + [None] * len(scored)


def export(records: Sequence[Record], destination: Path) -> int:
    """Write records as CSV or parquet, by the suffix of the file; the file is there whole or not at all.

    Returns:
        number of rows.

    Raises:
        CompbenchError: another suffix, or no pyarrow.
    """
    if destination.suffix not in (".csv", ".parquet"):
        raise CompbenchError(f"'{destination.name}' says neither CSV nor parquet: name a file that ends in .csv or .parquet.")
    found = list(rows(records))
    write_atomically(destination, to_csv(found) if destination.suffix == ".csv" else to_parquet(found))
    return len(found)


def to_csv(found: Sequence[Sequence[Any]]) -> bytes:
    """Numbers in full; text as one line that a spreadsheet does not take for a formula."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([column.name for part in columns() for column in part])
    writer.writerows([text(value) if isinstance(value, str) else value for value in row] for row in found)
    return output.getvalue().encode()


def to_parquet(found: Sequence[Sequence[Any]]) -> bytes:
    """Typed columns, missing values null."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise CompbenchError(PARQUET_NEEDS) from error
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    known = [column for part in columns() for column in part]
    values = list(zip(*found, strict=True)) or [()] * len(known)
    arrays = [pyarrow.array(own, kinds[column.kind]) for column, own in zip(known, values, strict=True)]
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(zip([column.name for column in known], arrays, strict=True))), sink)
    return sink.getvalue()


def _columns(model: type[BaseModel], prefix: str, of: Callable[[Any], Any]) -> Iterator[Column]:
    for name, field in model.model_fields.items():
        yield from _column(prefix + name, field.annotation, _getter(of, name))


def _column(name: str, annotation: Any, of: Callable[[Any], Any]) -> Iterator[Column]:
    options = [option for option in _options(annotation) if option is not type(None)]
    kind = options[0] if len(options) == 1 else None
    if get_origin(kind) is Literal:
        kind = str
    if isinstance(kind, type) and issubclass(kind, BaseModel) and len(_options(annotation)) == 1:
        yield from _columns(kind, f"{name}.", of)
    elif kind in (str, int, float, bool):
        yield Column(name, kind, of)
    else:
        yield Column(name, str, lambda record: _json(of(record)))


def _options(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _getter(of: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    return lambda record: getattr(of(record), name)


def _json(value: Any) -> str | None:
    """Compact JSON; None for what is not there."""
    if value is None:
        return None
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=lambda model: model.model_dump(mode="json"))
