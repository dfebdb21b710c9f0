"""Find plugins by their entry points.

Listing reads only metadata and docstrings.  Plugins load one by one, and their errors are caught.
Each plugin is in one of three states, always with the reason: `ok`, `broken` (its code fails) or `incompatible` (it needs
packages that are not installed, or another version of these interfaces).
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from compbench.registry.prose import parsed
from compbench.system.errors import CompbenchError, suggest

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from _typeshed.importlib import MetaPathFinderProtocol as MetaPathFinder

    from compbench.api.executor import Executor
    from compbench.api.interfaces import Method, Metric, Task

Kind = Literal["methods", "tasks", "metrics", "executors"]
KINDS: tuple[Kind, ...] = ("methods", "tasks", "metrics", "executors")
CLASSES: dict[Kind, str] = {
    "methods": "compbench.api.interfaces.Method",
    "tasks": "compbench.api.interfaces.Task",
    "metrics": "compbench.api.interfaces.Metric",
    "executors": "compbench.api.executor.Executor",
}
"""The class that each hook returns, by name, so that reading a plugin's metadata imports nothing."""
FUNCTIONS = ("fit", "sample", "build", "extend", "evaluations", "shared_fit")
"""Fields of a Method that are functions, or None where they may be absent."""
State = Literal["ok", "broken", "incompatible"]
TASK_MAKERS = frozenset({"Task", "replace"})
"""The calls that make a task; `replace` is that of `dataclasses`, which copies a task."""
NOTEBOOK = "notebook"
"""The distribution name of a method that does not come from a file."""


class Entry(NamedTuple):
    """A plugin as its metadata describes it; none of its code has been imported.

    Attributes:
        name: name of the entry point, which is the name of the method, task or metric.
        distribution, version: the package that it came with; a file given by --plugin has its path as distribution.
        module: its import path, or the file's path.
        file: its source, if that was found.
        summary: first line of the module's docstring, or the line that begins with the name.
        problem: why it cannot be used (a duplicate name, a missing module, a syntax error); "" if no problem is known.
    """

    kind: Kind
    name: str
    distribution: str
    version: str
    module: str
    file: Path | None
    summary: str
    problem: str = ""

    @property
    def sha256(self) -> str:
        """SHA-256 of the plugin's file."""
        return hashlib.sha256(self.file.read_bytes() if self.file else self.module.encode()).hexdigest()

    @property
    def root(self) -> Path | None:
        """The folder of its top-level package, or its file if that is in no package; None if no source was found."""
        if self.file is None or self.version == "file":
            return self.file
        depth = len(self.module.split(".")) - (self.file.name != "__init__.py")
        return self.file.parents[depth - 1] if depth else self.file


class Defined(NamedTuple):
    """A method defined in a notebook or a script, and a file with the source of its definitions (`notebook.cell_source`)."""

    method: Method
    file: Path


class LoadResult(NamedTuple):
    """The result of loading a plugin; `value` is the Method, Task, Metric or Executor if the state is ok."""

    entry: Entry
    state: State
    reason: str
    value: Any = None


