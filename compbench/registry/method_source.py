"""Read settings of methods from their source without importing it, so that boards and request checks need only a light process.

The file's `Method(name="cfg", settings=Settings, ...)`, or a call of another function with both arguments, names the class.  The
fields are those of the class and of its bases, in this file or where it imports them from.  What cannot be read is left out.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import Field, create_model

from compbench.api.interfaces import MethodSettings
from compbench.registry.registry import FUNCTIONS, Entry, tree_of
from compbench.system.errors import CompbenchError
from compbench.system.files import Json

DEEPEST = 8
"""Largest depth to which base classes, and names that stand for types, are followed."""
TYPES: dict[str, object] = {"int": int, "float": float, "bool": bool, "str": str, "None": None}
BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "allow_inf_nan", "description")
"""Arguments of a `Field` that are read if they are literals."""
BASES = ("MethodSettings", "BaseModel")


def default_settings_of(entry: Entry) -> dict[str, Json]:
    """Name -> default of each setting whose default is written as a literal; {} where the settings class is not found."""
    given = _given(entry)
    settings = _settings(list(given.values()))
    return _fields(entry.file, settings, DEEPEST) if entry.file is not None and settings is not None else {}


def version_of(entry: Entry) -> int:
    """The method's version; 1 if the source has none."""
    version = _given(entry).get("version")
    return version.value if isinstance(version, ast.Constant) and isinstance(version.value, int) else 1


def check_functions(entry: Entry) -> None:
    """Raise CompbenchError if the source gives a method a number or a text instead of a function."""
    for name, value in _given(entry).items():
        if name in FUNCTIONS and isinstance(value, ast.Constant) and value.value is not None:
            wrong = f"{name} of method '{entry.name}' must be a function, got {value.value!r:.100}."
            raise CompbenchError(f"method '{entry.name}' is broken: {wrong}")


def settings_class_of(entry: Entry) -> type[MethodSettings] | None:
    """A method's settings class with the names, types and bounds that are literals in its source; None if a base is not found.

    A field that cannot be read has the type Any; if a class validates values before pydantic does, all fields have this type.
    """
    settings = _settings(list(_given(entry).values()))
    read = _read(entry.file, settings, DEEPEST) if entry.file is not None and settings is not None else None
    if read is None:
        return None
    fields: Any = {name: field if read.plain else (Any, field[1]) for name, field in read.fields.items()}
    return create_model("Settings", __base__=MethodSettings, **fields)


class _Read(NamedTuple):
    """What is known of a settings class: (type, Field) of each name, and whether only pydantic validates values."""

    fields: dict[str, tuple[object, object]]
    plain: bool


def _read(file: Path, reference: ast.expr, depth: int) -> _Read | None:
    """Read a settings class and its bases; None if one of them is not found or is not an ordinary class."""
    if _name(reference) in BASES:
        return _Read({}, True)
    found = _class(file, reference) if depth else None
    if found is None:
        return None
    where, node = found
    fields: dict[str, tuple[object, object]] = {}
    plain = True
    for base in reversed(node.bases):
        if (above := _read(where, base, depth - 1)) is None:
            return None
        fields, plain = fields | above.fields, plain and above.plain
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            if line.target.id == "model_config":
                return None
            fields[line.target.id] = _field(where, line)
        elif isinstance(line, ast.FunctionDef):
            plain = plain and all(_is_after(decorator) for decorator in line.decorator_list)
        elif isinstance(line, ast.Assign):  # a configuration, or a value that overrides a field
            return None
    return _Read(fields, plain)


def _is_after(decorator: ast.expr) -> bool:
    """Whether a decorator's function sees a setting's value only after pydantic has validated it, or never."""
    if not isinstance(decorator, ast.Call):
        return _name(decorator) in ("property", "staticmethod", "classmethod", "cached_property")
    return any(keyword.arg == "mode" and _text(keyword.value) == "after" for keyword in decorator.keywords)


def _field(file: Path, line: ast.AnnAssign) -> tuple[object, object]:
    known, default = _literal(file, _default(line.value) if line.value is not None else None)
    keywords = line.value.keywords if isinstance(line.value, ast.Call) else []
    if not known:  # its default may not have the type that was read
        return Any, Field(None, **_bounds(file, keywords, ("description",)))
    return _type(file, line.annotation, DEEPEST), Field(default, **_bounds(file, keywords))


