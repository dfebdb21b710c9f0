"""One pair of a race: a fresh process of base and a fresh process of head train and sample in turns.

    base head head base base head ...       slices of a fraction of a second, while the other process waits

The pair's worsening is the midmean of log(head / base) over neighbouring slices: anything that slows the machine for longer than
a slice slows both sides and cancels.  Effects that last a whole process, such as memory placement, can only be averaged over more
pairs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Literal, NamedTuple

from compbench.gate.sides import LOOK_SECONDS, PROBE_SECONDS, SUPERVISOR, CellOptions, Side, Unable, command_of
from compbench.gate.suite import Cell
from compbench.runner.processes import last_line
from compbench.runner.supervisor import STOP
from compbench.system.files import Json

Label = Literal["base", "head"]
ROWS = ("train", "sample")
SLICES, FEWEST = 24, 12
"""Number of slices per row and process that count, and the smallest number if a request takes long; the first never counts."""


class Pair(NamedTuple):
    """The measurements of a pair of processes, by row ("train", "sample"); a row is missing if one of the processes lacks it.

    Attributes:
        base, head: median seconds of a training step, and of a request.
        log_ratios: midmean of log(head / base) over neighbouring slices; positive is slower.
    """

    base: Mapping[str, float]
    head: Mapping[str, float]
    log_ratios: Mapping[str, float]


class Unraced(Exception):
    """A pair could not be timed; `found` has the error of each side, or None."""

    def __init__(self, found: Mapping[Label, Unable | None]) -> None:
        super().__init__(", ".join(f"{label}: {reason}" for label, reason in found.items() if reason))
        self.found = found


class Racer:
    """A fresh process of a side, which works for one slice on request and waits otherwise.

    It and its descendants run only on the given cores; an empty set means all cores.
    """

    def __init__(self, side: Side, cell: Cell, options: CellOptions, complaints: IO[bytes], cores: frozenset[int]) -> None:
        scratch = side.home / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        each = options._replace(seconds=options.seconds / SLICES)
        own, environment = command_of(side, cell, each, "race")
        words = [str(side.python), "-P", str(SUPERVISOR), "0", *own]
        self._complaints, self._stopping, self._read = complaints, side.stopping, b""
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
                cwd=scratch,
                start_new_session=True,
            )
        except OSError as error:
            raise Unable(f"{words[0]}: {error.strerror or error}") from error
        if cores:  # the supervisor's children inherit the cores
            with contextlib.suppress(OSError):  # it has ended, and its answer says why
                os.sched_setaffinity(self._process.pid, cores)

    def ready(self) -> None:
        """Wait until the process has loaded everything.  Raises Unable."""
        self._answer()

    def slice(self, row: str) -> float | None:
        """Seconds of a training step or of a request; None if a fit takes no time.  Raises Unable."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its answer says why
            self._process.stdin.write(f"{row}\n".encode())
            self._process.stdin.flush()
        found = self._answer()
        if found is not None and not isinstance(found, float | int):
            raise Unable(f"it answered {found!r:.80} instead of seconds")
        return found

    def end(self) -> None:
        """End the process and its descendants."""
        if self._process.poll() is None:
            self._process.send_signal(STOP)
        self._process.communicate()

    def _answer(self) -> Json:
        line = self._line()
        try:
            found = json.loads(line)
        except ValueError as error:
            raise Unable(f"it answered {line[:80]!r}") from error
        if isinstance(found, dict):
            raise Unable(str(found.get("error", found)))
        return found

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        limit = time.monotonic() + PROBE_SECONDS
        while b"\n" not in self._read:
            if self._stopping.is_set() or time.monotonic() > limit:
                raise Unable("stopped" if self._stopping.is_set() else f"no answer for {PROBE_SECONDS:g} s")
            if not select.select([self._process.stdout], [], [], LOOK_SECONDS)[0]:
                continue
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more:
                self._complaints.seek(0)
                complaint = last_line(self._complaints.read().decode(errors="replace"))
                raise Unable(f"exit status {self._process.wait()}: {complaint or 'it printed nothing'}")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line


def run_pair(racers: Mapping[Label, tuple[Side, Cell]], options: CellOptions, first: Label = "base") -> Pair:
    """Run a pair.

    Args:
        racers: side and cell of each process; outside of experiments both have the same cell.
        options: each process is timed for `seconds` in training, and again in sampling.
        first: the side that begins.

    Raises:
        Unraced: a side could not be timed.
    """
    order: tuple[Label, ...] = ("base", "head") if first == "base" else ("head", "base")
    cores = _shared_core(options)
    with contextlib.ExitStack() as stack:
        running: dict[Label, Racer] = {}
        found: dict[Label, Unable | None] = {}
        for label in order:
            with _noted(found, label):
                complaints = stack.enter_context(tempfile.TemporaryFile())
                running[label] = Racer(*racers[label], options, complaints, cores)
                stack.callback(running[label].end)
        for label, racer in running.items():
            with _noted(found, label):
                racer.ready()
        if any(found.values()):
            raise Unraced(found)
        seconds = {row: _turns(running, row, order, options.seconds) for row in ROWS}
    timed = {row: each for row, each in seconds.items() if each["base"] and each["head"]}
    return Pair(
        {row: statistics.median(each["base"]) for row, each in timed.items()},
        {row: statistics.median(each["head"]) for row, each in timed.items()},
        {row: worsening(each["base"], each["head"]) for row, each in timed.items()},
    )


def _shared_core(options: CellOptions) -> frozenset[int]:
    """One core for both processes, which never work at the same time, so that other processes slow both equally."""
    if options.clock != "cpu" or options.threads != 1 or not hasattr(os, "sched_getaffinity"):
        return frozenset()
    return frozenset({random.choice(sorted(os.sched_getaffinity(0)))})


def worsening(base: Sequence[float], head: Sequence[float]) -> float:
    """Midmean of log(head / base) over neighbouring slices: less noisy than the median, and equally robust to bursts."""
    ratios = sorted(math.log(after / before) for before, after in zip(base, head, strict=True))
    aside = len(ratios) // 4
    return statistics.fmean(ratios[aside : len(ratios) - aside])


def _turns(running: Mapping[Label, Racer], row: str, order: tuple[Label, ...], enough: float) -> dict[Label, list[float]]:
    """Seconds of each slice except the first; if one side has none, neither has any."""
    seconds: dict[Label, list[float]] = {label: [] for label in order}
    for number in range(SLICES + 1):
        if number > FEWEST and number % 2 and sum(seconds[order[0]]) > enough:
            break
        for label in order if number % 2 == 0 else order[::-1]:
            try:
                took = running[label].slice(row)
            except Unable as error:
                raise Unraced({**dict.fromkeys(order), label: error}) from error
            if took is None:
                return {label: [] for label in order}
            if number:
                seconds[label].append(took)
    return seconds


@contextlib.contextmanager
def _noted(found: dict[Label, Unable | None], label: Label) -> Iterator[None]:
    found.setdefault(label, None)
    try:
        yield
    except Unable as error:
        found[label] = error
