"""A stream socket that carries frames: a JSON header and, where needed, tensors as safetensors.

    frame = magic, header length, payload length, header, payload

Nothing is unpickled, so a contestant can send wrong numbers but no code.  The parent reads only headers, piece by piece, and
never imports torch, so a slow or huge message cannot block its time limits.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from compbench.system.files import Json, nesting

if TYPE_CHECKING:
    from torch import Tensor

FRAME = struct.Struct("<4sIQ")
MAGIC = b"cbf1"
MAX_HEADER = 2**20
MAX_DEPTH = 32
"""Largest bracket depth of a header: more than any of our messages has, and below Python's recursion limit."""
CHUNK = 2**16


class Closed(ConnectionError):
    """The other side went away, or sent something invalid."""


class Garbled(Closed):
    """The other side sent something that is not a message."""


class Frame(NamedTuple):
    """A header, and raw safetensors bytes (b"" if none)."""

    header: dict[str, Json]
    payload: bytes

    def tensors(self) -> dict[str, Tensor]:
        """The payload's tensors, on the CPU.  Raises Garbled if the payload is damaged."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(self.payload) if self.payload else {}
        except (SafetensorError, ValueError) as error:
            raise Garbled(f"the other side sent damaged tensors: {str(error)[:100]}") from error


class Channel:
    """One end of a stream socket that carries frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self._buffer = sock, bytearray()

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        left, right = socket.socketpair()
        return cls(left), cls(right)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        """The end that a child inherited."""
        return cls(socket.socket(fileno=descriptor))

    def send(self, header: Mapping[str, Json], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Send one frame and block until it is handed over.  Raises Closed if the other side is gone."""
        payload = b""
        if tensors:
            from safetensors.torch import save

            payload = save({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()})
        text = json.dumps(header, allow_nan=False).encode()
        try:
            self.socket.sendall(FRAME.pack(MAGIC, len(text), len(payload)) + text)
            self.socket.sendall(payload)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, *, max_payload: int = 0) -> Frame:
        """Wait for the next frame.  Raises Closed at the end of the stream, or if the bytes are not a frame."""
        while (frame := self.taken(max_payload)) is None:
            self.read()
        return frame

    @property
    def pending(self) -> bool:
        """Whether bytes were read that no frame has used yet."""
        return bool(self._buffer)

    def read(self) -> None:
        """Read what is available; wait if there is nothing.  Raises Closed at the end of the stream."""
        try:
            got = self.socket.recv(CHUNK if len(self._buffer) < CHUNK else 2**22)
        except OSError as error:
            raise Closed(str(error)) from error
        if not got:
            raise Closed("the other side closed the connection")
        self._buffer += got

    def taken(self, max_payload: int = 0) -> Frame | None:
        """The first frame among the bytes read so far, if it is complete.  Raises Garbled if the bytes are not a frame."""
        if len(self._buffer) < FRAME.size:
            return None
        magic, header_length, payload_length = FRAME.unpack_from(self._buffer)
        if magic != MAGIC or header_length > MAX_HEADER or payload_length > max_payload:
            raise Garbled("the other side sent something that is not a message")
        start, end = FRAME.size + header_length, FRAME.size + header_length + payload_length
        if len(self._buffer) < end:
            return None
        header, payload = _parsed(bytes(self._buffer[FRAME.size : start])), bytes(memoryview(self._buffer)[start:end])
        del self._buffer[:end]
        return Frame(header, payload)

    def hang_up(self) -> None:
        """Close the sending direction: the other side sees the end of the stream instead of an order, and may still answer."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()


def _parsed(text: bytes) -> dict[str, Json]:
    """Parse a header: a JSON object of finite numbers, nested no deeper than our messages."""
    try:
        header = json.loads(text, parse_constant=_refused) if nesting(text) <= MAX_DEPTH else None
    except ValueError as error:
        raise Garbled(f"the other side sent a message that is not JSON: {str(error)[:100]}") from error
    if not isinstance(header, dict):
        raise Garbled(f"the other side sent a message that is not a JSON object, or that is nested over {MAX_DEPTH} levels deep")
    return header


def _refused(name: str) -> float:
    raise ValueError(f"{name} is not a number")
