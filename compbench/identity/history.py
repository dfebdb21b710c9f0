"""Whether records are what they once were: against a commit, none may have been changed or written over."""

from __future__ import annotations

from pathlib import Path

from compbench.errors import CompbenchError
from compbench.identity.checkout import git


def overwritten(folder: Path, since: str) -> tuple[str, ...]:
    """Names of files in a folder of records that hold other bytes than under the same name in a git commit, or in any before it.

    A record may be deleted, and its name stays used: another run of the same spec is another attempt.

    Args:
        folder: of records, in a git checkout.
        since: the commit to compare with.

    Raises:
        CompbenchError: no git checkout, or no such commit.
    """
    commit = _git(folder, "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}").decode().strip()
    before = {name: {content} for name, content in _tree(folder, commit).items()}
    now = {path.name: _git(folder, "hash-object", "--", path.name).decode().strip() for path in _changed(folder, commit)}
    for name in now.keys() - before.keys():
        before[name] = _earlier(folder, commit, name)
    return tuple(sorted(name for name, content in now.items() if before[name] and content not in before[name]))


def _changed(folder: Path, commit: str) -> list[Path]:
    """Files here that differ from a commit, or are not in it."""
    changed = _git(folder, "diff", "--name-only", "--relative", "--no-renames", "-z", "--diff-filter=d", commit, "--", ".")
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    return [folder / name for name in sorted({*changed.decode().split("\0"), *new.decode().split("\0")} - {""})]


def _tree(folder: Path, commit: str) -> dict[str, str]:
    """Name -> blob of the folder's files in a commit."""
    lines = _git(folder, "ls-tree", "-z", commit, "--", ".").decode().split("\0")
    return {line.partition("\t")[2]: line.split()[2] for line in lines if line}


def _earlier(folder: Path, commit: str, name: str) -> set[str]:
    """Blobs that a file ever was before a commit, as far as the history is here."""
    raw = _git(folder, "log", "--raw", "--no-renames", "--no-abbrev", "--format=", commit, "--", name).decode()
    return {blob for line in raw.splitlines() if line for blob in line.split()[2:4]} - {"0" * 40, "0" * 64}


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        return git(folder, *arguments)
    except CompbenchError as error:
        raise CompbenchError(f"{folder} cannot be compared with a commit before: {error}") from error
