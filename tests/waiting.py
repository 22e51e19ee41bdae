"""How tests wait for something that another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from srl.control.controller import Controller
from srl.observe.result import RunResult


def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Return as soon as this holds; AssertionError if it does not within so many seconds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


def run_while(controller: Controller, disturb: Callable[[], object]) -> RunResult:
    """Run to the end, and call this in another thread as soon as there are env steps. If it raises, the run is stopped."""

    def watch() -> None:
        try:
            until(lambda: controller.totals.env_steps)
            disturb()
        except BaseException:
            controller.stop()
            raise

    thread = threading.Thread(target=watch)
    thread.start()
    result = controller.run()
    thread.join()
    return result
