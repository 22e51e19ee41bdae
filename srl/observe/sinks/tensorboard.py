"""TensorBoard event files, without torch, tensorflow or protobuf. The x axis is env steps."""

from __future__ import annotations

import os
import platform
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.core.files import read_text
from srl.graph.spec import Graph
from srl.observe.report import Lines, Report
from srl.observe.result import RunResult
from srl.observe.sinks.base import Sink
from srl.store.atomic import writing
from srl.store.run_folder import RunFolder

_FLOAT_MAX = 3.4028234663852886e38
_STRING = 7
"""The type of a tensor of strings."""


class TensorBoard(Sink):
    """Writes the charts of every report, and once the config and the hyperparameters."""

    def __init__(self, folder: RunFolder, *, resume_at: int | None = None) -> None:
        self._folder = folder
        self._writer = EventWriter(folder.tb, resume_at=resume_at)

    def begin(self, graph: Graph, plan: Lines) -> None:
        config = read_text(self._folder.config) if self._folder.config.is_file() else ""
        self._writer.text("config", "\n".join(f"    {line}" for line in config.splitlines()))
        self._writer.text("plan", "\n".join(f"- **{label}** {text}" for label, text in plan))
        self._writer.settings(settings(graph))

    def report(self, report: Report) -> None:
        for one in report.evaluated:
            self._writer.write(one.env_steps, {name: value for name, value in one.values.items() if name in report.charted})
        self._writer.write(report.env_steps, report.charts)

    def end(self, result: RunResult) -> None:
        self._writer.close()


def settings(graph: Graph) -> dict[str, Any]:
    """The hyperparameters: settings of env, policies and algorithms, sizes of the batch, the seed."""
    found: dict[str, Any] = {"seed": graph.seed, "env": graph.env.use, **graph.env.args}
    for name, entry in graph.learning.items():
        before = f"{name}." if len(graph.learning) > 1 else ""
        for component in (entry.policy, entry.algorithm):
            if component is not None:
                found |= {f"{before}{component.use}.{key}": value for key, value in component.args.items()}
    for node in graph.nodes:
        found[f"{node.name}.count"] = node.count
        found |= {f"{node.name}.{key}": value for key, value in node.args.items() if isinstance(value, int | float)}
    return found


class EventWriter:
    """One event file. All scalars of a report are one record."""

    def __init__(self, folder: Path, *, resume_at: int | None = None) -> None:
        """`resume_at`: env steps of the checkpoint that is resumed; TensorBoard then hides everything later."""
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        # Readers go through a folder by name: the time comes first, the rest keeps two writers of one moment apart.
        name = f"events.out.tfevents.{now:017.6f}.{platform.node() or 'host'}.{os.getpid()}.srl"
        self.path = folder / name
        self._file = self.path.open("ab", buffering=0)
        self._record(_double(1, now) + _bytes(3, b"brain.Event:2"))
        if resume_at is not None:
            # A reader forgets what it has from that step on: the checkpoint's own point stays.
            session_started = _integer(1, 1)
            self._record(_double(1, now) + _integer(2, resume_at + 1) + _bytes(7, session_started))

    def write(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Append the scalars of one report."""
        summary = b"".join(_bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in values.items())
        self._record(_double(1, time.time()) + _integer(2, env_steps) + _bytes(5, summary))

    def text(self, tag: str, markdown: str) -> None:
        """A text that stays."""
        tensor = _integer(1, _STRING) + _bytes(2, _bytes(2, _integer(1, 1))) + _bytes(8, markdown.encode())
        value = _bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, _bytes(1, _bytes(1, b"text")))
        self._summary(value)

    def settings(self, values: Mapping[str, Any]) -> None:
        """Hyperparameters, as the tab HPARAMS reads them."""
        entries = b"".join(_bytes(1, _bytes(1, name.encode()) + _bytes(2, _setting(value))) for name, value in values.items())
        plugin = _bytes(1, b"hparams") + _bytes(2, _bytes(3, entries))
        self._summary(_bytes(1, b"_hparams_/session_start_info") + _bytes(9, _bytes(1, plugin)))

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _summary(self, value: bytes) -> None:
        self._record(_double(1, time.time()) + _bytes(5, _bytes(1, value)))

    def _record(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        with writing(self.path):
            self._file.write(b"".join((length, _masked(length), event, _masked(event))))


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum of TFRecord files."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = row >> 1 ^ (0x82F63B78 if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


_TABLE = _table()


# Protobuf: a field is a key (number << 3 | type) and a value. Types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    number = float(value)
    if abs(number) > _FLOAT_MAX:
        number = float("inf") if number > 0 else float("-inf")
    return _varint(field << 3 | 5) + struct.pack("<f", number)


def _setting(value: Any) -> bytes:
    """A `google.protobuf.Value`."""
    if isinstance(value, bool):
        return _integer(4, value)
    return _double(2, value) if isinstance(value, int | float) else _bytes(3, str(value).encode())
