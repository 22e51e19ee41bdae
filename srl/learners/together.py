"""Parts of an update at the same time, a thread for each: torch sets Python free while it computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import torch

Part = Callable[[], Any]


class Together:
    """Runs parts on `threads` threads, each of which computes alone. It sleeps while there is nothing to do."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._given: list[SimpleQueue[Part | None]] = []
        self._done: list[SimpleQueue[tuple[Any, BaseException | None]]] = []
        self._hired: list[threading.Thread] = []

    def __call__(self, parts: Sequence[Part]) -> list[Any]:
        """The results in order. The first error is raised once all parts are over."""
        shared = [list(parts[i :: self._threads]) for i in range(min(self._threads, len(parts)))]
        if len(shared) < 2:
            return [part() for part in parts]
        while len(self._given) < len(shared) - 1:
            self._hire()
        own, *others = shared
        for given, some in zip(self._given, others, strict=False):
            given.put(lambda some=some: [part() for part in some])  # type: ignore[misc]
        outcomes = [_outcome(lambda: [part() for part in own])]
        outcomes += [done.get() for done, _ in zip(self._done, others, strict=False)]
        for _, error in outcomes:
            if error is not None:
                raise error
        results = [iter(values) for values, _ in outcomes]
        return [next(results[i % len(shared)]) for i in range(len(parts))]

    def close(self) -> None:
        """End the threads. Idempotent. One that still ran when Python exits would abort the process."""
        for given in self._given:
            given.put(None)
        for thread in self._hired:
            thread.join()
        self._given, self._done, self._hired = [], [], []

    def _hire(self) -> None:
        torch.set_num_threads(1)  # parts that ran on several threads each would wait for each other at every operation
        given: SimpleQueue[Part | None] = SimpleQueue()
        done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        thread = threading.Thread(target=_serve, args=(given, done), name="srl learner", daemon=True)
        thread.start()
        self._given.append(given)
        self._done.append(done)
        self._hired.append(thread)


def _serve(given: SimpleQueue[Part | None], done: SimpleQueue[tuple[Any, BaseException | None]]) -> None:
    torch.set_num_threads(1)
    while (part := given.get()) is not None:
        done.put(_outcome(part))


def _outcome(part: Part) -> tuple[Any, BaseException | None]:
    try:
        return part(), None
    except BaseException as error:  # handed to the caller, who raises it
        return None, error
