"""The source of a method that was defined in a notebook's cell or a script, with its own definitions, as one text.

A run's identity hashes the meaning of a file (`compbench.registry.meaning`).  A method object has no file, so its functions and
the definitions that they use are copied one after another, with an import for each name from another module.  The text is parsed
but never run: a value appears as its repr, and a class without source as its schema.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import linecache
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from textwrap import dedent
from types import ModuleType

from compbench.api.interfaces import Method
from compbench.system.files import Json

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Pattern of an object's memory address, which a repr may contain and which has no meaning."""


def source_of(method: Method) -> str:
    """All definitions that a method's functions use, and the method itself; equal definitions give equal text."""
    values = {field.name: getattr(method, field.name) for field in fields(Method)}
    own = {inspect.unwrap(value).__module__ for value in values.values() if inspect.isroutine(value)}
    texts: dict[str, str] = {}
    for role, value in values.items():
        if callable(value):
            _write(getattr(value, "__name__", role), value, {name for name in own if not name.startswith("compbench.")}, texts)
    arguments = "".join(f"    {role}={_constant(value)},\n" for role, value in values.items())
    head = f'"""{method.name}, defined in a notebook or a script."""'
    return "\n\n".join([head, *texts.values(), f"METHOD = dict(\n{arguments})\n"])


def _write(name: str, value: object, own: set[str], texts: dict[str, str]) -> None:
    """Add the definition of a name, and everything that it refers to."""
    if name in texts:
        return
    texts[name] = ""  # reserves its position, and breaks cycles
    if isinstance(value, ModuleType):
        texts[name] = f"import {value.__name__} as {name}"
    elif not (inspect.isroutine(value) or inspect.isclass(value)):
        texts[name] = f"{name} = {_constant(value)}"
    elif value.__module__ not in own:
        texts[name] = f"from {value.__module__} import {value.__qualname__.partition('.')[0]} as {name}"
    else:
        text = _class_text(value) if inspect.isclass(value) else _function_text(value)
        texts[name] = text or f"{name} = {_constant(value)}"
        used = {node.id for node in ast.walk(ast.parse(texts[name])) if isinstance(node, ast.Name)}
        known = _names_of(value)
        for other in sorted(used & known.keys()):
            _write(other, known[other], own, texts)


def _names_of(value: Callable[..., object]) -> Mapping[str, Json]:
    """The objects behind the names in a function or class: globals, and variables of enclosing functions."""
    if inspect.isclass(value):
        return vars(sys.modules.get(value.__module__, ModuleType("none")))
    plain = inspect.unwrap(value)
    with contextlib.suppress(ValueError, TypeError):
        return {**plain.__globals__, **inspect.getclosurevars(plain).nonlocals}
    return getattr(plain, "__globals__", {})


def _function_text(function: Callable[..., object]) -> str:
    """A function's source, or its bytecode if it has no separate source, such as a lambda in a call; "" if it has neither."""
    with contextlib.suppress(OSError, TypeError, SyntaxError):
        text = dedent(inspect.getsource(inspect.unwrap(function)))
        ast.parse(text)
        return text.rstrip()
    code = getattr(function, "__code__", None)
    return f"{function.__name__.strip('<>')} = {_constant((code.co_code.hex(), code.co_consts, code.co_names))}" if code else ""


def _class_text(kind: type) -> str:
    """A class's source, which `inspect` does not find for a cell: then that of the last cell that defines it; "" if none does."""
    with contextlib.suppress(OSError, TypeError):
        return dedent(inspect.getsource(kind)).rstrip()
    for entry in reversed(list(linecache.cache.values())):
        text = "".join(entry[2]) if len(entry) > 2 else ""
        if f"class {kind.__name__}" in text:
            with contextlib.suppress(SyntaxError):
                for node in ast.parse(text).body:
                    if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                        return ast.get_source_segment(text, node) or ""
    return ""


def _constant(value: object) -> str:
    """A value as a text that parses: pydantic models by their schema, other classes and functions by name, all else by repr."""
    if inspect.isclass(value) and hasattr(value, "model_json_schema"):
        return repr(json.dumps(value.model_json_schema(), sort_keys=True))
    if inspect.isroutine(value) or inspect.isclass(value):
        return repr(f"{value.__module__}.{value.__qualname__}")
    return repr(ADDRESS.sub("", repr(value)))
