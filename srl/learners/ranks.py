"""How the trainers of one policy meet, and what they agree on before every update."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch

from srl.api.batch import Ranks
from srl.core.errors import OthersLost, RunError

_C10D: Any = torch.distributed  # its stubs lack half of it
_PATIENCE = timedelta(days=1)
"""A rank may wait for the rows of another one for as long as its envs take: the controller ends a run that has stalled."""


class Agreed(NamedTuple):
    """What holds for the next update on all ranks."""

    env_steps: int
    """That its batches bring, all of them together."""
    seconds: float
    """The wall time of the run, as rank 0 measures it."""
    stops: bool
    """Some rank takes no more part: the update is not made."""


class Agreement:
    """Meets the other ranks, and asks them before every update, without waiting: `descriptor` is readable when something came."""

    def __init__(self, place: Path, index: int, size: int, device: str) -> None:
        """`place`: a file that no other group of ranks uses; all of them name the same one."""
        self.ranks = Ranks(index, size)
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._place, self._device = place, torch.device(device).type
        self._failed: Exception | None = None
        self._asked: Any = None
        self._words = torch.zeros(4, dtype=torch.float64)
        self._updates = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._meet, name="srl ranks", daemon=True).start()

    @property
    def open(self) -> bool:
        """A question is under way."""
        return self._asked is not None

    @property
    def met(self) -> bool:
        """All ranks are connected."""
        if self._failed is not None:
            raise OthersLost("the trainers of this policy cannot meet", ("because", str(self._failed)))
        return self._device in self.ranks.groups

    def ask(self, updates: int, env_steps: int, seconds: float, stops: bool) -> None:
        """Before the update after so many: the env steps that the own batch brings, and whether this rank stops here."""
        own = [float(updates), float(env_steps), seconds if self.ranks.index == 0 else 0.0, float(stops)]
        self._words.copy_(torch.tensor(own, dtype=torch.float64))
        self._updates = updates
        self._asked = self.ranks.groups["cpu"].allreduce([self._words]).get_future()
        self._asked.add_done_callback(lambda _: self._wake())

    def answer(self) -> Agreed | None:
        """What all ranks have said, once they have."""
        if self._asked is None or not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        try:
            asked.wait()
        except RuntimeError as error:
            raise OthersLost("another trainer of this policy cannot be reached", ("because", str(error))) from error
        updates, env_steps, seconds, stops = self._words.tolist()
        if updates != self._updates * self.ranks.size:
            raise RunError(f"the trainers of this policy are not at one update: this one is at {self._updates}")
        return Agreed(int(env_steps), seconds, stops > 0.0)

    def clear(self) -> None:
        """Called when `descriptor` is readable."""
        os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Give the connections back. Idempotent."""
        with self._lock:
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1
            self.ranks.groups.clear()
            self._asked = None
        if self.ranks.index == 0:
            self._place.unlink(missing_ok=True)

    def _wake(self) -> None:
        with self._lock:
            if self.descriptor >= 0:
                os.eventfd_write(self.descriptor, 1)

    def _meet(self) -> None:
        """In a thread of its own: it lasts until the last rank has come."""
        try:
            groups = _connected(self._place, self.ranks, self._device)
        except Exception as error:  # raised where the trainer looks for it
            self._failed = error
        else:
            with self._lock:
                if self.descriptor >= 0:
                    self.ranks.groups |= groups
        self._wake()


def _connected(place: Path, ranks: Ranks, device: str) -> dict[str, Any]:
    """Process groups by kind of device: gloo over loopback, and NCCL beside it on GPUs."""
    store = _C10D.FileStore(str(place), ranks.size)
    options = _C10D.ProcessGroupGloo._Options()
    options._devices = [_C10D.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = _PATIENCE
    options._threads = 2
    own = _C10D.PrefixStore("cpu", store)
    groups: dict[str, Any] = {"cpu": _C10D.ProcessGroupGloo(own, ranks.index, ranks.size, options)}
    if device != "cpu":
        groups[device] = _C10D.ProcessGroupNCCL(_C10D.PrefixStore(device, store), ranks.index, ranks.size)
    groups["cpu"].barrier().wait()
    if ranks.index == 0:
        place.unlink(missing_ok=True)  # all are connected
    return groups
