"""Messages between the parent, the contestant and the referee: a JSON header and, where needed, tensors as safetensors.

Nothing is unpickled, so a contestant can send wrong numbers but no code.  The parent reads headers only and never
imports torch.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

FRAME = struct.Struct("<4sIQ")
MAGIC = b"cbf1"
MAX_HEADER = 2**20
MAX_PAYLOAD = 2**33


class Closed(ConnectionError):
    """The other side went away."""


class Message(NamedTuple):
    """A header, always with "kind", and raw safetensors bytes (b"" if none)."""

    header: dict[str, Any]
    payload: bytes

    @property
    def kind(self) -> str:
        return str(self.header.get("kind", ""))

    def tensors(self) -> dict[str, Tensor]:
        """The payload's tensors, on the CPU."""
        from safetensors.torch import load

        return load(self.payload) if self.payload else {}


class Channel:
    """One end of a stream socket that carries messages."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        left, right = socket.socketpair()
        return cls(left), cls(right)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        """The end that a child inherited."""
        return cls(socket.socket(fileno=descriptor))

    def send(self, kind: str, tensors: Mapping[str, Tensor] | None = None, **facts: Any) -> None:
        """Send one message; blocks until it is handed over.  Raises Closed if the other side is gone."""
        payload = b""
        if tensors:
            from safetensors.torch import save

            payload = save({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()})
        header = json.dumps({"kind": kind, **facts}).encode()
        try:
            self.socket.sendall(FRAME.pack(MAGIC, len(header), len(payload)) + header)
            if payload:
                self.socket.sendall(payload)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, *, max_payload: int = MAX_PAYLOAD) -> Message:
        """The next message.  Raises Closed at the end of the stream, or if what came is no message."""
        magic, header_length, payload_length = FRAME.unpack(self._exactly(FRAME.size))
        if magic != MAGIC or header_length > MAX_HEADER or payload_length > max_payload:
            raise Closed("the other side sent something that is not a message")
        try:
            header = json.loads(self._exactly(header_length))
        except (ValueError, RecursionError) as error:
            raise Closed("the other side sent a message that is no JSON") from error
        return Message(header if isinstance(header, dict) else {}, bytes(self._exactly(payload_length)))

    def _exactly(self, count: int) -> bytearray:
        buffer = bytearray(count)
        view = memoryview(buffer)
        received = 0
        while received < count:
            try:
                got = self.socket.recv_into(view[received:], count - received)
            except OSError as error:
                raise Closed(str(error)) from error
            if got == 0:
                raise Closed("the other side closed the connection")
            received += got
        return buffer

    def hang_up(self) -> None:
        """Send no more: the other side finds the end of the stream where it would wait for an order, and may still tell."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()
