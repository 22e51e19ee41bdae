"""Pictures as PNG, with the standard library alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from srl.show.base import Frame

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB = (8, 2, 0, 0, 0)
"""Bits of a channel, colours, and the usual compression, filter and order of rows."""


def png(frame: Frame, level: int = 1) -> bytes:
    """A file of one picture `[height, width, 3]`. The lowest level is three times as fast as the usual one."""
    height, width, _ = frame.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = frame.reshape(height, -1)
    head = struct.pack(">II5B", width, height, *_RGB)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows.data, level)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
