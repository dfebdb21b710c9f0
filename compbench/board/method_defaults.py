"""Default settings of installed methods, read from their source without importing it: a board is built by a light process.

The file's `Method(name="cfg", settings=Settings, ...)`, or a function that is given both, names the class.  Its fields are those
of the class and of its bases, in the same file or where it imports them from.  What cannot be read so is left out.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from compbench.registry.registry import Entry
from compbench.system.files import Json

DEEPEST = 8
"""Greatest depth of base classes that is followed."""


def default_settings_of(entry: Entry) -> dict[str, Json]:
    """Name -> default of each setting whose default is written as a literal; {} where the settings class is not found."""
    given = _given(entry)
    settings = _settings(list(given.values()))
    return _fields(entry.file, settings, DEEPEST) if entry.file is not None and settings is not None else {}


def version_of(entry: Entry) -> int:
    """The method's version: 1 where the source says none."""
    version = _given(entry).get("version")
    return version.value if isinstance(version, ast.Constant) and isinstance(version.value, int) else 1


def _given(entry: Entry) -> dict[str, ast.expr]:
    """Arguments of the call that makes the method, by keyword or position, and of the partial call that it completes."""
    tree = _tree(entry.file) if entry.file is not None else ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = _arguments(node)
            if _name(node.func) == "replace" and node.args and isinstance(node.args[0], ast.Call):
                given = {**given, **_arguments(node.args[0])}  # replace(velocity_method("dit", Settings, build), version=2)
            if any(isinstance(value, ast.Constant) and value.value == entry.name for value in given.values()):
                given = {**_given_to(tree, _name(node.func)), **given}  # learned = partial(Method, settings=Settings)
                if _settings(list(given.values())) is not None:
                    return given
    return {}


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return {**{f"argument {index}": value for index, value in enumerate(call.args)}, **named}


def _settings(given: Sequence[ast.expr]) -> ast.expr | None:
    return next((value for value in given if _name(value).endswith("Settings")), None)


def _given_to(tree: ast.Module, name: str) -> dict[str, ast.expr]:
    """Arguments of the call that a name stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name in map(_name, node.targets):
            return {f"{name} {key}" if " " in key else key: value for key, value in _arguments(node.value).items()}
    return {}


def _fields(file: Path, reference: ast.expr, depth: int) -> dict[str, Json]:
    """Defaults of the class that an expression of a file refers to, its bases' included."""
    found = _class(file, reference) if depth else None
    if found is None:
        return {}
    where, node = found
    fields: dict[str, Json] = {}
    for base in reversed(node.bases):
        fields |= _fields(where, base, depth - 1)
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            fields.pop(line.target.id, None)
            known, value = _literal(where, _default(line.value))
            if known:
                fields[line.target.id] = value
    return fields


def _default(value: ast.expr) -> ast.expr | None:
    """The default in `Field(1.5, ...)`, `Field(default=1.5)` or `1.5`."""
    if not isinstance(value, ast.Call):
        return value
    if value.args:
        return value.args[0]
    return next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)


def _literal(file: Path, value: ast.expr | None) -> tuple[bool, object]:
    """(whether it is known, value) of a literal, or of a name that the file gives one."""
    if isinstance(value, ast.Name):
        lines = (line for line in _tree(file).body if isinstance(line, ast.Assign))
        value = next((line.value for line in lines if any(_name(target) == value.id for target in line.targets)), None)
    try:
        return (True, ast.literal_eval(value)) if value is not None else (False, None)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False, None


def _class(file: Path, reference: ast.expr) -> tuple[Path, ast.ClassDef] | None:
    """The file and definition of `Settings` or `module.Settings`, here or where it is imported from."""
    name = _name(reference)
    if isinstance(reference, ast.Name):
        own = next((node for node in _tree(file).body if isinstance(node, ast.ClassDef) and node.name == name), None)
        if own is not None:
            return file, own
    through = _name(reference.value) if isinstance(reference, ast.Attribute) else name
    for node in _tree(file).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == through:
                    module = node.module if isinstance(reference, ast.Name) else f"{node.module}.{alias.name}"
                    wanted = alias.name if isinstance(reference, ast.Name) else name
                    path = _file(module)
                    return _class(path, ast.Name(wanted)) if path and path != file else None
    return None


def _file(module: str) -> Path | None:
    """The source of one of our modules, found without importing it: only those of `compbench` are looked for."""
    if not module.startswith("compbench."):
        return None
    spec = importlib.util.find_spec("compbench")
    root = Path(spec.origin).parent if spec and spec.origin else Path()
    path = root.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return path if path.is_file() else None


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@lru_cache(maxsize=256)
def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])
