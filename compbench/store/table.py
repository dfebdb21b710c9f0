"""Records as a table with one row per score: a pandas frame, which can become CSV or parquet."""

from __future__ import annotations

import json
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from compbench.api.interfaces import Score
from compbench.api.schemas import Record
from compbench.store.format import text
from compbench.store.records import Store, read_records
from compbench.system.errors import CompbenchError
from compbench.system.files import write_atomically
from compbench.system.home import Home

if TYPE_CHECKING:
    from pandas import DataFrame

DTYPES: dict[type, str] = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}
"""A map from the type of a column to a pandas type that allows missing values."""


BESIDE = ("scores", "losses")
"""Fields of a record that do not become columns: scores become rows, and loss curves go only to trackers."""


NARROW = (
    *("record", "status", "spec.task", "spec.method", "spec.preset", "spec.seed", "spec.settings", "seconds"),
    *("score.name", "score.value", "score.ceiling", "score.floor", "score.n", "score.primary"),
)
"""The default columns of `records()`; `wide=True` gives all columns."""


Reader = Callable[[BaseModel], object]
"""A function from a record or a score to the value of a column."""


class Column(NamedTuple):
    """A column; `kind` is str, int, float or bool, and any other value becomes JSON in a str."""

    name: str
    kind: type
    of: Reader


def columns() -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Columns of a record, and of one score: every field except those in `BESIDE`, so that a new field is never forgotten."""
    own = [Column("record", str, attrgetter("name"))]
    own += [column for column in _columns(Record, "", lambda record: record) if column.name not in BESIDE]
    return tuple(own), tuple(_columns(Score, "score.", lambda score: score))


def rows(records: Sequence[Record]) -> Iterator[list[object]]:
    """One row per score, by record; a record without scores has one row with None for the scores and False for `primary`."""
    own, scored = columns()
    for record in sorted(records, key=lambda record: record.name):
        head = [column.of(record) for column in own]
        for score in record.scores:
            yield head + [column.of(score) for column in scored]
        if not record.scores:
            yield head + [False if column.name == "score.primary" else None for column in scored]


def records(store: Path | str | None = None, *, wide: bool = False) -> DataFrame:
    """A folder of records as a tidy table: one row per score, with what was run.

        compbench.records().query("`score.name` == 'heldout_accuracy'").groupby("spec.method")["score.value"].mean()

    Args:
        store: a folder of records; None means those of COMPBENCH_HOME.
        wide: include every field of a record (`spec.*`, `profile.*`, `environment.*`, ...) and not only the columns of `NARROW`.

    Raises:
        CompbenchError: there is no such folder, or pandas is not installed.
    """
    found, problems = read_store(Path(store) if store is not None else Home.of_user().records)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    table = frame(found)
    return table if wide else table[list(NARROW)]


def read_store(folder: Path) -> tuple[list[Record], list[str]]:
    """The records of a folder, and one line for each file that is not a record.

    Raises:
        CompbenchError: there is no such folder.
    """
    if not folder.is_dir():
        raise CompbenchError(f"there is no folder {folder}: name a folder of records, or run something first (`compbench run`).")
    found, problems = read_records(Store(folder).paths())
    return found, [problem.passed_over for problem in problems]


def frame(found: Sequence[Record]) -> DataFrame:
    """Records as a table with typed columns.

    Raises:
        CompbenchError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise CompbenchError("tables need pandas, which is not installed: pip install 'compbench[run]'.") from error
    known = [column for part in columns() for column in part]
    values = list(zip(*rows(found), strict=True)) or [()] * len(known)
    return pandas.DataFrame(
        {column.name: pandas.array(list(own), dtype=DTYPES[column.kind]) for column, own in zip(known, values, strict=True)}
    )


def export(found: Sequence[Record], destination: Path) -> int:
    """Write records as CSV or parquet, by the suffix of the file; the file is written whole or not at all.

    In CSV, text is one line that a spreadsheet does not take for a formula.

    Returns:
        number of rows.

    Raises:
        CompbenchError: the suffix is neither .csv nor .parquet, or pandas or pyarrow is not installed.
    """
    check_destination(destination)
    table = frame(found)
    if destination.suffix == ".csv":
        words: list[str] = list(table.select_dtypes("string").columns)
        table[words] = table[words].map(text, na_action="ignore")
        write_atomically(destination, table.to_csv(index=False, lineterminator="\n").encode())
        return len(table)
    write_atomically(destination, table.to_parquet(engine="pyarrow", index=False))
    return len(table)


def check_destination(file: Path) -> None:
    """Raise CompbenchError if `export` cannot write such a file: an unknown ending, or parquet without pyarrow."""
    if file.suffix not in (".csv", ".parquet"):
        raise CompbenchError(f"'{file.name}' has no known ending: name a file that ends in .csv or .parquet.")
    if file.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401 - pandas imports it
        except ImportError as error:
            needs = "parquet needs pyarrow, which is not installed: pip install 'compbench[export]'; CSV works without it."
            raise CompbenchError(needs) from error


def _columns(model: type[BaseModel], prefix: str, of: Reader) -> Iterator[Column]:
    for name, field in model.model_fields.items():
        yield from _column(prefix + name, field.annotation, _getter(of, name))


def _column(name: str, annotation: object, of: Reader) -> Iterator[Column]:
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


def _options(annotation: object) -> tuple[object, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _getter(of: Reader, name: str) -> Reader:
    return lambda record: getattr(of(record), name)


def _json(value: object) -> str | None:
    """Compact JSON; None for a missing value."""
    if value is None:
        return None
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=lambda model: model.model_dump(mode="json"))
