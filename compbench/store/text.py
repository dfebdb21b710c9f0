"""Make text of records safe to show: one line, without control characters or spreadsheet formulas."""

from __future__ import annotations

import re

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]+")
"""Control characters, line separators, and marks that reorder or hide text; they are removed from a record's text."""
FORMULA = ("=", "+", "-", "@", "|", "%")


def clean(text: str) -> str:
    """One line of text without controls or marks that would reorder it."""
    return " ".join(UNSAFE.sub(" ", text).split())


def text(value: str) -> str:
    """One line of a record's text, which a spreadsheet must not take for a formula; a single mark, as the unit %, is none."""
    value = clean(value)
    return f"'{value}" if len(value) > 1 and value.startswith(FORMULA) else value
