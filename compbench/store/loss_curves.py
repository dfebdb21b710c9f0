"""Loss and throughput along a fit, as its loops report them (`Context.watch`), thinned so that a record stays small.

    loss of a point = sum of its steps' losses / steps,     examples per second = its examples / seconds since the point before

A loop reads its losses once per window of steps.  If a curve has more than `MOST_POINTS` points, neighbours are merged in pairs,
and every later point covers twice as many windows: sums over steps, examples and seconds do not change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from threading import Lock
from time import perf_counter  # bound before a plugin is loaded, as in profiling
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from compbench.api.interfaces import LARGEST
from compbench.api.schemas import MOST_CURVES, MOST_POINTS, Frozen, LossCurve, Record
from compbench.system.files import Json

if TYPE_CHECKING:
    from compbench.api.context import Window

ROUND = re.compile(r"\bround-\d+-")
"""Pattern of the round number in a loop's name; it is removed, so that all rounds of a silo make one curve."""
DIGITS = 4
"""Number of significant digits of a record's losses and rates."""
RISE, LASTING = 4.0, 1.25
"""A loss spike: the loss rises to 4x its minimum so far and is still 1.25x that minimum at the end."""


class Point(NamedTuple):
    """One or more windows of a fit: the curve's steps up to their end, and sums over the windows."""

    step: int
    windows: int
    steps: int
    loss: float
    examples: int
    seconds: float

    def joined(self, later: Point) -> Point:
        """Merge this point and the next one."""
        windows, steps, examples = self.windows + later.windows, self.steps + later.steps, self.examples + later.examples
        return Point(later.step, windows, steps, self.loss + later.loss, examples, self.seconds + later.seconds)


class CurveState(Frozen):
    """A curve as a checkpoint keeps it.

    `stride` is the number of windows per point, `before` the steps of earlier loops of the same name, `done` those of this loop.
    """

    stride: int = Field(1, ge=1, le=LARGEST)
    before: int = Field(0, ge=0, le=LARGEST)
    done: int = Field(0, ge=0, le=LARGEST)
    points: tuple[Point, ...] = Field((), max_length=MOST_POINTS)

    def longer(self, window: Window, loss: float, seconds: float) -> CurveState:
        """The curve with one more window; a window that begins before the end of the last one belongs to a new loop."""
        before = self.before + self.done if window.begin < self.done else self.before
        steps = window.done - window.begin
        point = Point(before + window.done, 1, steps, loss, steps * window.batch_size, seconds)
        points, stride = list(self.points), self.stride
        if points and points[-1].windows < stride:
            points[-1] = points[-1].joined(point)
        else:
            points.append(point)
        if len(points) > MOST_POINTS:
            points, stride = halved(points), 2 * stride
        return CurveState(stride=stride, before=before, done=window.done, points=tuple(points))


STATES = TypeAdapter(dict[str, CurveState])


class LossCurves:
    """The curves of one run, one per loop, by stage and part (a silo, for example); loops may run at the same time.

    Seconds are wall-clock time since the last report of any loop, so a point's rate is the total rate of all loops that run.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock, self._lock = clock, Lock()
        self._curves: dict[str, CurveState] = {}
        self._last = clock()

    def begin(self) -> None:
        """Begin a stage; time before this call does not count for the stage."""
        self._last = self._clock()

    def add(self, name: str, window: Window) -> None:
        """Add a window of a loop; windows with losses that are not finite, and loops beyond `MOST_CURVES`, are ignored."""
        loss = math.fsum(window.losses.tolist())
        name = re.sub(r"[^A-Za-z0-9_.+-]", "_", ROUND.sub("", name))[:80]
        with self._lock:
            now = self._clock()
            seconds, self._last = now - self._last, now
            known = name in self._curves or len(self._curves) < MOST_CURVES
            if known and abs(loss) < LARGEST:
                self._curves[name] = self._curves.get(name, CurveState()).longer(window, loss, seconds)

    def state(self) -> dict[str, Json]:
        """All curves as JSON, for a checkpoint or for runs that share the fit."""
        with self._lock:
            return {name: curve.model_dump(mode="json") for name, curve in self._curves.items()}

    def restore(self, state: Json) -> None:
        """Continue stored curves if they have more steps than these; anything that is not a state of curves is ignored."""
        try:
            found = STATES.validate_python(state)
        except ValidationError:
            return
        with self._lock:
            if num_steps(found.values()) > num_steps(self._curves.values()):
                self._curves = dict(list(found.items())[:MOST_CURVES])

    def found(self) -> tuple[LossCurve, ...]:
        """The curves for a record: `MOST_POINTS` points in all."""
        most = MOST_POINTS // max(1, len(self._curves))
        return tuple(_written(name, curve.points, most) for name, curve in sorted(self._curves.items()))


def unrecovered_spike(curve: LossCurve) -> str:
    """Where and how far a loss rose without recovering, in words; empty if it recovered, or if a loss is not positive.

    A step too long for the network causes such a loss spike, and samples of such a fit say little about its method.
    """
    least = min(curve.loss)
    if least <= 0 or max(curve.loss) < RISE * least or curve.loss[-1] <= LASTING * least:  # most curves return here
        return ""
    before = accumulate(curve.loss[:-1], min)
    rises = [(later / low, low, step) for low, later, step in zip(before, curve.loss[1:], curve.steps[1:], strict=True)]
    rise, least, step = max(rises, default=(0.0, 0.0, 0))
    return f"{curve.name} rose {rise:.0f}-fold by step {step}" if rise >= RISE and curve.loss[-1] > LASTING * least else ""


def unrecovered_spikes(records: Iterable[Record]) -> tuple[str, ...]:
    """The loss spikes of some records' fits, one phrase per curve."""
    found = ((record.spec.seed, unrecovered_spike(curve)) for record in records for curve in record.losses)
    return tuple(f"seed {seed}: {words}" for seed, words in found if words)


def num_steps(curves: Iterable[CurveState]) -> int:
    """The sum of the steps of some curves."""
    return sum(point.steps for curve in curves for point in curve.points)


def halved(points: Sequence[Point]) -> list[Point]:
    """Neighbours merged in pairs; the last of an odd number stays single."""
    pairs = zip(points[::2], points[1::2], strict=False)
    return [one.joined(other) for one, other in pairs] + list(points[len(points) - len(points) % 2 :])


def _written(name: str, points: Sequence[Point], most: int) -> LossCurve:
    while len(points) > most:
        points = halved(points)
    return LossCurve(
        name=name,
        steps=tuple(point.step for point in points),
        loss=tuple(_rounded(point.loss / point.steps) for point in points),
        examples_per_second=tuple(_rounded(point.examples / max(point.seconds, 1e-9)) for point in points),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