def _bounds(file: Path, keywords: Sequence[ast.keyword], names: Sequence[str] = BOUNDS) -> dict[str, Any]:
    read = {keyword.arg: _literal(file, keyword.value) for keyword in keywords if keyword.arg in names}
    return {str(name): value for name, (known, value) in read.items() if known}


def _type(file: Path, node: ast.expr, depth: int) -> Any:
    """The type that an annotation stands for, as far as its source says; otherwise Any."""
    if not depth:
        return Any
    if isinstance(node, ast.Constant):
        return None if node.value is None else Any
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return Union[_type(file, node.left, depth - 1), _type(file, node.right, depth - 1)]  # noqa: UP007 - of values
    if isinstance(node, ast.Name):
        if node.id in TYPES:
            return TYPES[node.id]
        where = _assigned(file, node.id)
        return Any if where is None else _type(*where, depth - 1)
    if not isinstance(node, ast.Subscript):
        return Any
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if _name(node.value) == "Literal":
        read = [_literal(file, part) for part in parts]
        return Literal[tuple(value for _, value in read)] if all(known for known, _ in read) else Any
    if _name(node.value) == "Annotated" and len(parts) == 2 and isinstance(parts[1], ast.Call):
        return Annotated[_type(file, parts[0], depth - 1), Field(**_bounds(file, parts[1].keywords))]
    if _name(node.value) == "tuple" and len(parts) == 2 and _text(parts[1]) is ...:
        return tuple.__class_getitem__((_type(file, parts[0], depth - 1), ...))
    return Any


def _assigned(file: Path, name: str) -> tuple[Path, ast.expr] | None:
    """The expression assigned to a name, in this module or where the name is imported from."""
    for node in _tree(file).body:
        if isinstance(node, ast.Assign) and any(_name(target) == name for target in node.targets):
            return file, node.value
        if isinstance(node, ast.ImportFrom) and node.module:
            alias = next((alias for alias in node.names if (alias.asname or alias.name) == name), None)
            path = _file(node.module) if alias else None
            if alias and path and path != file:
                return _assigned(path, alias.name)
    return None


def _text(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _given(entry: Entry) -> dict[str, ast.expr]:
    """Arguments of the call that makes the method, by keyword or position, and of the partial call that it completes."""
    return {} if entry.file is None else _given_in(_tree(entry.file), entry.name)


@lru_cache(maxsize=256)
def _given_in(tree: ast.Module, name: str) -> dict[str, ast.expr]:
    for node in _calls_and_assignments(tree):
        if isinstance(node, ast.Call):
            given = _arguments(node)
            if _name(node.func) == "replace" and node.args and isinstance(node.args[0], ast.Call):
                given = {**given, **_arguments(node.args[0])}  # replace(velocity_method("dit", Settings, build), version=2)
            if any(isinstance(value, ast.Constant) and value.value == name for value in given.values()):
                given = {**_given_to(tree, _name(node.func)), **given}  # learned = partial(Method, settings=Settings)
                if _settings(list(given.values())) is not None:
                    return given
    return {}


@lru_cache(maxsize=256)
def _calls_and_assignments(tree: ast.Module) -> tuple[ast.Call | ast.Assign, ...]:
    """All calls and assignments of a file, which are searched for each method in it."""
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Assign))


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return {**{f"argument {index}": value for index, value in enumerate(call.args)}, **named}


def _settings(given: Sequence[ast.expr]) -> ast.expr | None:
    return next((value for value in given if _name(value).endswith("Settings")), None)


def _given_to(tree: ast.Module, name: str) -> dict[str, ast.expr]:
    """Arguments of the call that is assigned to a name."""
    for node in _calls_and_assignments(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name in map(_name, node.targets):
            return {f"{name} {key}" if " " in key else key: value for key, value in _arguments(node.value).items()}
    return {}


def _fields(file: Path, reference: ast.expr, depth: int) -> dict[str, Json]:
    """Defaults of the class that an expression of a file refers to, including those of its bases."""
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
    """(whether it is known, value) of a literal, or of a name to which the file assigns one."""
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
    """The source of a module of `compbench`, found without importing it; None for other modules."""
    if not module.startswith("compbench."):
        return None
    spec = importlib.util.find_spec("compbench")
    root = Path(spec.origin).parent if spec and spec.origin else Path()
    path = root.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return path if path.is_file() else None


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _tree(file: Path) -> ast.Module:
    """A file's tree, parsed again when the file has changed, as between edits in a notebook."""
    try:
        return tree_of(file)
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])
