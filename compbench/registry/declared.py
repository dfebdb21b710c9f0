"""Read facts of a task from its file without importing it: family, core suite, official files, extra packages.

    Task(name=f"blobs-{split}", family="silos", core=split == "noniid", ...)      in the file
    blobs-noniid -> split = "noniid" -> Declared(family="silos", core=True)       as read

`list` and the board read the `Task(...)` call whose name matches, so they stay fast and also work if a plugin cannot be imported.
The values are literals, or simple expressions of the parts of the task's name.  `compbench check` compares them with the loaded
task.  Nothing computes with these values, so they are not part of a run's identity (`prose.TASK_FACTS`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Any, NamedTuple

from compbench.registry.registry import Entry, task_calls
from compbench.system.fonts import ENDINGS, find_font

FAMILIES = ("images", "drawings", "plane", "rooms", "bumps", "silos", "radiographs", "planning")
"""The families of our own tasks, in the order in which they are shown; other families follow in alphabetical order."""
OTHERS = "others"
"""Heading for tasks without a family."""


class Declared(NamedTuple):
    """The fields of a `Task` that are read without importing it; `compbench.api.interfaces.Task` says what they mean."""

    family: str = ""
    core: bool = False
    files: tuple[str, ...] = ()
    extra: str = ""
    extra_for: str = "run"


def declared(entry: Entry) -> Declared:
    """The facts in the file of a task's entry; defaults for facts that cannot be read."""
    for call in task_calls(entry.file) if entry.file else ():
        bound = _bound(call, entry.name)
        if bound is not None:
            try:
                found = Declared(
                    **{word.arg: _value(word.value, bound) for word in call.keywords if word.arg in Declared._fields}
                )
            except (KeyError, TypeError, ValueError):
                return Declared()
            return found if all(type(one) is type(usual) for one, usual in zip(found, Declared(), strict=True)) else Declared()
    return Declared()


def by_family(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Tasks by family: our families first, then other packages' families, and last tasks without a family, as "others"."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(declared(entry).family or OTHERS, []).append(entry)
    return {name: found[name] for name in sorted(found, key=_family_place)}


def _family_place(name: str) -> tuple[int, str]:
    order = (*FAMILIES, name, OTHERS)
    return len(order) if name == OTHERS else order.index(name), name


def kind_of_data(source: str) -> str:
    """The name of a data source in texts for people: "built-in" for what records call `embedded`."""
    return "built-in" if source == "embedded" else source


def data_here(entry: Entry, folder: Path) -> str:
    """The data of `--source auto`: `official` or `embedded`; `exact` if a task has no official files.

    Fonts are searched for on the whole machine, and have no embedded replacement: without them the data is `missing`.
    """
    files = declared(entry).files
    if not files:
        return "exact"
    if all(_is_here(folder, name) for name in files):
        return "official"
    return "missing" if all(name.endswith(ENDINGS) for name in files) else "embedded"


def missing_extra(entry: Entry, folder: Path, asked: str = "auto") -> str:
    """The requirement of a task that is not installed here, as in `compbench[planning]`; "" if nothing is missing.

    Args:
        entry: the task's entry.
        folder: folder of official data files.
        asked: the requested data source: "auto", "official" or "embedded".
    """
    own = declared(entry)
    official = asked == "official" or (asked == "auto" and data_here(entry, folder) == "official")
    if not own.extra or (own.extra_for == "embedded" and official):
        return ""
    return "" if all(map(is_installed, packages_of(entry.distribution, own.extra))) else f"{entry.distribution}[{own.extra}]"


@lru_cache(maxsize=64)
def packages_of(owner: str, extra: str) -> tuple[str, ...]:
    """The packages that an extra of a distribution adds, by its metadata."""
    try:
        lines = requires(owner) or []
    except (PackageNotFoundError, ValueError):
        return ()
    own = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    names = [re.split(r"[^\w.-]", line.strip(), maxsplit=1)[0] for line in lines if own.search(line)]
    return tuple(name for name in names if name != owner)  # an extra may include another extra of its distribution


def is_installed(package: str) -> bool:
    """Whether a distribution of this name is installed."""
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def _is_here(folder: Path, name: str) -> bool:
    if name.endswith(ENDINGS):
        return find_font(name, folder) is not None
    return any((place / f"{name}{end}").exists() for place in (folder, folder / "mnist") for end in ("", ".gz"))


def _bound(call: ast.Call, name: str) -> dict[str, str] | None:
    """The values of the expressions in `name=...` for which a call makes the task of this name; None if no values do."""
    given = next((word.value for word in call.keywords if word.arg == "name"), None)
    if given is None:
        return None
    parts = given.values if isinstance(given, ast.JoinedStr) else [given]
    pattern, expressions = "", list[str]()
    for part in parts:
        if isinstance(part, ast.Constant):
            pattern += re.escape(str(part.value))
        else:
            pattern += "(.+?)"
            expressions.append(ast.unparse(part.value if isinstance(part, ast.FormattedValue) else part))
    found = re.fullmatch(pattern, name)
    return dict(zip(expressions, found.groups(), strict=True)) if found else None


def _value(node: ast.expr, bound: Mapping[str, str]) -> Any:
    """The value of a simple expression.  Raises KeyError, TypeError or ValueError if it is not simple."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Tuple():
            return tuple(_value(one, bound) for one in node.elts)
        case ast.Name() | ast.Attribute():
            return bound[ast.unparse(node)]
        case ast.IfExp():
            return _value(node.body if _value(node.test, bound) else node.orelse, bound)
        case ast.BoolOp(op=ast.And()):
            return all(_value(one, bound) for one in node.values)
        case ast.BoolOp(op=ast.Or()):
            return any(_value(one, bound) for one in node.values)
        case ast.Compare(ops=[ast.Eq()]):
            return _value(node.left, bound) == _value(node.comparators[0], bound)
        case ast.Compare(ops=[ast.NotEq()]):
            return _value(node.left, bound) != _value(node.comparators[0], bound)
        case ast.Compare(ops=[ast.In()]):
            return _value(node.left, bound) in _value(node.comparators[0], bound)
    raise ValueError(ast.unparse(node))
