"""Lines as wide as the terminal: later lines are indented to the text of the first one, and words stay whole.

On a terminal a text is wrapped.  In a pipe or a file each text stays one line, so that `grep` finds all of it.
"""

from __future__ import annotations

import shutil
import sys
import textwrap

WIDEST, NARROWEST = 110, 30
"""Largest width of a wrapped line, and smallest width of the text after its start."""


def wrapped(start: str, text: str, later: str | None = None) -> list[str]:
    """Join `start` and a text, and wrap them to the width of the terminal (80 columns without one).

    A word that is longer than a line, such as a path, is left whole, so that it can be copied.

    Args:
        start: what the first line begins with.
        text: the text; its line breaks count as blanks.
        later: what the other lines begin with; None means as many blanks as `start` is long.
    """
    width = max(len(start) + NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))
    indent = " " * len(start) if later is None else later
    lines = textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return lines or [start.rstrip()]


def on_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def paragraph(start: str, text: str, later: str | None = None) -> str:
    """`start` and a text: wrapped on a terminal, one line elsewhere."""
    return "\n".join(wrapped(start, text, later)) if on_terminal() else f"{start}{text}".rstrip()


def width_of_terminal() -> int:
    """Columns of the terminal; 0 if standard output is not a terminal, so that tables are as wide as they need."""
    return shutil.get_terminal_size().columns if on_terminal() else 0


def refilled(text: str) -> str:
    """Wrap the lines that are wider than the terminal; lines that begin with a blank (commands) stay whole."""
    width = width_of_terminal()
    return "\n".join(
        paragraph("", line, "  ") if 0 < width < len(line) and not line.startswith(" ") else line for line in text.splitlines()
    )
