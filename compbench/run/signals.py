"""Ctrl-C, and SIGTERM, which schedulers send: what they end, and when they have to wait."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def terminate_like_ctrl_c() -> None:
    """Let SIGTERM, which schedulers send, end a run as Ctrl-C does: with a record and a checkpoint."""
    for number in STOPPING_SIGNALS:  # a shell may have started us with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # a terminal that closes; nohup has it ignored
        signal.signal(signal.SIGHUP, signal.default_int_handler)


@contextlib.contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM set `stopping` and do no more: slots end in bounded time, and a second press loses nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in STOPPING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupted_once() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM raise KeyboardInterrupt, and ignore more of them: nothing disturbs what cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for own in STOPPING_SIGNALS:
            signal.signal(own, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in STOPPING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C while a checkpoint is awaited or a record written: a second press must not lose it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
