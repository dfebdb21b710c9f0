"""The base of `--base-ref`: a git worktree of the commit, and an environment in which its distributions are installed.

By default the environment is a bare venv that sees the packages of the running one (torch, numpy, ...) but not the head's
own distributions, so that it takes seconds; `--fresh-environment` installs everything anew, as the commit asks for it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from compbench.errors import CompbenchError
from compbench.gate.sides import CouldNotRun

INSTALL_SECONDS = 3600.0


def repository(folder: Path) -> Path:
    """The top of the git repository around `folder`.  Raises CompbenchError if there is none."""
    found = _git(folder, "rev-parse", "--show-toplevel")
    if found is None:
        raise CompbenchError(f"--base-ref: {folder} is in no git repository; use --base-python, or run the gate inside of one.")
    return Path(found)


def commit_of(top: Path, ref: str) -> str:
    """The commit of a name.  Raises CompbenchError if there is none, which in a shallow clone means that it was not fetched."""
    found = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if found is None:
        shallow = _git(top, "rev-parse", "--is-shallow-repository") == "true"
        hint = "this clone is shallow: fetch more of it (fetch-depth: 0)." if shallow else "`git log` shows what there is."
        raise CompbenchError(f"--base-ref {ref}: there is no such commit here; {hint}")
    return found


def messages_since(top: Path, base: str) -> str:
    """Messages of the commits after `base`."""
    return _git(top, "log", "--format=%B%n", f"{base}..HEAD") or ""


def last_message(folder: Path) -> str:
    """The last commit's message; nothing where there is no repository."""
    return _git(folder, "log", "--format=%B", "-1") or ""


@contextlib.contextmanager
def checked_out(top: Path, commit: str) -> Iterator[Path]:
    """A worktree of a commit, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="compbench-base-") as folder:
        place = Path(folder) / "tree"
        if _git(top, "worktree", "add", "--detach", "--force", str(place), commit) is None:
            raise CouldNotRun(
                f"git could not make a worktree of {commit[:12]}; `git worktree prune` clears what an earlier one left."
            )
        try:
            yield place
        finally:
            _git(top, "worktree", "remove", "--force", str(place))


def environment(tree: Path, top: Path, folder: Path, *, fresh: bool) -> Path:
    """An environment with the distributions of a worktree.

    Args:
        tree: the worktree of the base.
        top: the head's repository, none of which the environment may see.
        folder: where the environment goes.
        fresh: install every package anew instead of seeing those of the running environment.

    Returns:
        its interpreter.

    Raises:
        CouldNotRun: it could not be made, with the last line of what failed.
    """
    _run([sys.executable, "-m", "venv", *([] if fresh else ["--without-pip"]), str(folder)])
    python = folder / "bin" / "python"
    projects = _projects(tree)
    if not projects:
        raise CouldNotRun("the base has no pyproject.toml with a [project] table, at its top or in plugins/*.")
    words = [word for project in projects for word in ("-e", _requirement(project, extras=fresh))]
    if fresh:
        _run([str(python), "-m", "pip", "install", "--quiet", *words])
        return python
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}, scheme="venv"))
    (site / "inherited.pth").write_text("".join(f"{path}\n" for path in _inherited(top, tree)), encoding="utf-8")
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    options = ["--quiet", "--no-deps", "--ignore-installed", "--no-warn-script-location", *isolation]
    _run([str(python), "-m", "pip", "install", *options, *words])
    return python


def counterpart(path: Path, top: Path, tree: Path) -> Path:
    """Where a worktree has what `path` is in the repository; the path itself if it lies outside."""
    return tree / path.relative_to(top) if path.is_relative_to(top) else path


def _inherited(top: Path, tree: Path) -> list[str]:
    """Where the running interpreter finds packages, apart from the standard library and the head's repository."""
    standard = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    found = []
    for word in sys.path:
        path = Path(word).resolve() if word else Path.cwd()
        known = path in standard or (path.parent in standard and path.name == "lib-dynload")
        if path.is_dir() and not known and not _is_source(path, top) and str(path) not in found:
            found.append(str(path))
    return found


def _is_source(path: Path, top: Path) -> bool:
    """Whether a folder is the head's source, and not an environment that lies inside of its repository."""
    return path.is_relative_to(top.resolve()) and path.name not in ("site-packages", "dist-packages")


def _projects(tree: Path) -> list[Path]:
    """Distributions of a worktree: at its top, and one a folder in plugins/."""
    return [
        path.parent for path in [tree / "pyproject.toml", *sorted(tree.glob("plugins/*/pyproject.toml"))] if _is_project(path)
    ]


def _is_project(path: Path) -> bool:
    try:
        return "project" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _requirement(project: Path, *, extras: bool) -> str:
    """The project's path, with its `run` extra where it has one and everything is installed anew."""
    described = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    has_run = "run" in described.get("optional-dependencies", {})
    return f"{project}[run]" if extras and has_run else str(project)


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()] or ["no word"]
        raise CouldNotRun(f"no environment for the base: {' '.join(words[1:4])} ... failed: {lines[-1][:300]}")


def _git(folder: Path, *words: str) -> str | None:
    """What git prints; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
