"""Processes: order, failures and deaths, each of which costs its own item only."""

import os
import signal

import pytest

from compbench.data.process_pool import Failed, Workers


def behave(item: object) -> object:
    """Top-level, so that a spawned process can import it."""
    if item == "raise":
        raise ValueError("no such thing")
    if item == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "threads":
        return os.environ["OMP_NUM_THREADS"]
    return item


@pytest.fixture(scope="module")
def found() -> list[object]:
    reported: list[tuple[int, int]] = []
    with Workers(behave, 2) as workers:
        results = workers.map([1, "die", 2, "raise", "threads", 3], progress=lambda done, total: reported.append((done, total)))
        again = workers.map([4, 5])
    assert reported[-1] == (6, 6)
    return [*results, *again]


def test_workers_keep_the_order_and_serve_again(found) -> None:
    assert [found[0], found[2], found[5], *found[6:]] == [1, 2, 3, 4, 5]


def test_workers_fail_the_item_that_raised_or_killed_its_process_and_no_other(found) -> None:
    assert found[1] == Failed("its process died of SIGSEGV")
    assert found[3] == Failed("ValueError: no such thing")


def test_workers_have_one_thread_each(found) -> None:
    assert found[4] == "1"
