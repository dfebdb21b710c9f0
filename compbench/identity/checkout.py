"""Which git commit some code is of, and whether it was changed since.  Never a path, a branch or a name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import compbench
from compbench.identity.meaning import code_of
from compbench.registry import Registry
from compbench.schemas import Checkout, Code, RunRequest

SECONDS = 20.0
"""Git answers in milliseconds; on a file system that hangs it must not hold up a run."""


def checkout_of(file: Path) -> Checkout:
    """The commit of the repository that a source file belongs to; nothing where it is in none, or is ignored there.

    Clean means that nothing below the file's folder differs from the commit and that no new file lies there: what is edited
    elsewhere in the repository is not this code.
    """
    if _git(file.parent, "check-ignore", "--", file.name):
        return Checkout()  # as of an environment that lies in someone's repository
    said = _git(file.parent, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--", ".") or ""
    commit = next((line.split()[2] for line in said.splitlines() if line.startswith("# branch.oid ")), "")
    if not commit or commit.startswith("("):  # "(initial)": nothing was committed yet
        return Checkout()
    return Checkout(commit=commit, clean=all(line.startswith("#") for line in said.splitlines()))


def origin_of(request: RunRequest, registry: Registry, metrics: Iterable[str]) -> tuple[str, Code]:
    """(hash of all code that a request runs, its parts and commits), as this process finds it.

    Raises:
        CompbenchError: a source file that cannot be read or parsed.
    """
    code = code_of(registry, method=request.method, task=request.task, metrics=metrics)
    file = registry.entry("methods", request.method).file
    own, plugin = checkout_of(Path(compbench.__file__)), checkout_of(file) if file else Checkout()
    return code.digest, Code(parts=code.parts, compbench=own, plugin=plugin)


def task_origin(request: RunRequest, registry: Registry, metrics: Iterable[str]) -> tuple[str, Code]:
    """The same of a task and its metrics alone: there is no method."""
    code = code_of(registry, method="", task=request.task, metrics=metrics)
    return code.digest, Code(parts=code.parts, compbench=checkout_of(Path(compbench.__file__)))


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails, or is not here."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
