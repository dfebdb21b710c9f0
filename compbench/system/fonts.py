"""Find font files: in compbench's data folder, and in the folders that fontconfig and macOS look in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ENDINGS = (".ttf", ".ttc", ".otf")
"""Endings of the names of font files."""


def font_folders() -> Iterator[Path]:
    """The folders of this machine that may hold fonts, the user's own first."""
    home = Path.home()
    yield Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share") / "fonts"
    yield home / ".fonts"
    for folder in (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":"):
        yield Path(folder) / "fonts"
    yield home / "Library/Fonts"
    yield from map(Path, ("/Library/Fonts", "/System/Library/Fonts"))


def find_font(name: str, data: Path) -> Path | None:
    """The file of a font.

    Args:
        name: a path, or the bare name of a file.
        data: compbench's data folder; a file there has priority over the machine's fonts.

    Returns:
        the file, or None if there is none.
    """
    given = Path(name).expanduser()
    if given.name != name:
        return given if given.is_file() else None
    for folder in (data, *font_folders()):
        if (folder / name).is_file():
            return folder / name
        for place, folders, files in os.walk(folder):
            folders.sort()
            if name in files:
                return Path(place) / name
            if folder == data:
                break  # data folders are flat
    return None
