"""Batches on their way to a device: the next one is copied while this one trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.core.tree import Array, build, leaves


class Prefetcher:
    """Copies batches in a thread of its own to two places by turns: one trains, the other is filled.

    To a GPU they go through pinned memory and on a stream of their own; events keep the streams in order. Run on the CPU only so
    far, where a place is other memory: no machine with a GPU was at hand.
    """

    def __init__(self, device: torch.device) -> None:
        self._places = _Place(device), _Place(device)
        self._turn = 0
        """The place that trains."""
        self._told: deque[Mapping[str, Any]] = deque()
        self._begun: tuple[Mapping[str, Any], Future[None]] | None = None
        self._thread = ThreadPoolExecutor(1, "srl prefetch")
        self._taken = self._early = 0
        """Batches, and those of them that were begun before they were asked for, since `metrics`."""

    def tell(self, rows: Mapping[str, Any]) -> None:
        """A batch that will be asked for, in this order; its memory must stay as it is until then."""
        self._told.append(rows)
        self._begin()

    def take(self, rows: Mapping[str, Any]) -> Mapping[str, Any]:
        """The batch on the device. The one before it may be overwritten from now on."""
        self._taken += 1
        self._places[self._turn].leave()
        if self._begun is not None and self._begun[0] is rows:
            self._begun[1].result()
            self._begun = None
            self._turn ^= 1
            self._early += 1
        else:
            self._places[self._turn].fill(rows)
        self._begin()
        return self._places[self._turn].enter()

    def metrics(self) -> dict[str, float]:
        """The share of batches that were begun early, since the last call."""
        found = {"prefetched": self._early / self._taken} if self._taken else {}
        self._taken = self._early = 0
        return found

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._thread.shutdown()

    def _begin(self) -> None:
        if self._begun is None and self._told:
            rows = self._told.popleft()
            self._begun = rows, self._thread.submit(self._places[self._turn ^ 1].fill, rows)


class _Place:
    """Memory for one batch on the device, and on a GPU's host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._record: list[tuple[str, Any, tuple[int, ...]]] = []
        self._arrays: dict[str, Array] = {}
        self._tensors: dict[str, tuple[Tensor, Tensor]] = {}
        """(on the host, on the device): the same on the CPU."""
        self._tree: Any = {}
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._filled, self._left = torch.cuda.Event(), torch.cuda.Event()  # type: ignore[no-untyped-call]

    def fill(self, rows: Mapping[str, Any]) -> None:
        """Copy a batch. On a GPU the copy is only under way when this returns."""
        found = [(path, np.asarray(leaf)) for path, leaf in leaves(rows) if leaf is not None]
        record = [(path, leaf.dtype, leaf.shape) for path, leaf in found]
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            self._filled.synchronize()  # the last copy still reads the memory of the host
        if record != self._record:
            self._make(record)
        for path, leaf in found:
            np.copyto(self._arrays[path], leaf)
        if on_gpu:
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(self._left)
                for host, there in self._tensors.values():
                    there.copy_(host, non_blocking=True)
                self._filled.record(self._stream)

    def enter(self) -> Mapping[str, Any]:
        """What is computed from now on waits for the copy. The same mapping as long as sizes stay the same."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).wait_event(self._filled)
        tree: Mapping[str, Any] = self._tree
        return tree

    def leave(self) -> None:
        """All that is computed from this batch has been asked of the device: the next copy waits for it."""
        if self._device.type == "cuda":
            self._left.record(torch.cuda.current_stream(self._device))

    def _make(self, record: list[tuple[str, Any, tuple[int, ...]]]) -> None:
        self._tensors = {}
        for path, dtype, shape in record:
            host = torch.from_numpy(np.empty(shape, dtype))
            host = host.pin_memory() if self._device.type == "cuda" else host
            self._tensors[path] = host, host.to(self._device)
        self._arrays = {path: host.numpy() for path, (host, _) in self._tensors.items()}
        self._tree = build({path: there for path, (_, there) in self._tensors.items()})
        self._record = record