class Registry:
    """All installed plugins, the files given by --plugin, and methods that a notebook or a script defined."""

    def __init__(self, files: tuple[Path, ...] = (), defined: tuple[Defined, ...] = ()) -> None:
        self._files, self._defined = files, defined
        self._entries: dict[Kind, tuple[Entry, ...]] = {}
        self._loaded: dict[Entry, LoadResult] = {}
        self._hooks: dict[tuple[Kind, str], tuple[ModuleType, dict[str, object]]] = {}

    def entries(self, kind: Kind) -> tuple[Entry, ...]:
        """All entries of a kind, sorted by name; no plugin is imported."""
        if kind not in self._entries:
            found = list(_installed(kind, _state_of_path()))
            found += [_file_entry(kind, path) for path in self._files if kind == "methods"]
            found += [_defined_entry(one) for one in self._defined if kind == "methods"]
            self._entries[kind] = tuple(_without_duplicates(sorted(found, key=lambda entry: entry.name)))
        return self._entries[kind]

    def names(self, kind: Kind) -> list[str]:
        return [entry.name for entry in self.entries(kind)]

    def entry(self, kind: Kind, name: str) -> Entry:
        """The entry with this name.  Raises CompbenchError with a suggestion if the name is unknown."""
        for entry in self.entries(kind):
            if entry.name == name:
                return entry
        raise suggest(kind[:-1], name, self.names(kind))

    @overload
    def load(self, kind: Literal["methods"], name: str) -> Method: ...

    @overload
    def load(self, kind: Literal["tasks"], name: str) -> Task: ...

    @overload
    def load(self, kind: Literal["metrics"], name: str) -> Metric: ...

    @overload
    def load(self, kind: Literal["executors"], name: str) -> Executor: ...

    def load(self, kind: Kind, name: str) -> Method | Task | Metric | Executor:
        """The Method, Task, Metric or Executor with this name.

        Raises:
            CompbenchError: the name is unknown, or the plugin is broken or incompatible; the message says why.
        """
        loaded = self.attempt(self.entry(kind, name))
        if loaded.state != "ok":
            raise CompbenchError(f"{kind[:-1]} '{name}' is {loaded.state}: {loaded.reason}")
        found: Method | Task | Metric | Executor = loaded.value
        return found

    def attempt(self, entry: Entry) -> LoadResult:
        """Load one plugin; any exception becomes its state.  Installed plugins that are ok are loaded only once."""
        if entry in self._loaded:
            return self._loaded[entry]
        found = self._attempt(entry)
        if found.state == "ok" and entry.version != "file":
            self._loaded[entry] = found
        return found

    def _attempt(self, entry: Entry) -> LoadResult:
        if entry.problem:
            return LoadResult(entry, "broken", entry.problem)
        if entry.distribution == NOTEBOOK:
            return LoadResult(entry, "ok", "", next(one.method for one in self._defined if one.file == entry.file))
        try:
            module = _import(entry)
            _check_api(module)
            return LoadResult(entry, "ok", "", self._hooked(module, entry))
        except ModuleNotFoundError as error:
            return LoadResult(entry, *_missing(error, entry))
        except CompbenchError as error:
            return LoadResult(entry, "incompatible" if "COMPBENCH_API" in str(error) else "broken", str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            return LoadResult(entry, "broken", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")

    def _hooked(self, module: ModuleType, entry: Entry) -> object:
        """What the module's hook returns under the entry point's name; an installed module's hook is called only once."""
        known, by_name = self._hooks.get((entry.kind, entry.module), (None, {}))
        if known is not module or entry.version == "file":
            by_name = _offered(module, entry)
            self._hooks[entry.kind, entry.module] = module, by_name
        if entry.name in by_name:
            return by_name[entry.name]
        raise CompbenchError(f"{entry.module} offers {', '.join(sorted(by_name))}, not '{entry.name}': rename one.")


def _state_of_path() -> tuple[tuple[str, int], ...]:
    """The folders that Python imports from, and when each last changed; installing or removing a package changes one."""
    return tuple((folder, os.stat(folder).st_mtime_ns) for folder in sys.path if os.path.isdir(folder))


@lru_cache(maxsize=16)
def _installed(kind: Kind, state: tuple[tuple[str, int], ...]) -> tuple[Entry, ...]:
    """Installed plugins of a kind, cached while no folder of `sys.path` changes, because chained runs ask for them repeatedly."""
    return tuple(_entry(kind, point) for point in entry_points(group=f"compbench.{kind}"))


def _entry(kind: Kind, point: EntryPoint) -> Entry:
    distribution, version = _owner(point.dist) if point.dist else ("?", "?")
    module = point.value.split(":")[0].strip()
    file = _locate(module)
    if file is None:
        problem = f"its module '{module}' was not found; reinstall {distribution}."
        return Entry(kind, point.name, distribution, version, module, None, "", problem)
    summary, problem = _summary(file, point.name)
    return Entry(kind, point.name, distribution, version, module, file, summary, problem)


@lru_cache(maxsize=64)
def _owner(distribution: Distribution) -> tuple[str, str]:
    """Name and version of a distribution, cached because each access parses its whole metadata."""
    return distribution.metadata["Name"], distribution.version


def _file_entry(kind: Kind, path: Path) -> Entry:
    if not os.path.isfile(path):  # unlike pathlib's, it raises no error if a name is too long
        raise CompbenchError(f"--plugin {path}: there is no such file.")
    summary, problem = _summary(path, path.stem)
    return Entry(kind, path.stem.replace("_", "-"), str(path), "file", str(path), path.resolve(), summary, problem)


def _defined_entry(one: Defined) -> Entry:
    return Entry("methods", one.method.name, NOTEBOOK, "file", str(one.file), one.file, "defined in a notebook or a script")


def _without_duplicates(entries: list[Entry]) -> list[Entry]:
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    kept = []
    for name, group in by_name.items():
        first = group[0]
        if len({(entry.distribution, entry.module) for entry in group}) > 1:
            owners = " and ".join(f"{entry.distribution} ({entry.module})" for entry in group)
            first = first._replace(problem=f"the name '{name}' is claimed by {owners}; uninstall one.")
        kept.append(first)
    return kept


def _locate(module: str) -> Path | None:
    """The source file of a module, without importing it or its parent packages."""
    path: list[str] | None = None
    spec = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        spec = next((s for finder in sys.meta_path if (s := _find_spec(finder, name, path)) is not None), None)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def _find_spec(finder: MetaPathFinder, name: str, path: list[str] | None) -> ModuleSpec | None:
    try:
        return finder.find_spec(name, path)
    except (AttributeError, ImportError, ValueError):
        return None


def _summary(file: Path, name: str) -> tuple[str, str]:
    """(summary, problem): the docstring's line about `name`, or its first line; a file that does not parse is broken."""
    found = _source(file)
    if found.problem:
        return "", found.problem
    lines = [line.strip() for line in found.docstring.strip().splitlines()]
    own = [line.removeprefix(name).strip() for line in lines if line.startswith(f"{name}  ")]
    return (own or lines or [""])[0], ""


def docstring(file: Path) -> str:
    """The docstring of a module's source; "" if it has none or does not parse."""
    return _source(file).docstring


def task_calls(file: Path) -> tuple[ast.Call, ...]:
    """The calls of a file that may make a task and name its family; () if it does not parse."""
    return _source(file).calls


class _Source(NamedTuple):
    """The cached facts of a parsed file; `problem` says why it does not parse."""

    docstring: str = ""
    problem: str = ""
    calls: tuple[ast.Call, ...] = ()


@lru_cache(maxsize=256)  # a family's file is read once per task
def _source(file: Path) -> _Source:
    """A source file, parsed completely, so that a syntax error is found without an import."""
    try:
        tree, has_family = _parsed(file)
    except (SyntaxError, ValueError, OSError) as error:
        return _Source(problem=f"{type(error).__name__}: {error}")
    nodes = ast.walk(tree) if has_family else ()  # walking a file takes half as long as parsing it
    calls = tuple(node for node in nodes if isinstance(node, ast.Call) and _called(node) in TASK_MAKERS)
    return _Source(ast.get_docstring(tree) or "", "", calls)


def tree_of(file: Path) -> ast.Module:
    """A file's tree, parsed again when the file has changed.  Raises OSError, SyntaxError or ValueError: it does not parse."""
    return _parsed(file).tree


class _Parsed(NamedTuple):
    """A file's tree, and whether its text may give a task's family."""

    tree: ast.Module
    has_family: bool


def _parsed(file: Path) -> _Parsed:
    state = file.stat()
    return _parsed_at(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)  # all files of compbench take 10 MB
def _parsed_at(file: Path, mtime_ns: int, size: int) -> _Parsed:
    text = file.read_text("utf-8")
    return _Parsed(parsed(text, file.name), bool(re.search(r"\bfamily\s*=", text)))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _import(entry: Entry) -> ModuleType:
    if entry.version != "file":
        return importlib.import_module(entry.module)
    spec = importlib.util.spec_from_file_location(f"compbench_plugin_{Path(entry.module).stem}", entry.module)
    if spec is None or spec.loader is None:
        raise CompbenchError(f"{entry.module} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _check_api(module: ModuleType) -> None:
    from compbench.api.interfaces import API_VERSION

    wanted = getattr(module, "COMPBENCH_API", API_VERSION)
    if wanted != API_VERSION:
        raise CompbenchError(f"written for COMPBENCH_API {wanted}, this compbench has {API_VERSION}; update the older one.")


def _offered(module: ModuleType, entry: Entry) -> dict[str, object]:
    """What the module's hook returns, by name."""
    import pluggy

    from compbench.api import hookspecs

    manager = pluggy.PluginManager("compbench")
    manager.add_hookspecs(hookspecs)
    manager.register(module, name=entry.name)
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise CompbenchError(f"misspelt hook: {str(error).splitlines()[0]}") from error
    groups = getattr(manager.hook, f"compbench_{entry.kind}")()
    for group in groups:
        _check_classes(group, entry.kind)
    values = [value for group in groups for value in group]
    if not values:
        raise CompbenchError(f"{entry.module} has no @hookimpl def compbench_{entry.kind}() that returns one.")
    by_name = {value.name: value for value in values}
    if len(by_name) < len(values):
        raise CompbenchError(f"{entry.module} returns two {entry.kind} with the same name.")
    return by_name


def _class_of(kind: Kind) -> type:
    module, _, name = CLASSES[kind].rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


def _check_classes(group: object, kind: Kind) -> None:
    """Raise CompbenchError unless a hook returned a tuple or a list of its kind's class."""
    found = "" if isinstance(group, tuple | list) else type(group).__name__
    for value in group if isinstance(group, tuple | list) else ():
        if not isinstance(value, _class_of(kind)):
            found = f"a {type(group).__name__} with {type(value).__name__} in it"
        for name in FUNCTIONS if kind == "methods" else ():
            if not callable(given := getattr(value, name, None)) and given is not None:
                raise CompbenchError(f"{name} of method '{value.name}' must be a function, got {given!r:.100}.")
    if found:
        wanted = CLASSES[kind].rpartition(".")[2]
        raise CompbenchError(f"compbench_{kind}() must return a tuple of {wanted}, got {found}.")


def _missing(error: ModuleNotFoundError, entry: Entry) -> tuple[State, str]:
    """State and reason of a plugin whose import is missing: broken if the plugin's own module is missing, else incompatible."""
    name = error.name or ""
    missing = name.split(".")[0]
    if missing == entry.module.split(".")[0]:
        return "broken", f"its own module '{error.name}' is missing; reinstall {entry.distribution}."
    if not missing:
        return "broken", f"{type(error).__name__}: {error}"
    if missing != name and importlib.util.find_spec(missing) is not None:
        return "broken", f"imports '{name}', and the installed '{missing}' has no such module."
    if missing in ("torch", "numpy", "safetensors", "h5py"):
        line = "pip install 'compbench[run]'"
    elif entry.version == "file":
        line = f"install the package that has it, often by `pip install {missing}`"
    else:
        line = f"pip install {entry.distribution}"
    return "incompatible", f"needs package '{missing}', which is not installed: {line}"
