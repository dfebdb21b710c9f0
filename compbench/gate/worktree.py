"""The base of `--base-ref`: a git worktree of the commit, and an environment in which its distributions are installed.

The environment is a bare venv that sees the packages of the running environment (torch, numpy, ...) but not the head's own
distributions, so that setting it up takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import sysconfig
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from compbench.gate.sides import SUPERVISOR, CouldNotRun, Side, Unable, supervised
from compbench.registry.checkout import git
from compbench.runner.processes import last_line
from compbench.system.errors import CompbenchError
from compbench.system.files import remove_tree
from compbench.system.home import home_beside, is_in_use, scratch_folder, scratch_prefix

TREE = "base"
"""Name of a base's worktree, in a scratch folder."""
CHECKOUT_SECONDS, INSTALL_SECONDS = 600.0, 3600.0
BASE = "--base-ref"
"""The option of `gate` that names a commit; errors begin with it, or with the option of another command."""


def repository(folder: Path, option: str = BASE) -> Path:
    """The top of the git repository around `folder`.  Raises CompbenchError, which begins with the option, if there is none."""
    found = _git(folder, "rev-parse", "--show-toplevel")
    if found is None:
        cure = "run the gate inside one, or use --baseline" if option == BASE else "run the command inside one"
        raise CompbenchError(f"{option}: {folder} is not in a git repository; {cure}.")
    return Path(found)


def commit_of(top: Path, ref: str, option: str = BASE) -> str:
    """The commit that a name refers to.  Raises CompbenchError if there is none; a shallow clone may not have fetched it."""
    found = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if found is None:
        shallow = _git(top, "rev-parse", "--is-shallow-repository") == "true"
        hint = "this clone is shallow: fetch more of it (fetch-depth: 0)." if shallow else "`git log` shows what there is."
        raise CompbenchError(f"{option} {ref}: this repository has no such commit; {hint}")
    return found


def messages(folder: Path, since: str = "") -> str:
    """Messages of the commits after `since`, or of the last commit; "" outside of a repository."""
    return _git(folder, "log", "--format=%B%n", *([f"{since}..HEAD"] if since else ["-1"])) or ""


@contextlib.contextmanager
def built(ref: str, folder: Path, data: Path, plugins: Sequence[Path]) -> Iterator[Side]:
    """The side of a commit of the surrounding repository; it is deleted afterwards.

    Args:
        ref: name of the commit.
        folder: folder for its home and its environment.
        data: the user's official data.
        plugins: files of the head that are not installed; for files in the repository, the commit's versions are used.

    Raises:
        CompbenchError: there is no repository, or no such commit.
        CouldNotRun: its environment could not be made.
    """
    top = repository(Path.cwd())
    with checked_out(top, commit_of(top, ref)) as tree:
        alone = bool(plugins) and not _projects(tree)  # files that need no installation
        python = Path(sys.executable) if alone else environment(tree, top, folder / "environment")
        if not alone:
            _check_import(python, top)
        own = tuple(counterpart(path, top.resolve(), tree) for path in plugins)
        yield Side("base", python, home_beside(folder / "base", data), own, own=False)


@contextlib.contextmanager
def checked_out(top: Path, commit: str) -> Iterator[Path]:
    """A worktree of a commit, deleted afterwards together with worktrees that killed gates left on this machine."""
    _remove_left_over(top)
    with scratch_folder(Path(tempfile.gettempdir())) as folder:
        place = folder / TREE
        try:
            if _git(top, "worktree", "add", "--detach", "--force", str(place), commit) is None:
                raise CouldNotRun(
                    f"git could not make a worktree of {commit[:12]}; `git worktree prune` clears what an earlier one left."
                )
            yield place
        finally:
            _git(top, "worktree", "remove", "--force", "--force", str(place))  # --force twice: remove half-made worktrees too


def _remove_left_over(top: Path) -> None:
    """Remove the worktrees of gates that have ended: their folders and git's entries."""
    for line in (_git(top, "worktree", "list", "--porcelain") or "").splitlines():
        place = Path(line.removeprefix("worktree "))
        scratch = place.parent.name.startswith(scratch_prefix()) and place.name == TREE
        if line.startswith("worktree ") and scratch and not is_in_use(place.parent):
            remove_tree(place.parent)
            _git(top, "worktree", "remove", "--force", "--force", str(place))


