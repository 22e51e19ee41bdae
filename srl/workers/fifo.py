"""First in, first out: slabs in one preallocated array, each taken `uses` times."""

from __future__ import annotations

from collections import deque
from typing import Any

from srl.core.spec import lead, zeros
from srl.core.tree import Tree, copy_into, map_tree


class Fifo:
    """Holds up to `size` slabs."""

    def __init__(self, record: Any, size: int, uses: int) -> None:
        self._memory = zeros(lead(record, size))
        self._free = deque(range(size))
        self._held: deque[tuple[int, int]] = deque()
        self.size, self.uses = size, uses

    def __len__(self) -> int:
        return len(self._held)

    @property
    def room(self) -> int:
        """Slabs that can still be put."""
        return len(self._free)

    @property
    def left(self) -> int:
        """How often `take` will succeed."""
        return sum(uses for _, uses in self._held)

    @property
    def first(self) -> Tree:
        """The slab that `take` gives next."""
        return self._at(self._held[0][0])

    def put(self, tree: Tree) -> None:
        """Copy a slab in. There must be room."""
        place = self._free.popleft()
        copy_into(self._at(place), tree)
        self._held.append((place, self.uses))

    def take(self) -> Tree:
        """The oldest slab; valid until the next `put`. If it may be used again it goes to the end of the queue."""
        place, uses = self._held.popleft()
        if uses > 1:
            self._held.append((place, uses - 1))
        else:
            self._free.append(place)
        return self._at(place)

    def drop(self) -> None:
        """Forget the slab that `take` would give next, however often it may be used."""
        self._free.append(self._held.popleft()[0])

    def clear(self) -> None:
        """Forget everything."""
        self._free = deque(range(self.size))
        self._held.clear()

    def _at(self, place: int) -> Tree:
        tree: Tree = map_tree(lambda leaf: leaf[place], self._memory)
        return tree
