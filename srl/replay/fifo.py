"""First in, first out: slabs in one preallocated array, each taken `reuse` times."""

from __future__ import annotations

from collections import deque
from typing import Any

from srl.core.spec import lead, zeros
from srl.core.tree import Tree, copy_into, map_tree


class Fifo:
    """Holds up to `size` slabs."""

    def __init__(self, record: Any, size: int, reuse: int = 1) -> None:
        self._memory = zeros(lead(record, size))
        self._free = deque(range(size))
        self._held: deque[tuple[int, int]] = deque()
        self._out: int | None = None
        self.size, self.reuse = size, reuse
        self.put_total = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def room(self) -> int:
        """Slabs that can still be put."""
        return len(self._free)

    def put(self, tree: Tree) -> None:
        """Copy a slab in. There must be room."""
        place = self._free.popleft()
        copy_into(map_tree(lambda leaf: leaf[place], self._memory), tree)
        self._held.append((place, self.reuse))
        self.put_total += 1

    def take(self) -> Tree:
        """The oldest slab; valid until the next `put`. With `reuse`, it goes to the end of the queue again."""
        place, uses = self._held.popleft()
        if uses > 1:
            self._held.append((place, uses - 1))
        else:
            self._free.append(place)
        taken: Tree = map_tree(lambda leaf: leaf[place], self._memory)
        return taken

    def clear(self) -> None:
        """Forget everything."""
        self._free = deque(range(self.size))
        self._held.clear()
