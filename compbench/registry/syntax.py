"""Split a module's source into definitions, each with its text (no comments, no layout) and the names that it refers to."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from compbench.registry.prose import children, parsed, without_prose

Chain = tuple[str, tuple[str, ...]]
"""A module in which a search begins, and the dotted name to find in it."""

GPU_ONLY: Chain = ("compbench.system.devices", ("on_gpu",))
"""This function returns False on a CPU: the body of `if on_gpu(device): ...` does not count as code that a CPU runs."""

MARKS: tuple[Chain, ...] = (
    ("compbench.system.condition_counts", ("regressed",)),
    ("compbench.system.condition_counts", ("experts_regressed",)),
    ("compbench", ("regressed",)),
)
"""A statement that calls one of these, with names as arguments, only reports to the harness what to count; no result depends
on it."""

LOCKS: tuple[Chain, ...] = (("fcntl", ("flock",)), ("compbench.system.files", ("lock",)))
"""A statement that calls one of these waits until another process has made a file; no result depends on it."""

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WITHOUT_EFFECT = (*IMPORTS, ast.Pass, ast.Global)
NAMED = (*DEFINITIONS, ast.ExceptHandler)
DOTTED = (ast.Name, ast.Attribute)
PLACES = (ast.Name, ast.Attribute, ast.Subscript)
NOT_ENTERED = (*SCOPES, *COMPREHENSIONS, ast.ClassDef)
"""Nodes with their own scope."""
UNWRITTEN = frozenset({"ctx", "type_comment", "kind", "type_params"})
"""Fields of nodes that do not change the meaning, or that some Python versions lack."""


class Target(NamedTuple):
    """One definition: a module and a top-level name; "" stands for its statements that define nothing."""

    module: str
    name: str


class Module:
    """A parsed module.

    Attributes:
        name: the module's dotted name.
        definitions: name -> the statements that define it, in order.
        imports: top-level name -> the module and the name that it is imported from.
    """

    def __init__(self, name: str, package: str) -> None:
        self.name, self.package = name, package
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, Chain] = {}
        self._local: dict[tuple[str, bool], tuple[str, tuple[Chain, ...]]] = {}

    def local(self, name: str, *, gpu: bool = True) -> tuple[str, tuple[Chain, ...]]:
        """(hash of a definition's own text, its references in order of appearance), with or without GPU-only code."""
        if (name, gpu) not in self._local:
            writer = _Writer(self, gpu=gpu)
            text = "\n".join(writer.statements(self.definitions.get(name, [])))
            self._local[name, gpu] = hashlib.sha256(text.encode()).hexdigest(), tuple(writer.chains)
        return self._local[name, gpu]

    def absolute(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that an import names; a relative import begins at the package."""
        if not node.level:
            return node.module or ""
        base = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])


def parse(source: str, name: str, *, is_package: bool = False) -> Module:
    """Read a module's source.

    Raises:
        SyntaxError: it is not Python.
    """
    module = Module(name, name if is_package else name.rpartition(".")[0])
    module.definitions[""] = []
    for statement in without_prose(parsed(source)).body:
        _take_up(module, statement)
    return module


def _take_up(module: Module, statement: ast.stmt) -> None:
    """Store a top-level statement of a module under every name that it binds."""
    if isinstance(statement, ast.If) and _is_for_type_checkers(statement.test):
        for inner in statement.orelse:
            _take_up(module, inner)
        return
    imported = dict(_imported(module, _own_nodes(statement)))
    module.imports.update(imported)
    if isinstance(statement, IMPORTS) or _is_text(statement):
        return
    names = _bound(statement) - imported.keys()
    for name in [*names, *([""] if not names or isinstance(statement, COMPOUND) else [])]:
        module.definitions.setdefault(name, []).append(statement)


def _is_for_type_checkers(test: ast.expr) -> bool:
    return ast.unparse(test).rpartition(".")[2] == "TYPE_CHECKING"


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is only a string: a docstring of any kind."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imported(module: Module, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Chain]]:
    """Names bound by imports among some nodes."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, (module.absolute(node), (alias.name,))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, (alias.name, ())) if alias.asname else (top, (top, ()))


def _own_nodes(*nodes: ast.AST) -> list[ast.AST]:
    """Some nodes and the nodes in their scope, in order; functions, classes and comprehensions are listed, but not entered."""
    found, waiting = [], list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, NOT_ENTERED):
            waiting += reversed(children(node))
    return found


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement defines or changes; `x[...] = y` and `x.a = y` change x."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    names = set()
    for node in _own_nodes(statement):
        if isinstance(node, DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, PLACES) and isinstance(node.ctx, ast.Store):
            base: object = node
            while isinstance(base, PLACES[1:]):
                base = base.value
            names |= {base.id} if isinstance(base, ast.Name) else set()
    return names


def _locals(function: Scope, nodes: Iterable[ast.AST]) -> set[str]:
    """Names that a function itself binds; `nodes` are those of its body."""
    arguments = function.args
    own = {arg.arg for arg in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    own |= {arg.arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, NAMED) and node.name:
            own.add(node.name)
        elif isinstance(node, ast.Global):
            own -= set(node.names)
    return own


class _Writer:
    """Write statements as canonical text, the same on every Python version: empty fields are left out.

    A name that is imported or defined at the top of the module is written as a number; `chains` says what it stands for.
    """

    def __init__(self, module: Module, *, gpu: bool) -> None:
        self.module, self.gpu = module, gpu
        self.chains: list[Chain] = []
        self._scopes: list[tuple[set[str], Mapping[str, Chain]]] = []

    def statements(self, body: list[ast.stmt]) -> list[str]:
        written = []
        for statement in body:
            if _is_text(statement) or isinstance(statement, WITHOUT_EFFECT):
                continue
            if self._is_mark(statement) or (not self.gpu and self._is_for_gpus(statement)):
                continue
            if isinstance(statement, ast.AnnAssign) and self._scopes:  # in a function, an annotation does nothing
                if statement.value is not None:
                    written.append(f"Assign({self.write(statement.target)},{self.write(statement.value)})")
                continue
            written.append(self.write(statement))
        return written

    def write(self, node: object) -> str:
        if isinstance(node, list):
            if node and isinstance(node[0], ast.stmt):
                return f"[{','.join(self.statements(node))}]"
            return f"[{','.join(self.write(part) for part in node)}]"
        if not isinstance(node, ast.AST):
            return repr(node)
        if isinstance(node, DOTTED) and (parts := _dotted(node)):
            return self._name(parts)
        if isinstance(node, SCOPES):
            return self._function(node)
        if isinstance(node, ast.Raise):
            return f"Raise({self.write(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)})"
        return self._node(node)

    def _node(self, node: ast.AST) -> str:
        fields = ((name, getattr(node, name, None)) for name in node._fields if name not in UNWRITTEN)
        written = [f"{name}={self.write(value)}" for name, value in fields if value is not None and value != []]
        return f"{type(node).__name__}({','.join(written)})"

    def _function(self, node: Scope) -> str:
        """A function without its annotations; decorators and defaults belong to the scope around it."""
        arguments = node.args
        around = [
            self.write(part) for part in [*getattr(node, "decorator_list", []), *arguments.defaults, *arguments.kw_defaults]
        ]
        groups = (arguments.posonlyargs, arguments.args, [arguments.vararg], arguments.kwonlyargs, [arguments.kwarg])
        names = "|".join(",".join(arg.arg for arg in group if arg is not None) for group in groups)
        body: list[ast.stmt] = node.body if isinstance(node.body, list) else [ast.Expr(node.body)]
        nodes = _own_nodes(*body)
        imported = dict(_imported(self.module, nodes))
        self._scopes.append((_locals(node, nodes) - imported.keys(), imported))
        inside = self.statements(body) if isinstance(node.body, list) else [self.write(body[0])]
        self._scopes.pop()
        return f"{type(node).__name__}({getattr(node, 'name', '')},{names},[{','.join(around)}],[{','.join(inside)}])"

    def _is_mark(self, node: ast.stmt) -> bool:
        """Whether a statement is `regressed(a, b.c)`, with only names and attributes, or `lock(a, wait=True)`, with constants."""
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not all(map(_dotted, call.args)):
            return False
        called = self._stands_for(_dotted(call.func))
        constants = all(isinstance(keyword.value, ast.Constant) for keyword in call.keywords)
        return (called in MARKS and not call.keywords) or (called in LOCKS and constants)

    def _is_for_gpus(self, node: ast.stmt) -> bool:
        """Whether a statement is `if on_gpu(device): ...` without an else, with a name or an attribute; `and` may follow."""
        test = node.test if isinstance(node, ast.If) and not node.orelse else None
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            test = test.values[0]
        if not isinstance(test, ast.Call) or len(test.args) != 1 or test.keywords or not _dotted(test.args[0]):
            return False
        return self._stands_for(_dotted(test.func)) == GPU_ONLY

    def _name(self, parts: list[str]) -> str:
        chain = self._stands_for(parts)
        if chain is None:
            return ".".join(parts)
        self.chains.append(chain)
        return f"@{len(self.chains)}"

    def _stands_for(self, parts: list[str]) -> Chain | None:
        """The origin of a dotted name that is top-level here or imported; None for a function's own names and builtins."""
        if not parts:
            return None
        for own, imported in reversed(self._scopes):
            if parts[0] in imported:
                return self._further(imported[parts[0]], parts)
            if parts[0] in own:
                return None
        if parts[0] in self.module.definitions:
            return self.module.name, tuple(parts)
        if parts[0] in self.module.imports:
            return self._further(self.module.imports[parts[0]], parts)
        return None

    def _further(self, origin: Chain, parts: list[str]) -> Chain:
        start, further = origin
        return start, (*further, *parts[1:])


def _dotted(node: ast.AST) -> list[str]:
    """The parts of `a.b.c`; [] for any other node."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []
