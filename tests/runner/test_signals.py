"""What ends a run ends it once: more of it disturbs neither its record nor its checkpoint."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from compbench.runner.signals import (
    STOPPING_SIGNALS,
    WORDS,
    Stopping,
    held_back,
    stopped_by_signals,
    terminate_like_ctrl_c,
    unheard_by_children,
    uninterrupted,
)


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
def test_a_signal_while_a_record_is_written_ends_the_command_after_that(number: signal.Signals) -> None:
    written = []

    def write() -> None:
        with held_back():
            signal.raise_signal(number)
            written.append(number)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert written == [number]


@pytest.mark.parametrize("number", STOPPING_SIGNALS)
def test_each_signal_stops_a_sweep(number: signal.Signals) -> None:
    stopping = Stopping()
    with stopped_by_signals(stopping):
        signal.raise_signal(number)
    assert stopping.is_set()
    assert stopping.why == WORDS[number]


def test_a_child_does_not_die_of_the_signal_that_slurm_sends_to_a_whole_step() -> None:
    with unheard_by_children():
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    child.send_signal(signal.SIGUSR2)
    child.communicate(b"\n", timeout=30)
    assert child.returncode == 0
    assert signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_nohup_started_goes_on_when_the_terminal_closes() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stopping = Stopping()
    terminate_like_ctrl_c()
    with stopped_by_signals(stopping):
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    assert not stopping.is_set()
