"""Ctrl-C, and SIGTERM, which schedulers send: what they end, and when they have to wait."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], object] | int
"""A function, or SIG_IGN."""


def terminate_like_ctrl_c() -> None:
    """Let SIGTERM, which schedulers send, end a run as Ctrl-C does: with a record and a checkpoint."""
    for number in STOPPING_SIGNALS:  # a shell may have started us with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # a terminal that closes; nohup has it ignored
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def stopped_by_signals(stopping: threading.Event) -> contextlib.AbstractContextManager[None]:
    """Let Ctrl-C and SIGTERM set `stopping` and do no more: slots end in bounded time, and a second press loses nothing."""
    return _handled(STOPPING_SIGNALS, lambda number, frame: stopping.set())


def interrupted_once() -> contextlib.AbstractContextManager[None]:
    """Let the first Ctrl-C or SIGTERM raise KeyboardInterrupt, and ignore more of them: nothing disturbs what cleans up."""

    def stop(number: int, frame: FrameType | None) -> None:
        for own in STOPPING_SIGNALS:
            signal.signal(own, signal.SIG_IGN)
        raise KeyboardInterrupt

    return _handled(STOPPING_SIGNALS, stop)


def uninterrupted() -> contextlib.AbstractContextManager[None]:
    """Ignore Ctrl-C while a checkpoint is awaited or a record written: a second press must not lose it."""
    return _handled((signal.SIGINT,), signal.SIG_IGN)


@contextlib.contextmanager
def _handled(numbers: Iterable[signal.Signals], handler: Handler) -> Iterator[None]:
    """Answer some signals so, and as before afterwards.  Only the main thread can: in others this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
