"""CPU seconds of a process and all below it, from outside: what it says of itself is not asked."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def cpu_seconds_below(top: int, table: Path = Path("/proc")) -> float | None:
    """User and system time of a process, of all that descend from it and of those of them that have ended.

    Args:
        top: process id.
        table: where the system keeps its processes.

    Returns:
        seconds, in steps of a hundredth; None where there is no such table (it is Linux's), or no such process.
    """
    parents, ticks = {}, {}
    for stat in table.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = stat.read_text("utf-8", "replace").rsplit(")", 1)[1].split()  # a name may hold anything
            pid = int(stat.parent.name)
            parents[pid], ticks[pid] = int(words[1]), sum(map(int, words[11:15]))
    if top not in ticks:
        return None
    own, found = {top}, [top]
    while found:
        found = [pid for pid, parent in parents.items() if parent in found and pid not in own]
        own.update(found)
    return sum(ticks[pid] for pid in own) / os.sysconf("SC_CLK_TCK")
