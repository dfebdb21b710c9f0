"""Facts that `info` reads from a loaded method; a separate file, because `list` and `--help` do not load its pydantic types."""

from __future__ import annotations

from typing import NamedTuple

from compbench.runner.messages import LineOfText


class OfMethod(NamedTuple):
    """Facts that only a loaded method can give; its settings as `info` prints them."""

    version: int
    runs_on: LineOfText
    can_extend: bool
    settings: dict[LineOfText, LineOfText]