def environment(tree: Path, top: Path, folder: Path) -> Path:
    """An environment with the distributions of a worktree.

    Args:
        tree: the worktree of the base.
        top: the head's repository, which the environment must not see.
        folder: folder for the environment.

    Returns:
        its interpreter.

    Raises:
        CouldNotRun: it could not be made; the message has the last line of the failed command.
    """
    projects = _projects(tree)
    if not projects:
        raise CouldNotRun("the base has no pyproject.toml with a [project] table, at its top or in plugins/*.")
    _run([sys.executable, "-P", str(SUPERVISOR), "0", "venv", "--without-pip", str(folder)])
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}, scheme="venv"))
    (site / "inherited.pth").write_text("".join(f"{path}\n" for path in _inherited(top)), encoding="utf-8")
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    options = ["--quiet", "--no-deps", "--ignore-installed", "--no-warn-script-location", *isolation]
    python = folder / "bin" / "python"
    words = [word for project in projects for word in ("-e", str(project))]
    _run([str(python), "-P", str(SUPERVISOR), "0", "pip", "install", *options, *words])
    return python


def counterpart(path: Path, top: Path, tree: Path) -> Path:
    """The path in a worktree that corresponds to `path` in the repository; `path` itself if it lies outside."""
    return tree / path.relative_to(top) if path.is_relative_to(top) else path


def _inherited(top: Path) -> list[str]:
    """Folders where the running interpreter finds packages, except the standard library and the head's repository.

    Both sides still see another clone inside of the repository (of compbench, for example) and files there that git ignores.
    """
    standard = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    found = []
    for word in sys.path:
        path = Path(word).resolve() if word else Path.cwd()
        known = path in standard or (path.parent in standard and path.name == "lib-dynload")
        if path.is_dir() and not known and not _is_source(path, top) and str(path) not in found:
            found.append(str(path))
    return found


def _is_source(path: Path, top: Path) -> bool:
    """Whether a folder is the head's source, and not an environment or another repository inside of it."""
    top = top.resolve()
    if not path.is_relative_to(top) or path.name in ("site-packages", "dist-packages"):
        return False
    inside = [place for place in (path, *path.parents) if place != top and place.is_relative_to(top)]
    if any((place / ".git").exists() for place in inside):
        return False
    return not inside or _git(top, "check-ignore", "--quiet", str(path)) is None


def _check_import(python: Path, top: Path) -> None:
    """Raise CouldNotRun before anything is measured if the base's environment has no compbench."""
    try:
        done = supervised(
            [str(python), "-P", str(SUPERVISOR), "0", "compbench.system.errors"],
            seconds=INSTALL_SECONDS,
            env=os.environ,
            cwd=top.parent,
            stopping=threading.Event(),
        )
    except Unable as error:
        raise CouldNotRun(f"the base cannot start: {error}") from error
    if done.returncode:
        raise CouldNotRun(
            f"the base cannot import compbench ({last_line(done.stderr or done.stdout)}); if its source lies inside of this "
            "repository, it must be a git clone of its own or be ignored by git."
        )


def _projects(tree: Path) -> list[Path]:
    """Distributions of a worktree: at its top, and in each folder of plugins/."""
    return [
        path.parent for path in [tree / "pyproject.toml", *sorted(tree.glob("plugins/*/pyproject.toml"))] if _is_project(path)
    ]


def _is_project(path: Path) -> bool:
    try:
        return "project" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _run(words: list[str]) -> None:
    try:
        done = supervised(words, seconds=INSTALL_SECONDS, env=os.environ, cwd=Path.cwd(), stopping=threading.Event())
    except Unable as error:
        raise CouldNotRun(f"no environment for the base: {error}") from error
    if done.returncode:
        raise CouldNotRun(f"no environment for the base: {' '.join(words[4:6])} failed: {last_line(done.stderr or done.stdout)}")


def _git(folder: Path, *words: str) -> str | None:
    """The output of git; None if git fails or is not installed."""
    with contextlib.suppress(CompbenchError):
        return git(folder, *words, seconds=CHECKOUT_SECONDS).decode(errors="replace").strip()
    return None
