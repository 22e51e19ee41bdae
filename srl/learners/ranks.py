"""How the trainers of one policy meet, and what they agree on before every update."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from srl.api.batch import Ranks
from srl.core.errors import OthersLost, RunError, UserError
from srl.learners.sums import SharedSums, Sums

_C10D: Any = torch.distributed  # its stubs lack half of it
Watch: TypeAlias = Callable[[int, Callable[[], Any]], None]
_PATIENCE = timedelta(days=1)
"""The first may wait for the last for as long as that takes to start: the controller ends a run that has stalled."""


class Agreed(NamedTuple):
    """What holds for the next update on all ranks."""

    env_steps: int
    """That its batches bring, all of them together."""
    seconds: float
    """The wall time of the run, as rank 0 measures it."""
    stops: bool
    """Some rank takes no more part: the update is not made."""


class Agreement:
    """Asks the other ranks before every update, without waiting. They are connected, and sums on all devices go one way."""

    def __init__(self, sums: Sums, device: str = "cpu") -> None:
        self.ranks = Ranks(sums.index, sums.size)
        self.ranks.sums |= {"cpu": sums, torch.device(device).type: sums}
        self._sums = sums
        self._words = np.zeros(4)
        self._updates = -1

    @property
    def open(self) -> bool:
        """A question is under way."""
        return self._updates >= 0

    @property
    def met(self) -> bool:
        """All ranks are connected. OthersLost if one is gone, even if it has given its part of the next sum."""
        self._sums.check()
        return True

    def ask(self, updates: int, env_steps: int, seconds: float, stops: bool) -> None:
        """Before the update after so many: the env steps that the own batch brings, and whether this rank stops here."""
        self._words[:] = [updates, env_steps, seconds if self.ranks.index == 0 else 0.0, stops]
        self._updates = updates
        self._sums.put(self._words)

    def answer(self) -> Agreed | None:
        """What all ranks have said, once they have. OthersLost if one is gone."""
        if not self.open or not self._sums.ready():
            return None
        self._sums.take(self._words)
        asked, self._updates = self._updates, -1
        updates, env_steps, seconds, stops = self._words.tolist()
        if updates != asked * self.ranks.size:
            raise RunError(f"the trainers of this policy are not at the same update: this one is at {asked}")
        return Agreed(int(env_steps), seconds, stops > 0.0)

    def close(self) -> None:
        """Give everything back. Idempotent."""


class Meeting(Agreement):
    """Ranks on one host, which sum through shared memory on CPUs and by NCCL on GPUs. They look for each other first."""

    _sums: SharedSums

    def __init__(self, place: Path, index: int, size: int, device: str = "cpu", watch: Watch | None = None) -> None:
        """`place`: a file that no other group of ranks uses; all of them name the same one. `watch(descriptor, call)` lets an
        event loop call this one when something came."""
        super().__init__(SharedSums(index, size))
        self.ranks.sums.clear()  # until they have met
        self._place, self._device, self._watch = place, torch.device(device), watch
        self._failed: Exception | None = None
        self._hears = False
        self._lock = threading.Lock()
        self._closed = False
        self._came = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if watch is not None:
            watch(self._came, lambda: os.eventfd_read(self._came))
        self._meeting = threading.Thread(target=self._meet, name="srl ranks", daemon=True)
        self._meeting.start()

    @property
    def met(self) -> bool:
        if self._failed is not None:
            raise OthersLost("the trainers of this policy cannot meet", ("because", str(self._failed)))
        if not self.ranks.sums:
            return False
        if not self._hears and self._watch is not None:
            for reader in self._sums.readers.values():
                self._watch(reader, self._sums.hear)
        self._hears = True
        return True

    def wait(self) -> Ranks:
        """Wait until all have met: for a process that does nothing else."""
        self._meeting.join()
        assert self.met
        return self.ranks

    def close(self) -> None:
        """The connections of ranks that have not met are closed by the end of their processes."""
        with self._lock:
            if not self._closed and self.ranks.sums:
                os.close(self._came)
                self._sums.close()
                self.ranks.sums.clear()
            self._closed = True
        if self.ranks.index == 0:
            self._place.unlink(missing_ok=True)

    def _meet(self) -> None:
        """In a thread of its own: it lasts until the last rank has come."""
        try:
            sums = _connected(self._place, self._sums, self._device)
        except Exception as error:  # raised where the trainer looks for it
            self._failed, sums = error, {}
        with self._lock:
            if not self._closed:
                self.ranks.sums |= sums
                os.eventfd_write(self._came, 1)


class _OnGPUs:
    """Sums over GPUs of this host, by NCCL."""

    def __init__(self, store: Any, index: int, size: int, device: torch.device) -> None:
        self._group = _C10D.ProcessGroupNCCL(_C10D.PrefixStore("nccl", store), index, size)
        self.total(torch.zeros(1, device=device))  # connects

    def total(self, x: torch.Tensor) -> torch.Tensor:
        try:
            self._group.allreduce([x]).wait()
        except RuntimeError as error:
            raise OthersLost("another trainer of this policy cannot be reached", ("because", str(error))) from error
        return x


def _connected(place: Path, sums: SharedSums, device: torch.device) -> dict[str, Any]:
    """Sums by kind of device. Addresses are exchanged through the file, which the last one removes."""
    store = _C10D.FileStore(str(place), sums.size)
    store.set_timeout(_PATIENCE)
    store.set(str(sums.index), sums.address())
    sums.connect(lambda rank: store.get(str(rank)).decode())
    found: dict[str, Any] = {"cpu": sums}
    if device.type != "cpu":
        found[device.type] = _OnGPUs(store, sums.index, sums.size, device)
    return found


def refuse_statistics(algorithm: nn.Module) -> None:
    """Networks that normalize by the statistics of a batch: ranks would come to have different ones."""
    for name, module in algorithm.named_modules():
        if getattr(module, "is_of_one_batch", False) or isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise UserError(
                f"several trainers cannot train '{name}' together: it normalizes by the statistics of one batch",
                ("try", "algorithm.critic.norm=layer, or workers.trainer.count=1"),
                code="E10",
            )
