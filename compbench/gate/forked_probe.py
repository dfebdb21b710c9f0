"""Run several orders of the probe, each in a fork of a process that has loaded torch, so that imports happen only once.

    python -P forked_probe.py PROBE ORDERS      prints a JSON list of answers to a JSON list of orders, on its last line

Orders run on the CPU, because a process that has started CUDA cannot be forked.  Base and head both run this file, as they both
run the probe.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import TypedDict

MOST_BYTES = 65536
"""Largest size of an answer; it fits in a pipe, so a process can end before its answer is read."""


class Order(TypedDict):
    """The fields of an order that this file reads: its time limit in seconds, and its environment."""

    limit: float
    places: dict[str, str]


def answered(order: Order, act: Callable[[str], dict[str, object]]) -> dict[str, object]:
    """The answer of `act` to the order's text in a forked process; without an answer, an error that says how the process ended.

    The process has the environment that the order names, and is ended after the order's `limit` in seconds.
    """
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(int(order["limit"]))
            os.environ.update(order["places"])
            tempfile.tempdir = None
            os.write(send, json.dumps(act(json.dumps(order))).encode())
            sys.stdout.flush()
        finally:
            os._exit(1)
    os.close(send)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(receive, False)  # a process that the child started may keep the other end open
    try:
        answer = os.read(receive, MOST_BYTES)
    except BlockingIOError:
        answer = b""
    os.close(receive)
    if answer:
        found: dict[str, object] = json.loads(answer)
        return found
    return {"error": f"not done after {order['limit']} s" if ended == -signal.SIGALRM else f"exit status {ended}"}


def main(probe: str, text: str) -> list[dict[str, object]]:
    """Import what every order needs, and answer the orders one after the other."""
    import torch

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # the first call in a process imports torch's compiler
    found = runpy.run_path(probe)
    act = found["main"]
    found["ours"]("registry")
    gc.freeze()
    return [answered(order, act) for order in json.loads(text)]


if __name__ == "__main__":
    print(f"\n{json.dumps(main(*sys.argv[1:]))}", flush=True)
