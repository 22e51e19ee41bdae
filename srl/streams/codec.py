"""One fixed layout per record: leaves in order, each one contiguous array on a 64-byte border; nothing is encoded per message."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from srl.core.errors import HostileFrame, UserError, WireError
from srl.core.spec import TreeSpec, digest
from srl.core.tree import Array, Tree, build, leaves

ALIGN = 64
_SHORTEST_TO_COMPRESS = 256


class Layout:
    """Where each leaf of a record lies in its bytes."""

    def __init__(self, spec: TreeSpec) -> None:
        self.spec = spec
        self.paths: list[str] = []
        self.shapes: list[tuple[int, ...]] = []
        self.dtypes: list[np.dtype[Any]] = []
        self.offsets: list[int] = []
        end = 0
        for path, leaf in leaves(spec):
            kind = np.dtype(leaf.dtype)
            if kind.hasobject:
                raise WireError(
                    f"{path or 'value'}: Python objects cannot cross a stream", ("try", "a fixed-size dtype"), code="W01"
                )
            self.paths.append(path)
            self.shapes.append(leaf.shape)
            self.dtypes.append(kind)
            self.offsets.append(end)
            end += aligned(leaf.nbytes)
        self.size = end
        self._keys = [tuple(path.split("/")) if path else () for path in self.paths]
        self._flat = all(len(keys) == 1 for keys in self._keys)
        self._names = [keys[0] for keys in self._keys] if self._flat else []
        self._counted: dict[int | None, list[tuple[int, ...]]] = {None: self.shapes}

    def views(self, buffer: Any, start: int = 0, *, writable: bool = True) -> Tree:
        """The tree of arrays that lie in `buffer` from `start` on."""
        return self.tree([self._view(buffer, start, index, writable) for index in range(len(self.paths))])

    def tree(self, arrays: Sequence[Array]) -> Tree:
        """The tree whose flat leaves these are."""
        if self._flat:
            return dict(zip(self._names, arrays, strict=True))
        tree: Tree = build(dict(zip(self.paths, arrays, strict=True))) if self.paths else {}
        return tree

    def flat(self, tree: Tree) -> list[Array]:
        """The leaves in order, unchecked."""
        if self._flat:
            branch: Any = tree
            return [branch[name] for name in self._names]
        return [_leaf(tree, keys) for keys in self._keys]

    def checked(self, tree: Tree, count: int | None = None) -> list[Array]:
        """The leaves in order; a leaf of another shape or dtype raises. `count`: units, where the spec has one on axis 0."""
        try:
            arrays = self.flat(tree)
        except (KeyError, TypeError, IndexError) as error:
            found = ", ".join(path for path, _ in leaves(tree))
            raise _mismatch("a leaf is missing", ", ".join(self.paths), found) from error
        shapes = self._counted.get(count)
        if shapes is None:
            assert count is not None
            shapes = self._counted[count] = [(count, *shape[1:]) for shape in self.shapes]
        if [array.shape for array in arrays] != shapes or [array.dtype for array in arrays] != self.dtypes:
            for path, array, shape, dtype in zip(self.paths, arrays, shapes, self.dtypes, strict=True):
                if array.shape != shape or array.dtype != dtype:
                    where = f"leaf {path or 'value'} does not fit its stream"
                    raise _mismatch(where, f"{dtype} {shape}", f"{array.dtype} {array.shape}")
        return arrays

    def pack(self, tree: Tree, room: int = 0) -> bytearray:
        """The bytes of a tree that fits, behind `room` for a header."""
        buffer = bytearray(room + self.size)
        for target, source in zip(self.flat(self.views(buffer, room)), self.checked(tree), strict=True):
            target[...] = source
        return buffer

    def unpack(self, data: Any) -> Tree:
        """A read-only tree over received bytes, which must have exactly the right size."""
        if len(data) != self.size:
            raise HostileFrame(f"a record of {len(data)} bytes where {self.size} were agreed")
        return self.views(data, writable=False)

    def _view(self, buffer: Any, start: int, index: int, writable: bool) -> Array:
        shape, dtype = self.shapes[index], self.dtypes[index]
        count = math.prod(shape)
        if count == 0:
            return np.zeros(shape, dtype)
        view = np.frombuffer(buffer, dtype, count, start + self.offsets[index]).reshape(shape)
        view.flags.writeable &= writable
        return view


class Arena:
    """The layout of memory that two ends share: counter words, then records."""

    def __init__(self, words: int, records: Sequence[Layout]) -> None:
        self.words_count = words
        self.records = list(records)
        self._starts: list[int] = []
        end = aligned(8 * words)
        for layout in records:
            self._starts.append(end)
            end += layout.size
        self.size = max(end, ALIGN)

    def words(self, buffer: Any) -> memoryview:
        """The counters, each with one writer: reading one costs 30 ns."""
        return memoryview(buffer)[: 8 * self.words_count].cast("Q")

    def record(self, buffer: Any, index: int, *, writable: bool = True) -> Tree:
        return self.records[index].views(buffer, self._starts[index], writable=writable)


class Packer:
    """Records as bytes on a wire; with `compress` each longer uint8 leaf goes as an LZ4 block."""

    def __init__(self, layout: Layout, compress: str | None = None) -> None:
        self.layout = layout
        self._squeezed = [
            index
            for index, dtype in enumerate(layout.dtypes)
            if compress and dtype == np.uint8 and np.prod(layout.shapes[index]) >= _SHORTEST_TO_COMPRESS
        ]
        self._plain = [index for index in range(len(layout.paths)) if index not in self._squeezed]
        self._sizes = [math.prod(shape) * kind.itemsize for shape, kind in zip(layout.shapes, layout.dtypes, strict=True)]
        self._lengths = struct.Struct(f"<{len(self._squeezed)}I")
        self._block: Any = _lz4() if self._squeezed else None
        self.largest = layout.size + sum(64 + layout.size // 200 for _ in self._squeezed) + self._lengths.size

    def pack(self, tree: Tree, room: int = 0) -> bytearray:
        """The bytes of a tree that fits, behind `room` for a header."""
        if not self._squeezed:
            return self.layout.pack(tree, room)
        arrays = self.layout.checked(tree)
        blocks = [self._block.compress(np.ascontiguousarray(arrays[i]), store_size=False) for i in self._squeezed]
        plain = [np.ascontiguousarray(arrays[i]).tobytes() for i in self._plain]
        return bytearray(b"").join([bytes(room), self._lengths.pack(*map(len, blocks)), *blocks, *plain])

    def unpack(self, data: Any) -> Tree:
        """A read-only tree; sizes come from the layout, never from the bytes."""
        if not self._squeezed:
            return self.layout.unpack(data)
        data = memoryview(data)
        if len(data) < self._lengths.size:
            raise HostileFrame("a compressed record without its table")
        lengths = self._lengths.unpack_from(data)
        if len(data) != self._lengths.size + sum(lengths) + sum(self._sizes[i] for i in self._plain):
            raise HostileFrame("a compressed record whose lengths do not add up")
        arrays: dict[int, Array] = {}
        start = self._lengths.size
        for index, length in zip(self._squeezed, lengths, strict=True):
            arrays[index] = self._array(index, self._decompress(data[start : start + length], self._sizes[index]))
            start += length
        for index in self._plain:
            arrays[index] = self._array(index, data[start : start + self._sizes[index]])
            start += self._sizes[index]
        return self.layout.tree([arrays[index] for index in sorted(arrays)])

    def _decompress(self, block: Any, size: int) -> bytes:
        try:
            found: bytes = self._block.decompress(block, uncompressed_size=size)
        except Exception as error:  # lz4 raises its own private type for a broken block
            raise HostileFrame("a block that is not LZ4") from error
        if len(found) != size:
            raise HostileFrame(f"an LZ4 block of {len(found)} bytes where {size} were agreed")
        return found

    def _array(self, index: int, data: Any) -> Array:
        array = np.frombuffer(data, self.layout.dtypes[index]).reshape(self.layout.shapes[index])
        array.flags.writeable = False
        return array


def aligned(size: int) -> int:
    """The next multiple of the alignment."""
    return (size + ALIGN - 1) // ALIGN * ALIGN


def _mismatch(headline: str, expected: str, found: str) -> WireError:
    facts = (("expected", expected), ("found", found), ("try", "make the arrays as the spec declares them"))
    return WireError(headline, *facts, code="W01")


def agreement(*specs: TreeSpec) -> str:
    """What two ends compare when they attach."""
    return "-".join(digest(spec) for spec in specs)


def _leaf(tree: Any, keys: tuple[str, ...]) -> Array:
    for key in keys:
        tree = tree[key]
    leaf: Array = tree
    return leaf


def _lz4() -> Any:
    try:
        import lz4.block
    except ImportError as error:
        raise UserError(
            "compress: lz4 needs the package lz4, which is not installed", ("try", "pip install lz4, or compress: null")
        ) from error
    return lz4.block
