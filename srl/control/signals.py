"""Signals that end a run: what each of them means, caught for as long as the run goes on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from srl.observe.result import Kind

KINDS: Mapping[int, Kind] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "interrupted",
    signal.SIGHUP: "interrupted",
    signal.SIGUSR1: "preempted",
}


def catch_signals(interrupt: Callable[[Kind, str], None]) -> Callable[[], None]:
    """Call `interrupt(kind, text)` at each; returns what gives the signals back. Only the main thread may listen.

    A terminal that is closed says so more than once, and to a run that has been interrupted too: only the first word counts.
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
