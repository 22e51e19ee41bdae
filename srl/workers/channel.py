"""Messages over a stream socket: four bytes of length, then msgpack. Neither side waits for the other."""

from __future__ import annotations

import socket
import struct

from srl.core.errors import HostileFrame
from srl.workers.messages import LIMIT, Message, pack, unpack

_LENGTH = struct.Struct("<I")


class Channel:
    """One end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._in = bytearray()
        self._out = bytearray()
        self.closed = False
        """Whether the other side has closed it."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> bool:
        """Queue a message and write what the socket takes; False if something is left for `flush`."""
        data = pack(message)
        self._out += _LENGTH.pack(len(data)) + data
        return self.flush()

    def flush(self) -> bool:
        """Write more of the queue; True when it is empty."""
        while self._out and not self.closed:
            try:
                del self._out[: self._socket.send(self._out)]
            except BlockingIOError:
                return False
            except OSError:
                self.closed = True
        return True

    def receive(self) -> list[Message]:
        """All complete messages received so far; sets `closed` at the end of the stream."""
        while not self.closed:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
            self._in += data
        return self._whole()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self.closed = True
        self._socket.close()

    def _whole(self) -> list[Message]:
        messages, start = [], 0
        while len(self._in) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._in, start)
            if length > LIMIT:
                raise HostileFrame(f"control message of {length:,} bytes", ("expected", f"at most {LIMIT:,}"))
            if len(self._in) - start - _LENGTH.size < length:
                break
            start += _LENGTH.size + length
            messages.append(unpack(bytes(self._in[start - length : start])))
        del self._in[:start]
        return messages
