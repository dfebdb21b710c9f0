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
    given = Path(os.path.expanduser(name))  # keeps ~ for a user that does not exist, where Path.expanduser raises
    if given.name != name:
        return given if os.path.isfile(given) else None
    if os.path.isfile(data / name):  # data folders are flat
        return data / name
    for folder in font_folders():
        for place, folders, files in os.walk(folder):
            folders.sort()
            if name in files and os.path.isfile(Path(place) / name):  # a link to nothing is in `files`
                return Path(place) / name
    return None


def no_font(setting: str, name: str, data: Path) -> str:
    """The message for a font that a setting names and `find_font` does not find."""
    if os.path.isfile(name):  # a bare name is not a path
        return f"--set {setting}={name}: this name is looked for among the fonts; for the file in this folder write ./{name}."
    return f"--set {setting}={name}: there is no such font file on this machine or in {data}."
