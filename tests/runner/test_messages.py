"""Whatever bytes or JSON a child sends, the parent gets a message, waits on, or says that it was none."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compbench.runner import messages
from compbench.runner.channel import FRAME, MAGIC, Channel, Closed, Frame, Garbled
from compbench.runner.messages import Failed, FitCost, Fitted, Message, Prepared, Progress, parsed
from compbench.runner.processes import Process
from compbench.runner.worker import explain

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def fed(content: bytes) -> Channel:
    """A channel whose other side sent some bytes and hung up."""
    left, right = socket.socketpair()
    right.sendall(content)
    right.close()
    return Channel(left)


def all_of(content: bytes) -> list[Frame]:
    """Every frame of some bytes; ends by Closed, whatever they are."""
    channel, found = fed(content), []
    try:
        while True:
            while (frame := channel.taken()) is not None:
                found.append(frame)
            channel.read()
    except Closed:
        return found
    finally:
        channel.close()


@QUICK
@given(st.binary(max_size=300))
def test_any_bytes_end_in_frames_or_in_closed(content: bytes) -> None:
    for frame in all_of(content):
        assert isinstance(frame.header, dict)


@QUICK
@given(st.binary(max_size=60), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_any_lengths_behind_the_magic_end_too(content: bytes, header: int, payload: int) -> None:
    all_of(FRAME.pack(MAGIC, header, payload) + content)


def said(header: dict) -> str:
    """The kind of the message that a header is, or why it is none."""
    try:
        return type(parsed(Frame(header, b""))).__name__
    except Garbled as error:
        return str(error)


@QUICK
@given(st.sampled_from(sorted(Message.kinds)), ANY)
@example("Evaluate", {"\n": None})
def test_any_json_is_a_checked_message_or_garbled(kind: str, facts: object) -> None:
    header = {**facts, "kind": kind} if isinstance(facts, dict) else {"kind": kind, "value": facts}
    found = said(header)
    assert found == kind or ("\n" not in found and len(found) <= 300 and found.startswith("the other side sent"))


@QUICK
@given(st.text(max_size=3000), st.text(max_size=9000))
def test_a_reason_is_one_line_without_controls_and_fits_a_record(reason: str, traceback: str) -> None:
    failed = Failed(reason=reason, traceback=traceback)
    assert len(failed.reason) <= 2000
    assert len(failed.traceback) <= 8000
    assert all(letter.isprintable() or letter == " " or ord(letter) > 160 for letter in failed.reason)
    assert not any(ord(letter) < 32 and letter != "\n" for letter in failed.traceback)


@pytest.mark.parametrize(
    "text",
    ['{"kind": "Fitted", "shared": NaN}', '{"a": Infinity}', "[1]", "nothing", '{"a":' + "[" * 40 + "]" * 40 + "}"],
)
def test_numbers_that_are_none_and_nesting_without_end_are_refused(text: str) -> None:
    with pytest.raises(Garbled):
        fed(FRAME.pack(MAGIC, len(text), 0) + text.encode()).receive()


def test_a_message_comes_back_as_it_was_sent() -> None:
    left, right = Channel.pair()
    sent = [Progress(stage="fit", done=3, total=7), Fitted(shared=True, cost=FitCost(train_steps=9, ledger={"pooled": True}))]
    for message in sent:
        message.send(left)
    assert [messages.receive(right, Progress), messages.receive(right, Fitted)] == sent
    sent[0].send(left)
    with pytest.raises(Garbled, match="sent Progress"):
        messages.receive(right, Fitted)


def test_a_message_in_pieces_is_read_as_it_comes() -> None:
    left, right = socket.socketpair()
    text = json.dumps({"kind": "Progress", "stage": "fit", "done": 1, "total": 2}).encode()
    content = struct.pack("<4sIQ", MAGIC, len(text), 0) + text
    channel, found = Channel(right), []
    for byte in content:
        left.sendall(bytes([byte]))
        channel.read()
        found.append(channel.taken())
    assert [frame is not None for frame in found] == [False] * (len(content) - 1) + [True]
    assert parsed(found[-1]) == Progress(stage="fit", done=1, total=2)


def test_waiting_for_a_child_goes_on_between_its_messages(tmp_path: Path) -> None:
    """A message that is read must not start another read that waits: the parent's clock and alarm stand still meanwhile."""
    code = "import sys, time; from compbench.runner.channel import Channel\n"
    code += "from compbench.runner.messages import Progress, Prepared\n"
    code += "channel = Channel.of_descriptor(int(sys.argv[1])); Progress(stage='a', done=1, total=2).send(channel)\n"
    code += "Progress(stage='b', done=2, total=2).send(channel); time.sleep(3); Prepared().send(channel)"
    (tmp_path / "child.py").write_text(code)
    process = Process("child", (str(tmp_path / "child.py"),), tmp_path / "own", threads=1)
    alarms: list[float] = []
    stages: list[str] = []
    found = process.expect(
        Prepared,
        deadline=time.monotonic() + 60,
        progress=lambda stage, done, total: stages.append(stage),
        alarm=lambda: alarms.append(time.monotonic()),
    )
    process.stop(gracefully=False)
    assert found == Prepared()
    assert stages == ["a", "b"]
    assert max(after - before for before, after in itertools.pairwise(alarms)) < 1.5


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_want_of_memory_is_said_as_such_on_a_cpu_too(error: Exception) -> None:
    assert explain(error).status == "oom"
    assert explain(RuntimeError("shapes differ")).status == "failed"
