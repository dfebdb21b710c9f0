"""Read the defaults of a method's settings from its source, so that showing a record runs no plugin code."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

from compbench.registry.prose import parsed
from compbench.system.files import Json

OURS = Path(__file__).parents[1]
FLOW = OURS / "flow"


def literal_defaults(file: Path) -> dict[str, list[Json]]:
    """Name of a setting -> its literal defaults in the classes of a file; tuples become lists, as in JSON.

    The modules of `compbench.flow` that the file imports are read too.  Computed defaults are left out.
    """
    found: dict[str, list[Json]] = {}
    for tree in _trees(file):
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                with contextlib.suppress(ValueError, TypeError, SyntaxError, RecursionError):
                    literal = ast.literal_eval(_default(node.value))
                    found.setdefault(node.target.id, []).append(list(literal) if isinstance(literal, tuple) else literal)
    return found


def setting_names(file: Path) -> list[str]:
    """Names of the settings in a plugin's file: the fields of its classes called ...Settings and of their bases in compbench."""
    return sorted(_fields(file, frozenset(), frozenset()))


def _fields(file: Path, classes: frozenset[str], seen: frozenset[Path]) -> set[str]:
    """The fields of some classes of a file, or of all called ...Settings, and of their bases."""
    if file in seen:
        return set()
    try:
        body = parsed(file.read_text("utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return set()
    own = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    origin = {alias.name: node.module or "" for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    waiting = [name for name in own if name.endswith("Settings") and (not classes or name in classes)]
    found, done = set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        if name in own:
            fields = (node.target for node in own[name].body if isinstance(node, ast.AnnAssign))
            found |= {target.id for target in fields if isinstance(target, ast.Name)}
            waiting += [base.id for base in own[name].bases if isinstance(base, ast.Name)]
        elif origin.get(name, "").startswith("compbench."):
            path = OURS.joinpath(*origin[name].split(".")[1:]).with_suffix(".py")
            found |= _fields(path, frozenset({name}), seen | {file})
    return found


def _default(value: ast.expr) -> ast.expr:
    """The default in `= 1`, `= Field(1, ...)` or `= Field(default=1, ...)`."""
    if not isinstance(value, ast.Call):
        return value
    return next((given for given in [*value.args[:1], *(word.value for word in value.keywords if word.arg == "default")]), value)


def _trees(file: Path) -> Iterator[ast.Module]:
    """The trees of a file and of the modules of compbench.flow that it imports, directly or indirectly."""
    waiting, seen = [file], set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree = parsed(path.read_text("utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        yield tree
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("compbench.flow"):
                folders = (node.module or "").split(".")[2:]
                waiting += [FLOW.joinpath(*folders).with_suffix(".py")] if folders else []
                waiting += [FLOW.joinpath(*folders, f"{alias.name}.py") for alias in node.names]
