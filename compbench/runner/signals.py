"""Handle Ctrl-C, SIGTERM (from schedulers) and SIGHUP (from a closed terminal): end runs cleanly, or defer the signal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

WORDS = {signal.SIGINT: "stopped by Ctrl-C", signal.SIGTERM: "stopped by SIGTERM", signal.SIGHUP: "stopped by SIGHUP"}
"""How a record names the signal that stopped its run."""

Handler = Callable[[int, FrameType | None], object] | int
"""A signal handler: a function or SIG_IGN."""


class Stopping(threading.Event):
    """An event that is set when a sweep has to stop, with the reason, which the records of the stopped runs state.

    Args:
        words: the reason by signal.
    """

    def __init__(self, words: Mapping[signal.Signals, str] = MappingProxyType(WORDS)) -> None:
        super().__init__()
        self.words, self.why = words, words[signal.SIGINT]

    @property
    def by_signal(self) -> bool:
        """Whether a signal caused the stop, rather than the sweep itself."""
        return self.why in self.words.values()

    def stop(self, why: str) -> None:
        """Set the event; the first reason stays."""
        if not self.is_set():
            self.why = why
        self.set()


def terminate_like_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: with a record and a checkpoint."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(WORDS[signal.Signals(number)])

    for number in _listened_to():
        signal.signal(number, stop)


def stopped_by_signals(stopping: Stopping) -> contextlib.AbstractContextManager[None]:
    """Let each signal only set `stopping`: slots then end in bounded time, and a second Ctrl-C loses nothing."""
    return _handled(lambda number, frame: stopping.stop(stopping.words[signal.Signals(number)]))


@contextlib.contextmanager
def unheard_by_children() -> Iterator[None]:
    """Block SIGUSR2 in this thread; processes and threads that it starts meanwhile keep it blocked.

    SLURM sends SIGUSR2 to every process of a step when its time is nearly up.  The signal would kill a contestant just when
    the parent asks it to save a checkpoint.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def interrupted_once() -> contextlib.AbstractContextManager[None]:
    """Let the first signal raise KeyboardInterrupt, and ignore further ones, so that nothing disturbs the clean-up."""

    def stop(number: int, frame: FrameType | None) -> None:
        for own in STOPPING_SIGNALS:
            signal.signal(own, signal.SIG_IGN)
        raise KeyboardInterrupt(WORDS[signal.Signals(number)])

    return _handled(stop)


def uninterrupted() -> contextlib.AbstractContextManager[None]:
    """Ignore the signals while a stopped run saves a checkpoint and its record, so that a second Ctrl-C does not lose them."""
    return _handled(signal.SIG_IGN)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold the signals back while a record is written; the first of them takes effect at the end of the block."""
    noted: list[int] = []
    try:
        with _handled(lambda number, frame: noted.append(number)):
            yield
    finally:
        if noted:
            signal.raise_signal(noted[0])


def _listened_to() -> list[signal.Signals]:
    """The signals to handle: all, except SIGHUP if nohup ignores it; SIGINT is handled even if the shell ignores it."""
    return [number for number in STOPPING_SIGNALS if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    """Handle the signals with a handler, and restore the old one afterwards.  Outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _listened_to()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
