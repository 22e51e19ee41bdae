"""Messages over a stream socket: a length of four bytes, then msgpack. Neither side ever waits for the other."""

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
        """The other side is gone."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> bool:
        """Queue a message and write what goes at once; False if something is left for `flush`."""
        data = pack(message)
        self._out += _LENGTH.pack(len(data)) + data
        return self.flush()

    def flush(self) -> bool:
        """Write more of what is queued; True when nothing is left."""
        while self._out and not self.closed:
            try:
                del self._out[: self._socket.send(self._out)]
            except BlockingIOError:
                return False
            except OSError:
                self.closed = True
        return True

    def receive(self) -> list[Message]:
        """All whole messages that have come; sets `closed` at the end of the stream."""
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
