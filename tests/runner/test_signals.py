"""What ends a run ends it once: more of it disturbs neither its record nor its checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from compbench.runner.signals import STOPPING_SIGNALS, stopped_by_signals, terminate_like_ctrl_c, uninterrupted


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING_SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    terminate_like_ctrl_c()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOPPING_SIGNALS)
def test_each_signal_ends_a_run_and_a_second_one_loses_no_record(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    with uninterrupted():
        signal.raise_signal(number)


@pytest.mark.parametrize("number", STOPPING_SIGNALS)
def test_each_signal_stops_a_sweep(number: signal.Signals) -> None:
    stopping = threading.Event()
    with stopped_by_signals(stopping):
        signal.raise_signal(number)
    assert stopping.is_set()


def test_what_nohup_started_goes_on_when_the_terminal_closes() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stopping = threading.Event()
    terminate_like_ctrl_c()
    with stopped_by_signals(stopping):
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    assert not stopping.is_set()
