"""Check records against a git history: no record may have been changed or overwritten."""

from __future__ import annotations

from pathlib import Path

from compbench.registry.checkout import git
from compbench.system.errors import CompbenchError


def overwritten(folder: Path, since: str) -> tuple[str, ...]:
    """Names of files in a folder of records whose bytes differ from every version under that name up to a git commit.

    A record may be deleted, but its name stays taken: another run of the same spec is another attempt.  An overwritten record may
    be restored, because those bytes existed before.  A name that is in no commit is a new record.

    Args:
        folder: a folder of records in a git checkout.
        since: the commit to compare with.

    Raises:
        CompbenchError: the folder is not in a git checkout, or there is no such commit.
    """
    commit = _git(folder, "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}").decode().strip()
    now = {path.name: _git(folder, "hash-object", "--", path.name).decode().strip() for path in _changed(folder, commit)}
    ever = _ever(folder, commit) if now else {}
    return tuple(sorted(name for name, content in now.items() if content not in ever.get(name, {content})))


def _changed(folder: Path, commit: str) -> list[Path]:
    """Files here that differ from a commit, or are not in it."""
    changed = _git(folder, "diff", "--name-only", "--relative", "--no-renames", "-z", "--diff-filter=d", commit, "--", ".")
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    return [folder / name for name in sorted({*changed.decode().split("\0"), *new.decode().split("\0")} - {""})]


def _ever(folder: Path, commit: str) -> dict[str, set[str]]:
    """For each name, every blob that the file had up to a commit, as far as this clone has the history."""
    log = _git(folder, "log", "-m", "--raw", "-z", "--relative", "--no-renames", "--no-abbrev", "--format=", commit, "--", ".")
    changes = log.decode().split("\0")  # each change and each name ends with a separator, so the last part is empty
    ever: dict[str, set[str]] = {}
    for change, name in zip(changes[::2], changes[1::2], strict=False):  # ":mode mode blob blob status"
        ever.setdefault(name, set()).update(blob for blob in change.split()[2:4] if blob.strip("0"))
    return ever


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        return git(folder, *arguments)
    except CompbenchError as error:
        raise CompbenchError(f"{folder} cannot be compared with an earlier commit: {error}") from error
