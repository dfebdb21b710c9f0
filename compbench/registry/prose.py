"""Remove text for people from a parsed module, so that a run's identity does not depend on its words.

Two things are removed: arguments of `WORDS` (a task's notes and family, a field's description, ...) wherever they are passed; and
then, in each function, local names that nothing reads any more, with the statements that only build them:

    words = "three modes" if far else "two"                 nothing else reads `words`: removed
    notes = []
    if far: notes.append("the modes lie far apart")         removed, with its `if`
    return Task(summary=f"{words} in the plane", notes=notes, ...)

Only statements that clearly compute nothing are removed: a statement with a call stays, except `LIST_METHODS` and `QUESTIONS`.
One that adds to a name stays if the name may stand for another object, which it changes: `names = self.names; names += ["a"]`.
"""

from __future__ import annotations

import ast
import os
import threading
from collections import Counter
from collections.abc import Iterator

TASK_FACTS = frozenset({"family", "core", "files", "extra", "extra_for", "features"})
"""Arguments of a task about how it is listed, what it needs and what it offers to metrics; nothing computes with them."""
TASK_WORDS = frozenset({"summary", "citation", "notes", "paper_notes", "real_pictures"}) | TASK_FACTS
WORDS = {
    "Field": frozenset({"description"}),
    "Task": TASK_WORDS,
    "Metric": frozenset({"summary", "features"}),
    "Method": frozenset({"search"}),
    "replace": TASK_WORDS | {"search"},
}
"""Arguments that are only read or looked at by people, by the name of the called function; `replace` is that of `dataclasses`,
which copies a task or a method."""
SECOND = frozenset({"Task", "Metric"})
"""Classes that take the summary as the second positional argument."""

LIST_METHODS = frozenset({"append", "extend"})
"""Calls that add to a list of words."""
QUESTIONS = frozenset({"startswith", "endswith"})
"""Calls that choose words and have no side effect."""

_PARSING = threading.Lock()
os.register_at_fork(before=_PARSING.acquire, after_in_parent=_PARSING.release, after_in_child=_PARSING.release)

PLAIN = (
    ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Dict,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Starred, ast.Slice,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
"""An expression made of these nodes alone has no side effect."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parsed(source: str, file: str = "<unknown>") -> ast.Module:
    """`ast.parse`, by one thread at a time.

    Python 3.11.7 raises "SystemError: AST constructor recursion depth mismatch" where other threads parse at the same time.

    Raises:
        SyntaxError: it is not Python.
        ValueError: it has a null character.
        RecursionError: it is nested too deeply.
    """
    with _PARSING:
        return ast.parse(source, file)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node, in order, without contexts (`ast.Load` and the like): twice as fast as Python's own."""
    found: list[ast.AST] = []
    held = node.__dict__  # an optional field may be missing
    for name in node._fields:
        value = held.get(name)
        if isinstance(value, ast.AST):
            if name != "ctx":
                found.append(value)
        elif isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST)]
    return found


def walk(*nodes: ast.AST) -> list[ast.AST]:
    """Some nodes and all nodes below them, in breadth-first order."""
    found = list(nodes)
    for node in found:
        found += children(node)
    return found


def without_prose(tree: ast.Module) -> ast.Module:
    """Remove arguments that are words, and statements that only build them, from a module in place; return the module."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            called = _last_name(node.func)
            if called == "partial" and node.args:
                called = _last_name(node.args[0])
            elif called in SECOND:
                del node.args[1:2]
            words = WORDS.get(called, frozenset())
            if called == "replace" and not {"name", "family"} <= {keyword.arg for keyword in node.keywords}:
                words -= TASK_FACTS  # a copy of another object may have a `core` or `files` that counts
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in words]
    for node in walk(tree):
        if isinstance(node, FUNCTIONS):
            while unread := _unread(node):
                node.body = _without(node.body, unread)
    return tree


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _unread(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Local names that only removable statements build, and that no other statement reads or sets."""
    stored, added = Counter[str](), Counter[str]()
    grown, aliases = set[str](), set[str]()
    for statement in _statements(function.body):
        if name := _built(statement):
            (added if isinstance(statement, ast.Expr) else stored)[name] += 1
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                aliases |= set() if _is_new(statement.value) else {name}
            else:
                grown.add(name)
    if not stored:
        return set()
    everything = walk(*function.body)
    reads = Counter(node.id for node in everything if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    writes = Counter(node.id for node in everything if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    taken = {arg.arg for arg in walk(function.args) if isinstance(arg, ast.arg)}
    taken |= {name for node in everything if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    taken |= grown & aliases
    return {name for name in stored if name not in taken and writes[name] == stored[name] and reads[name] == added[name]}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body and of the `if`s in it, which `_without` can remove."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)


def _built(statement: ast.stmt) -> str:
    """The name that a statement only builds: `name = plain`, `name += plain`, `name.append(plain)`; else ""."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        added = isinstance(call.func, ast.Attribute) and call.func.attr in LIST_METHODS and len(call.args) == 1
        if not added or call.keywords:
            return ""
        assert isinstance(call.func, ast.Attribute)
        target, value = call.func.value, call.args[0]
    else:
        return ""
    return target.id if isinstance(target, ast.Name) and _is_plain(value) else ""


def _is_new(value: ast.expr | None) -> bool:
    """Whether an expression makes an object that nothing else refers to: a literal, or a choice of literals."""
    if isinstance(value, ast.IfExp):
        return _is_new(value.body) and _is_new(value.orelse)
    return isinstance(value, ast.Constant | ast.JoinedStr | ast.Tuple | ast.List | ast.Dict)


def _is_plain(value: ast.expr) -> bool:
    return all(
        isinstance(node, PLAIN) or (isinstance(node, ast.Call) and _last_name(node.func) in QUESTIONS and not node.keywords)
        for node in walk(value)
    )


def _without(body: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """A body without the statements that build some names, and without an `if` that became empty."""
    left: list[ast.stmt] = []
    for statement in body:
        if _built(statement) in names:
            continue
        if isinstance(statement, ast.If) and _is_plain(statement.test):
            before = statement.body, statement.orelse
            statement.body, statement.orelse = (_without(part, names) for part in before)
            if not statement.body and not statement.orelse:
                continue
            statement.body = statement.body or [ast.Pass()]
        left.append(statement)
    return left
