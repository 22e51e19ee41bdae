"""Signals that end a run: what each of them means, caught for as long as the run goes on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from srl.observe.verdict import Kind

KINDS: Mapping[int, Kind] = {signal.SIGINT: "interrupted", signal.SIGTERM: "interrupted", signal.SIGUSR1: "preempted"}


def catch_signals(interrupt: Callable[[Kind, str], None]) -> Callable[[], None]:
    """Call `interrupt(kind, text)` at each; returns what gives the signals back. Only the main thread may listen."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def caught(number: int, _: Any) -> None:
        interrupt(KINDS[number], f"by {signal.Signals(number).name}")

    before = {number: signal.signal(number, caught) for number in KINDS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
