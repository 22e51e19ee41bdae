"""The signals that end a run while it is under way. Schedulers send SIGTERM, or a signal of choice such as SIGUSR1."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from srl.observe.result import Kind

KINDS: Mapping[int, Kind] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "preempted",
    signal.SIGHUP: "interrupted",
    signal.SIGUSR1: "preempted",
}


def catch_signals(interrupt: Callable[[Kind, str], None]) -> Callable[[], None]:
    """Call `interrupt(kind, text)` at each signal; returns a function that restores the handlers. Works in the main thread only.

    A terminal that is closed sends SIGHUP more than once: only the first one counts.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def caught(number: int, _: Any) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        interrupt(KINDS[number], f"by {signal.Signals(number).name}")

    numbers = [number for number in KINDS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, caught) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is caught:  # a terminal that is gone stays gone
                signal.signal(number, handler)

    return restore
