"""Hash what the code of a run means: the definitions that the run's numbers depend on, whatever their style.

    code = SHA-256 of the set { hash(definition, hashes of what it refers to) }

These are the definitions of the method's file, of the task's module and of the metrics that the task scores by, and all
definitions in compbench and in the plugin's own package that they refer to, also through imports inside functions.  Comments,
docstrings, formatting, annotations of functions, texts of errors and descriptions of settings do not count, and neither do the
names of modules and files, so moved or documented code stays the same code.  Modules of `HARNESS` are left out: they start,
check, time and record runs, and samples and scores depend on them only through the order of sums, which also depends on the
processor and torch (`system/bf16.py`, `system/cpu_kernels.py`, `system/weight_gradients.py`).  Other libraries are not followed;
a record names their versions.

Two kinds of statements do not count, because no number depends on them: one that only reports which conditions a loss regresses
on, `regressed(batch.condition)` (`system.condition_counts`), and one that takes a lock, `lock(file, wait=True)` (`system.files`).
Code that only a GPU runs counts only in GPU records: the statement `if on_gpu(device): ...`, or `if on_gpu(device) and ...:`,
without an else, where `on_gpu` comes from `compbench.system.devices`.

Sources are only parsed, never imported, so the parent process can compute the hash.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import compbench
from compbench.api.schemas import Record
from compbench.registry.equal_code import equal_code
from compbench.registry.registry import Entry, Registry
from compbench.registry.syntax import Chain, Module, Target, parse
from compbench.system.errors import CompbenchError

_ROOMS = "board cli diagnose gate notebook registry runner store sweep system testing"
_INTERFACES = "api.closures api.context api.executor api.hookspecs api.interfaces api.schemas"
_FILES_AND_PICTURES = "data.download data.pictures data.sources tasks.planning_picture"
HARNESS = frozenset(f"{_ROOMS} {_INTERFACES} {_FILES_AND_PICTURES}".split())
"""Modules of `compbench` on which numbers depend at most by rounding: the harness, the code that finds and checks data files (the
spec's fingerprint covers their content), and pictures."""

RUNNERS = (
    "compbench.runner.worker",
    "compbench.runner.one_run",
    "compbench.api.context",
    "compbench.system.devices",
    "compbench.api.federation",
)
"""Modules that run a method or are passed to it, in addition to its own code."""

PARTS = {"flow": "flow", "tasks": "task", "data": "data", "metrics": "metrics"}
"""Each folder of `compbench`, and the part of the code that it belongs to; all other folders are "core"."""

CPU = "cpu"
"""The device class of all CPUs (`compbench.system.devices.device_class`)."""

SCHEME = "meaning 2"
"""Version of the hash; it changes when the same code gets another hash."""

MOST_MODULES = 2000
"""Largest number of modules that stay parsed in one process."""

LONGEST_WAY = 50
"""A name is followed through at most this many modules."""


class Code(NamedTuple):
    """The code of a run.

    Attributes:
        digest: SHA-256 of all its definitions, 64 hex digits: part of a run's identity.
        parts: the digest of each part by name ("method", "flow", "task", "data", "metrics", "core"), to say what differs.
    """

    digest: str
    parts: dict[str, str]


class DefinitionHashes(NamedTuple):
    """One definition: the hash of its text, the hash of its text with everything that it refers to, and these references."""

    own: str
    linked: str
    onwards: tuple[Target, ...]


class Below(NamedTuple):
    """Everything that an entry depends on: the linked hashes of these definitions, and their own hashes by part."""

    linked: set[str]
    parts: dict[str, set[str]]


def code_of(
    registry: Registry,
    *,
    method: str,
    task: str,
    metrics: Iterable[str],
    device_class: str = CPU,
    kept: Kept | None = None,
    root: Path | None = None,
) -> Code:
    """The code of a method on a task that scores by some metrics; without a method (""), that of the task and the metrics.

    Args:
        registry: the registry that finds the source files.
        method, task, metrics: names.
        device_class: the run's device class as in its spec ("cpu", or a GPU's name).
        kept: parsed sources that several calls share while no source file changes.
        root: the folder that contains the package `compbench` of another checkout.

    Raises:
        CompbenchError: a name is unknown, or a file cannot be read or parsed.
    """
    known = set(registry.names("metrics"))
    scoring = [registry.entry("metrics", name) for name in sorted(set(metrics) & known)]
    roots = [("method", registry.entry("methods", method))] if method else []
    roots.append(("task", registry.entry("tasks", task)))
    return meaning(*roots, *(("metrics", entry) for entry in scoring), gpu=device_class != CPU, kept=kept, root=root)


def meaning(*roots: tuple[str, Entry], gpu: bool = True, kept: Kept | None = None, root: Path | None = None) -> Code:
    """The code that some entries' files depend on; each entry comes with the part that its own package belongs to.

    Without `gpu`, only code that a CPU runs counts.  `kept` and `root` are as in `code_of`.  For a method, its whole file counts.
    Tasks and metrics often share a file, so for them only the definitions that their hook refers to count.
    """
    sources = _Sources([entry for _, entry in roots], gpu=gpu, root=root)
    if kept is not None:
        sources = kept.setdefault(sources.scope, sources)
    linked: set[str] = set()
    own: dict[str, set[str]] = {}
    for part, entry in roots:
        below = sources.below(part, entry)
        linked |= below.linked
        for name, hashes in below.parts.items():
            own.setdefault(name, set()).update(hashes)
    return Code(_digest(linked), {part: _digest(hashes) for part, hashes in sorted(own.items())})


def for_gpus(*roots: tuple[str, Entry], kept: Kept, root: Path | None = None) -> str:
    """The hash of the definitions with GPU-only code, among those that some entries' files depend on."""
    made = [_Sources([entry for _, entry in roots], gpu=gpu, root=root) for gpu in (True, False)]
    whole, cpu = (kept.setdefault(sources.scope, sources) for sources in made)
    reached = whole.reached(target for _, entry in roots for target in whole.all_of(whole.name_of(entry)))
    return _digest({whole.hashed(one).own for one in reached if whole.hashed(one).own != cpu.hashed(one).own})


def executed(registry: Registry, *, method: str, task: str, metrics: Iterable[str]) -> str:
    """The hash of all code that a run executes, including the harness, and of the versions of Python and all packages.

    Two environments of one machine with the same hash do the same work in the same time, so the gate need not race them.

    Raises:
        CompbenchError: an unknown name, or a file that cannot be read or parsed.
    """
    entries = [registry.entry("methods", method), registry.entry("tasks", task)]
    entries += [registry.entry("metrics", name) for name in sorted(metrics)]
    sources = _Sources(entries, left_out=frozenset())
    modules = [*map(sources.name_of, entries), *RUNNERS]
    reached = sources.reached(target for name in modules for target in sources.all_of(name))
    packages = {one.metadata["Name"]: one.version for one in reversed(list(metadata.distributions()))}
    facts = [sys.version, platform.platform(), *(f"{name}=={version}" for name, version in packages.items())]
    return _digest([*facts, *{sources.hashed(target).linked for target in reached}])


def of_definitions(*definitions: type | Callable[..., object]) -> str:
    """The hash of functions and classes of compbench with everything that they depend on, for the name of a cache.

    For functions of other packages, only their qualified names count.
    """
    sources = _Sources([])
    targets = [Target(one.__module__, one.__qualname__.partition(".")[0]) for one in definitions]
    ours = [target for target in targets if target in sources.all_of(target.module)]
    others = [".".join(target) for target in targets if target not in ours]
    return _digest([*others, *{sources.hashed(target).linked for target in sources.reached(ours)}])


UNKNOWN = "unknown"
"""Takes the place of the differing parts if a record has no hashes of parts, as older records do not."""


def differing(record: Record, registry: Registry) -> tuple[str, ...]:
    """The parts of a record's code that differ from today's; () if the code is the same, or equal by the table of equal code.

    A record before format 6 names no parts, so this returns ("unknown",).

    Raises:
        CompbenchError: its method or task is not installed here.
    """
    spec = record.spec
    method = "" if record.samples_only and not record.plugin.distribution else spec.method
    today = code_of(registry, method=method, task=spec.task, metrics=spec.metrics, device_class=spec.device_class)
    return differing_from(record, today)


def differing_from(record: Record, today: Code) -> tuple[str, ...]:
    """The same as `differing`, if today's code is already known."""
    if not record.has_meaning:
        return (UNKNOWN,)
    table, known = equal_code(), record.code.parts
    if table.name(today.digest) == table.name(record.spec.code):
        return ()
    names = known.keys() | today.parts.keys()
    return tuple(sorted(name for name in names if table.name(known.get(name, "")) != table.name(today.parts.get(name, ""))))


def difference_in_words(differing: Sequence[str]) -> str:
    """The result of `differing` in words."""
    if not differing:
        return "the code is the same"
    if tuple(differing) == (UNKNOWN,):
        return "the record is older than hashes of meaning: whether the code is the same is not known"
    return f"the code differs in {', '.join(differing)}"


def _digest(hashes: Iterable[str], *, in_order: bool = False) -> str:
    return hashlib.sha256("\n".join([SCHEME, *(hashes if in_order else sorted(hashes))]).encode()).hexdigest()


class _Sources:
    """The source files of compbench and of some plugins' packages, by dotted module name."""

    def __init__(
        self, entries: Iterable[Entry], left_out: frozenset[str] = HARNESS, *, gpu: bool = True, root: Path | None = None
    ) -> None:
        self._left_out, self._gpu = left_out, gpu
        self._roots = {"compbench": root or Path(compbench.__file__).parents[1]}
        self._files: dict[str, Path] = {}
        for entry in entries:
            if entry.file is None:
                raise CompbenchError(f"'{entry.name}' cannot be used: {entry.problem or 'its source file was not found.'}")
            name = self.name_of(entry)
            self._files[name] = entry.file
            if entry.version != "file" and entry.root is not None:
                self._roots.setdefault(name.split(".")[0], entry.root.parent)
        self._modules: dict[str, Module | None] = {}
        self._hashed: dict[Target, DefinitionHashes] = {}
        self._below: dict[tuple[str, str], Below] = {}

    @property
    def scope(self) -> Hashable:
        """Everything besides the files that a definition's hash depends on; sources with the same scope are equal."""
        apart = {(name, file) for name, file in self._files.items() if self._below_a_root(name) != file}
        return self._gpu, self._left_out, frozenset(self._roots.items()), frozenset(apart)

    def name_of(self, entry: Entry) -> str:
        """The module's dotted name; a file given by --plugin is its own package."""
        return entry.module if entry.version != "file" else f"plugin {entry.module}"

    def part_of(self, module: str, own: str) -> str:
        package, _, rest = module.partition(".")
        return PARTS.get(rest.partition(".")[0], "core") if package == "compbench" else own

    def below(self, part: str, entry: Entry) -> Below:
        """What an entry depends on; its own package is reported under `part`."""
        name = self.name_of(entry)
        if (part, name) not in self._below:
            hooks = [target for target in self.all_of(name) if part != "method" and target.name.startswith("compbench_")]
            found = Below(set(), {})
            for target in self.reached(hooks or self.all_of(name)):
                hashed = self.hashed(target)
                found.linked.add(hashed.linked)
                found.parts.setdefault(self.part_of(target.module, part), set()).add(hashed.own)
            self._below[part, name] = found
        return self._below[part, name]

    def all_of(self, name: str) -> list[Target]:
        """Every definition of a module."""
        module = self._module(name)
        return [Target(name, definition) for definition in module.definitions] if module else []

    def reached(self, start: Iterable[Target]) -> set[Target]:
        """Some definitions and everything that they refer to, directly or indirectly."""
        found: set[Target] = set()
        waiting = list(start)
        while waiting:
            target = waiting.pop()
            if target not in found:
                found.add(target)
                waiting += [*self.hashed(target).onwards, Target(target.module, "")]
        return found

    def hashed(self, target: Target) -> DefinitionHashes:
        """The hashes of one definition; the name "" stands for statements of a module that define nothing."""
        if target not in self._hashed:
            local, chains = self._local(target)
            own, linked, onwards = [local], [local], []
            for found, label in map(self._resolved, chains):
                own.append(label)
                linked += [*(self._local(one)[0] for one in found), label]
                onwards += found
            self._hashed[target] = DefinitionHashes(_digest(own, in_order=True), _digest(linked, in_order=True), tuple(onwards))
        return self._hashed[target]

    def _local(self, target: Target) -> tuple[str, tuple[Chain, ...]]:
        module = self._module(target.module)
        assert module is not None
        return module.local(target.name, gpu=self._gpu)

    def _resolved(self, chain: Chain) -> tuple[list[Target], str]:
        """Our definitions that a dotted name stands for, and the rest of the name; for another library, the whole name."""
        name, rest = chain
        for _ in range(LONGEST_WAY):
            if name.partition(".")[0] not in self._roots and name not in self._files:
                return [], ".".join([name, *rest])
            deepest = next((k for k in range(len(rest), 0, -1) if self._module(".".join([name, *rest[:k]]))), 0)
            name, rest = ".".join([name, *rest[:deepest]]), rest[deepest:]
            module = self._module(name)
            if module is None:
                return [], ".".join(rest)
            if not rest:
                return self.all_of(name), ""
            if rest[0] in module.definitions:
                return [Target(name, rest[0])], ".".join(rest[1:])
            if rest[0] not in module.imports:
                return [], ".".join(rest)
            start, further = module.imports[rest[0]]
            name, rest = start, (*further, *rest[1:])
        raise CompbenchError(f"{chain[0]} imports '{'.'.join(chain[1])}' in a circle.")

    def _module(self, name: str) -> Module | None:
        if name not in self._modules:
            file = self._file(name)
            self._modules[name] = _parsed(file, name) if file else None
        return self._modules[name]

    def _is_left_out(self, name: str) -> bool:
        return any(name == own or name.startswith(f"{own}.") for own in self._left_out)

    def _file(self, name: str) -> Path | None:
        return self._files.get(name) or self._below_a_root(name)

    def _below_a_root(self, name: str) -> Path | None:
        package, _, rest = name.partition(".")
        if package not in self._roots or (package == "compbench" and self._is_left_out(rest)):
            return None
        if name == "compbench":
            return self._roots[name] / "compbench" / "__init__.pyi"  # this says what its lazy names stand for
        path = self._roots[package].joinpath(*name.split("."))
        return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


Kept = dict[Hashable, _Sources]
"""Parsed and hashed sources are kept by their scope."""


def _parsed(file: Path, name: str) -> Module:
    try:
        facts = file.stat()
        return _parse(file, name, facts.st_mtime_ns, facts.st_size)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise CompbenchError(f"{file} cannot be read as Python: {str(error)[:200]}.") from error


@lru_cache(maxsize=MOST_MODULES)
def _parse(file: Path, name: str, mtime: int, size: int) -> Module:
    return parse(file.read_text("utf-8"), name, is_package=file.name == "__init__.py")
