"""The defaults of a method's settings, read from its source: no code of a plugin is run to show a record."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

from compbench.system.files import Json

FLOW = Path(__file__).parents[1] / "flow"


def literal_defaults(file: Path) -> dict[str, list[Json]]:
    """Name of a setting -> its defaults in the classes of a file that state it as a literal; tuples as lists, like JSON.

    The modules of `compbench.flow` that the file imports count as well.  A computed default is not among them.
    """
    found: dict[str, list[Json]] = {}
    for tree in _trees(file):
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                with contextlib.suppress(ValueError, TypeError, SyntaxError, RecursionError):
                    literal = ast.literal_eval(_default(node.value))
                    found.setdefault(node.target.id, []).append(list(literal) if isinstance(literal, tuple) else literal)
    return found


def _default(value: ast.expr) -> ast.expr:
    """The default in `= 1`, `= Field(1, ...)` or `= Field(default=1, ...)`."""
    if not isinstance(value, ast.Call):
        return value
    return next((given for given in [*value.args[:1], *(word.value for word in value.keywords if word.arg == "default")]), value)


def _trees(file: Path) -> Iterator[ast.Module]:
    """A file, and what it imports of compbench.flow, and what that imports there."""
    waiting, seen = [file], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        yield tree
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("compbench.flow"):
                folders = (node.module or "").split(".")[2:]
                waiting += [FLOW.joinpath(*folders).with_suffix(".py")] if folders else []
                waiting += [FLOW.joinpath(*folders, f"{alias.name}.py") for alias in node.names]
