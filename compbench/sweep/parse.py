"""Parse the words of a sweep: seeds, names and patterns, settings with several values, and times."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Sequence
from pathlib import Path

from compbench.registry.registry import Kind, Registry
from compbench.registry.resolve import refuse_infinite
from compbench.system.errors import CompbenchError
from compbench.system.files import Json, nesting

DEEPEST = 16
"""Greatest depth of nested lists and tables in a setting; messages between a run's processes allow twice this depth."""
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def parse_seeds(text: str) -> list[int]:
    """Parse seeds such as 0-4 or 0,42,123 or a mixture, in order and without repeats."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})(?:-(\d{1,10}))?\s*", part)
        if not match:
            raise CompbenchError(f"--seed {text}: use a number, a range 0-4 or a list 0,42,123.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 10_000:
            raise CompbenchError(f"--seed {part}: a range goes upwards and has at most 10,000 seeds.")
        if last >= 2**31:
            raise CompbenchError(f"--seed {part}: the largest seed is {2**31 - 1}.")
        seeds += [seed for seed in range(first, last + 1) if seed not in seeds]
    return seeds


def parse_time(text: str) -> float:
    """Parse a time such as 90, 90s, 15m or 2h into seconds; 0 means no limit."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not match:
        raise CompbenchError(f"--time-limit {text}: use seconds, 15m or 2h.")
    return float(match[1]) * UNITS[match[2]]


def parse_overrides(words: Sequence[str], option: str = "--set") -> dict[str, Json]:
    """NAME=VALUE words as a dictionary; a value is JSON where it is valid JSON, else text."""
    found: dict[str, Json] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise CompbenchError(f"{option} {word}: use NAME=VALUE; `compbench info` of the method or executor lists the names.")
        if name in found:
            raise CompbenchError(f"{option} {name} is given twice.")
        if nesting(value.encode()) > DEEPEST:
            raise CompbenchError(f"{option} {name} is nested more than {DEEPEST} levels deep, which no setting is.")
        found[name] = value_of(value)
    refuse_infinite(found, option)
    return found


def parse_lists(words: Sequence[str]) -> dict[str, list[Json]]:
    """NAME=V1,V2 words as axes of a grid: each name with all its values."""
    axes: dict[str, list[Json]] = {}
    for word in words:
        (name,) = parse_overrides([word])
        if name in axes:
            raise CompbenchError(f"--set {name} is given twice.")
        axes[name] = _values(word.partition("=")[2])
        refuse_infinite({name: axes[name]})
    return axes


def names(kind: Kind, words: str, files: Sequence[Path]) -> list[str]:
    """Names of a kind that match a comma-separated list of names and shell patterns, in the registry's order.

    A name or pattern after "!" removes its matches from the names selected before it.
    """
    registry = Registry(tuple(files))
    known = registry.names(kind)
    chosen: list[str] = []
    for word in words.split(","):
        if word.startswith("!"):
            chosen = [name for name in chosen if not fnmatch.fnmatchcase(name, word[1:])]
            continue
        if any(mark in word for mark in "*?["):
            matching = fnmatch.filter(known, word)
            if not matching:
                raise CompbenchError(f"no {kind[:-1]} matches '{word}'; `compbench list` names all {len(known)}.")
        else:
            matching = [registry.entry(kind, word).name]
        chosen += [name for name in matching if name not in chosen]
    return chosen


def value_of(text: str) -> Json:
    """Parse a value of the command line: JSON if it is valid JSON, else the text."""
    try:
        found: Json = json.loads(text)
        return found
    except ValueError:
        return text


def _values(text: str) -> list[Json]:
    """Split at commas that are not inside brackets or quotes, and parse each value."""
    several = value_of(f"[{text}]")
    if not isinstance(several, list):  # some values are plain words
        several = [value_of(part) for part in re.split(r',(?![^\[{"]*[\]}"])', text) if part != ""]
    return several or [text]
