"""Where a run's code comes from: distribution and file, git commit and changes since then, and hash of meaning.

The result never contains a path, a branch or a person's name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

import compbench
from compbench.api.schemas import Checkout, Code, Plugin, Record, RunRequest
from compbench.registry.meaning import CPU, code_of, meaning
from compbench.registry.registry import NOTEBOOK, Registry
from compbench.system.errors import CompbenchError

SECONDS = 30.0
"""Longest wait for git in seconds; git answers in milliseconds, but a hanging file system must not delay a run."""


def checkout_of(file: Path, root: Path | None = None) -> Checkout:
    """The commit of the repository that a source file belongs to; empty if it is in none, or is ignored there.

    Clean means that no file below `root` (the folder of the file's package, else the file's folder) differs from the commit or is
    new; edits elsewhere in the repository do not count, because they do not change this code.
    """
    if _lines(file.parent, "check-ignore", "--", file.name):
        return Checkout()  # for example in an environment inside of a repository
    folder = root if root is not None and root.is_dir() else file.parent
    lines = _lines(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--", ".")
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), "")
    if not commit or commit.startswith("("):  # "(initial)" means that nothing was committed yet
        return Checkout()
    return Checkout(commit=commit, clean=all(line.startswith("#") for line in lines))


def origin_of(request: RunRequest, registry: Registry, metrics: Iterable[str], device_class: str) -> tuple[str, Code]:
    """(hash of all code that a request runs on a class of devices, its parts and commits), as this process finds the code.

    Raises:
        CompbenchError: a source file cannot be read or parsed.
    """
    code = code_of(registry, method=request.method, task=request.task, metrics=metrics, device_class=device_class)
    entry = registry.entry("methods", request.method)
    own, plugin = checkout_of(Path(compbench.__file__)), checkout_of(entry.file, entry.root) if entry.file else Checkout()
    return code.digest, Code(parts=code.parts, compbench=own, plugin=plugin)


def task_origin(request: RunRequest, registry: Registry, metrics: Iterable[str], device_class: str) -> tuple[str, Code]:
    """Where the code of a task and its metrics comes from, without a method."""
    code = code_of(registry, method="", task=request.task, metrics=metrics, device_class=device_class)
    return code.digest, Code(parts=code.parts, compbench=checkout_of(Path(compbench.__file__)))


def sources_of(registry: Registry) -> frozenset[tuple[str, int, int]]:
    """All Python files of compbench and of the plugins that a run can import, each with its time of change and its size."""
    entries = [entry for kind in ("methods", "tasks", "metrics") for entry in registry.entries(kind)]
    roots = {Path(compbench.__file__).parent, *(entry.root for entry in entries if entry.root is not None)}
    files = {root for root in roots if root.is_file()}
    for folder, _, names in (found for root in roots for found in os.walk(root)):
        files |= {Path(folder, name) for name in names if name.endswith(".py")}
    sources = set()
    for file in files:
        with contextlib.suppress(OSError):
            facts = file.stat()
            sources.add((str(file), facts.st_mtime_ns, facts.st_size))
    return frozenset(sources)


def plugin_of(request: RunRequest, registry: Registry) -> Plugin:
    """The method's distribution and file as found by this process, before any of the method's code has run."""
    entry = registry.entry("methods", request.method)
    try:
        return Plugin(
            distribution=Path(entry.distribution).name,
            version=entry.version,
            module=entry.module if entry.version != "file" else Path(entry.module).name,
            file_sha256=entry.sha256,
        )
    except (ValidationError, OSError) as error:
        raise CompbenchError(f"the plugin of '{request.method}' cannot be read: {str(error)[:300]}.") from error


def registry_of(record: Record, plugins: Sequence[Path] = ()) -> Registry:
    """A registry that has the plugin of a record: everything installed, and the files of `plugins`.

    Raises:
        CompbenchError: the record's method came from a file or a notebook, and is neither installed nor among the files.
    """
    registry, method, plugin = Registry(tuple(plugins)), record.spec.method, record.plugin
    if plugin.version == "file" and method not in registry.names("methods"):
        origin = "a notebook; save it as a file and" if plugin.distribution == NOTEBOOK else f"the file {plugin.module};"
        raise CompbenchError(
            f"method '{method}' of {record.name} is not installed; it came from {origin} name the file with --plugin."
        )
    return registry


def scope_of(request: RunRequest, registry: Registry, device_class: str) -> str:
    """Hash of the code that a shared fit may run: the task's code, and that of all methods of the request's distribution.

    Fits are shared only among these methods.
    """
    own = registry.entry("methods", request.method)
    siblings = [entry for entry in registry.entries("methods") if entry.distribution == own.distribution and not entry.problem]
    task = registry.entry("tasks", request.task)
    code = meaning(("task", task), *(("method", entry) for entry in siblings), gpu=device_class != CPU)
    return hashlib.sha256(f"{own.distribution} {code.digest}".encode()).hexdigest()


def git(folder: Path, *arguments: str, seconds: float = SECONDS) -> bytes:
    """The output of git in a folder.  Raises CompbenchError: git fails, or is not installed."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompbenchError(f"git does not answer: {error}.") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"git {arguments[0]} failed"]
        raise CompbenchError(f"{lines[-1][:200]}.")
    return done.stdout


def _lines(folder: Path, *arguments: str) -> list[str]:
    """Lines that git prints; none if git fails or is not installed."""
    with contextlib.suppress(CompbenchError):
        return git(folder, *arguments).decode(errors="replace").splitlines()
    return []
