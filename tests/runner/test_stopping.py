"""A child that is asked to stop: a fit that has done steps may save them, and nothing else holds it up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from compbench.runner import worker
from compbench.runner.channel import Channel
from compbench.runner.worker import ProgressReporter
from compbench.system.errors import Cancelled

OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressReporter]:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(worker, "PROGRESS_SECONDS", 60.0)
    before = {number: signal.getsignal(number) for number in OURS}
    ours, theirs = Channel.pair()
    try:
        yield ProgressReporter(ours)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def work_after_sigterm(seconds: float = 1.0) -> float:
    """Be asked to stop, and work on without a look; returns how long, where nothing interrupts it."""
    os.kill(os.getpid(), signal.SIGTERM)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        time.sleep(0.01)
    return time.monotonic() - begin


@pytest.mark.parametrize("steps", [(), (0,), (10,)])
def test_a_compilation_before_the_first_step_and_work_after_the_last_are_interrupted(
    reporter: ProgressReporter, steps: tuple[int, ...]
) -> None:
    for done in steps:
        reporter.progress("fit", done, 10)
    with pytest.raises(Cancelled, match="nothing to save"):
        work_after_sigterm(30)
    assert reporter.cancelled()


def test_a_fit_that_has_done_steps_is_never_interrupted(reporter: ProgressReporter) -> None:
    reporter.progress("fit", 3, 10)
    assert work_after_sigterm(0.3) >= 0.3
    assert reporter.cancelled()


def test_a_method_that_looks_in_time_ends_by_itself(reporter: ProgressReporter) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert reporter.cancelled()
    time.sleep(0.2)
