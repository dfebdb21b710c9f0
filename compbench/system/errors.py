"""Errors for people: one line that says what was asked, what was found and what to do.  The CLI exits with 2 on them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

FEW_NAMES = 6
"""Up to this many known names are listed in full."""
NEAR, BEHIND = 0.65, 0.15
"""A name is suggested if its similarity to the requested name (`difflib`'s ratio) is at least NEAR and less than BEHIND below the
largest one."""
OF_THE_CONTENT = (None, errno.EINVAL, errno.EISDIR)
"""`errno` of an OSError whose cause is a file's content; for all others the cause is permissions, the disk or the machine.
Libraries give no number (None) if they cannot parse what they read."""
RUSTS_NUMBER = re.compile(r"\(os error (\d+)\)$")
"""Pattern of the `errno` in an error of safetensors, which gives it only in the text."""


class CompbenchError(Exception):
    """A mistake that the user can correct; shown as one line, without a traceback."""


class Unwritable(CompbenchError):
    """A file could not be written (a full disk, no permission), so later results cannot be kept either.

    `reason` is the message for a record: it has the number of the error, and the file's name without its folder.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message

    @classmethod
    def of(cls, path: Path, error: OSError) -> Unwritable:
        why = error.strerror or str(error)
        number = f"[Errno {error.errno}] " if error.errno else ""
        return cls(f"could not write {path}: {why}; nothing was changed.", f"could not write {path.name}: {number}{why}")


class Unreadable(CompbenchError):
    """A folder could not be listed, because it is another user's or on a disk that does not answer."""

    @classmethod
    def of(cls, path: Path, error: OSError) -> Unreadable:
        return cls(f"could not list {path}: {error.strerror or error}; ask its owner for read permission, or set COMPBENCH_HOME.")


class Refused(CompbenchError):
    """Method and task cannot work together; raised before anything is trained."""


class Cancelled(Exception):
    """The run was asked to stop (Ctrl-C, time limit); raised in a fit after its checkpoint is safe."""


def first_of(error: ValidationError) -> str:
    """The first thing that pydantic found wrong: `budget.train_steps: Input should be greater than 0`."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'all'}: {first['msg']}"


def unreadable(path: Path, what: str, error: Exception, *, todo: str = "move it away and fetch it again") -> str:
    """The message for a file that is not what it should be; it does not blame the file if the machine could not read it.

    Args:
        path: the file.
        what: the kind of file that was expected, with its article.
        error: what reading it raised.
        todo: what to do about a wrong file.
    """
    found = f"is not {what} or is damaged" if blames_the_content(error) else "could not be read"
    return f"{path} {found} ({brief(error)}); {remedy(error, todo)}."


def not_read(path: Path, error: Exception) -> OSError:
    """An error for a file that the machine could not read.  Code that deletes damaged files keeps this one: it may be whole."""
    words = RUSTS_NUMBER.search(str(error))
    number = getattr(error, "errno", None) or (int(words[1]) if words else errno.ENOENT)
    return OSError(number, f"{os.strerror(number)}; {remedy(error, '')}", str(path))


def remedy(error: Exception, todo: str) -> str:
    """What to do about a file that an error names: `todo` if its content is wrong, otherwise to keep it."""
    return todo if blames_the_content(error) else "keep it, and check its rights, the disk and who has it open"


def blames_the_content(error: Exception) -> bool:
    """Whether the cause of an error of reading a file is its content, and not permissions, the disk or the machine."""
    numbered = isinstance(error, OSError) and error.errno not in OF_THE_CONTENT
    return not (numbered or isinstance(error, FileNotFoundError) or RUSTS_NUMBER.search(str(error)))


def is_of_full_disk(error: BaseException | None) -> bool:
    """Whether an error says that a disk is full or a quota used up."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def brief(error: Exception) -> str:
    """An error's message in one line of at most 80 characters, or its type."""
    return " ".join(str(error).split())[:80] or type(error).__name__


def suggest(kind: str, wanted: str, known: list[str], *, listed: bool = True) -> CompbenchError:
    """The error for an unknown name, with up to three similar names or names that begin with it, or all names if they are few.

    Args:
        kind, wanted, known: what was asked for, its name, and the names that exist.
        listed: whether `compbench list` or `info` names them; if not, the error names all, unless some are similar.
    """
    near = _near(wanted, known)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    if len(known) <= FEW_NAMES or not (listed or near):
        have = f" Known: {', '.join(sorted(known)) or 'none'}."
    else:
        have = "" if near else f" There are {len(known)}: `compbench list` or `compbench info` names them."
    return CompbenchError(f"no {kind} named '{wanted}'.{hint}{have}")


def _near(wanted: str, known: list[str]) -> list[str]:
    """Up to three names that the user may have meant, the most similar first."""
    import difflib  # takes 10 ms, so it is imported only for an error

    ratio = {name: difflib.SequenceMatcher(None, wanted, name).ratio() for name in known}
    best = max(ratio.values(), default=0.0)
    near = [name for name in known if ratio[name] >= max(NEAR, best - BEHIND)]
    near = near or [name for name in known if len(wanted) > 2 and name.startswith(wanted)]
    return sorted(near, key=lambda name: -ratio[name])[:3]


class MetricUnavailable(Exception):
    """Raised by a metric whose weights or packages are missing; the score then has no value and this reason."""
