"""Text of records as others may show it: one line, no controls, no formula."""

from __future__ import annotations

import re

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]+")
"""Controls, line separators, and marks that reorder or hide text: a record's text keeps to its place and direction."""
FORMULA = ("=", "+", "-", "@", "|", "%")


def clean(text: str) -> str:
    """One line of text without controls or marks that would reorder it."""
    return " ".join(UNSAFE.sub(" ", text).split())


def text(value: str) -> str:
    """One line of a record's text, which a spreadsheet must not take for a formula."""
    value = clean(value)
    return f"'{value}" if value.startswith(FORMULA) else value


def contrast(was: str, now: str, most: int = 200) -> tuple[str, str]:
    """Two long texts from where they begin to differ, each cut to `most` characters: what is left out of both is the same."""
    start = next((place for place, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), min(len(was), len(now)))
    start = max(0, start - most // 4) if max(len(was), len(now)) > most else 0
    return _excerpt(was, start, most), _excerpt(now, start, most)


def _excerpt(value: str, start: int, most: int) -> str:
    return ("…" if start else "") + value[start : start + most] + ("…" if len(value) > start + most else "")
