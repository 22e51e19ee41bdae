"""Gymnasium spaces to specs and back: what a space's values look like as rows of arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.api.env import ActionSpec, Box, Discrete, MultiBinary, MultiDiscrete
from srl.core.errors import UserError
from srl.core.spec import Leaf, TreeSpec
from srl.core.tree import Array, Tree
from srl.envs.faults import sizes


class Fault(Exception):
    """A value that is not in its space: where in the tree, what was expected, what was found, the likely cause."""

    def __init__(self, key: tuple[str, ...], expected: str, found: Any, likely: str) -> None:
        super().__init__(expected)
        self.key = key
        self.expected = expected
        self.found = found
        self.likely = likely


class Obs(ABC):
    """How the observations of one space are written as rows."""

    spec: TreeSpec

    @abstractmethod
    def write(self, target: Tree, row: int, value: Any) -> None:
        """`target[row] = value`, leaf by leaf."""

    @abstractmethod
    def write_all(self, target: Tree, values: Any) -> None:
        """`target[...] = values`, as gymnasium's vectorized envs batch them."""

    @abstractmethod
    def check(self, value: Any, key: tuple[str, ...] = ()) -> None:
        """Raise a Fault if shape or kind of one value are wrong, or if it holds nan."""

    def outside(self, value: Any, key: tuple[str, ...] = ()) -> Fault | None:
        """Warn about a checked value outside the declared bounds, which is harmless here."""
        return None


class BoxObs(Obs):
    """uint8 stays as it is, every other number becomes float32; a scalar becomes one column."""

    spec: Leaf

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.spec = Leaf(space.shape or (1,), "uint8" if space.dtype == np.uint8 else "float32")
        self._kinds = {"f": "fiub", "u": "uib", "i": "iub", "b": "b"}[np.dtype(space.dtype or "float32").kind]

    def write(self, target: Tree, row: int, value: Any) -> None:
        target[row] = value  # type: ignore[index]

    def write_all(self, target: Tree, values: Any) -> None:
        target[...] = np.reshape(values, target.shape)  # type: ignore[index,union-attr]

    def check(self, value: Any, key: tuple[str, ...] = ()) -> None:
        array = np.asarray(value)
        if array.shape != self.space.shape:
            raise Fault(key, self.expected(), value, _likely_shape(array.shape, self.space.shape))
        if array.dtype.kind not in self._kinds:
            scaled = self.spec.dtype == "uint8" and array.dtype.kind == "f"
            low, high = ("0", "1") if scaled else ("low", "high")
            likely = f"image scaled to floats; declare Box({low},{high},...,float32) or return uint8"
            raise Fault(key, self.expected(), value, likely if scaled else f"return {self.space.dtype}, or declare {array.dtype}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise Fault(key, self.expected(), value, "a division by zero or a simulation that blew up")

    def expected(self) -> str:
        """`uint8 (64,64,3) in 0..255`."""
        low, high = (f"{float(bound):g}" for bound in (np.min(self.space.low), np.max(self.space.high)))
        return f"{self.space.dtype} {sizes(self.space.shape)} in {low}..{high}"

    def outside(self, value: Any, key: tuple[str, ...] = ()) -> Fault | None:
        array = np.asarray(value, np.float64)
        slack = 1e-5 + 1e-5 * np.abs(array)
        if (array < self.space.low - slack).any() or (array > self.space.high + slack).any():
            return Fault(key, self.expected(), value, "declare wider bounds")
        return None


class OneHotObs(Obs):
    """Discrete and MultiDiscrete: one column per choice, since the numbers are only labels."""

    def __init__(self, counts: Array, start: Array) -> None:
        self.counts = counts.ravel().astype(np.int64)
        self.start = start.ravel().astype(np.int64)
        self.shape = counts.shape
        self._offsets = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.spec = Leaf((int(self.counts.sum()),), "float32")

    def write(self, target: Tree, row: int, value: Any) -> None:
        line = target[row]  # type: ignore[index]
        line[...] = 0.0
        line[np.ravel(value) - self.start + self._offsets] = 1.0

    def write_all(self, target: Tree, values: Any) -> None:
        columns = np.reshape(values, (len(target), -1)) - self.start + self._offsets
        target[...] = 0.0  # type: ignore[index]
        np.put_along_axis(np.asarray(target), columns, 1.0, axis=1)

    def check(self, value: Any, key: tuple[str, ...] = ()) -> None:
        array = np.asarray(value)
        expected = f"int64 {sizes(self.shape)} in {self.start.min()}..{(self.start + self.counts).max() - 1}"
        if array.shape != self.shape or array.dtype.kind not in "iub":
            raise Fault(key, expected, value, "return whole numbers of that shape, or declare another space")
        choice = array.ravel().astype(np.int64) - self.start
        if ((choice < 0) | (choice >= self.counts)).any():
            raise Fault(key, expected, value, "a state that the space does not count")


class BitsObs(Obs):
    """MultiBinary: float32 columns."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        self.shape = space.shape
        self.spec = Leaf((int(np.prod(space.shape)),), "float32")

    def write(self, target: Tree, row: int, value: Any) -> None:
        target[row] = np.ravel(value)  # type: ignore[index]

    def write_all(self, target: Tree, values: Any) -> None:
        target[...] = np.reshape(values, target.shape)  # type: ignore[index,union-attr]

    def check(self, value: Any, key: tuple[str, ...] = ()) -> None:
        array = np.asarray(value)
        if array.shape != self.shape or array.dtype.kind not in "iub" or not np.isin(array, (0, 1)).all():
            raise Fault(key, f"int8 {sizes(self.shape)} in 0..1", value, "return zeros and ones of that shape")


class DictObs(Obs):
    """Dict, and Tuple with the keys "0", "1", ..."""

    spec: dict[str, Any]

    def __init__(self, parts: dict[Any, Obs], names: dict[Any, str]) -> None:
        self.parts = parts
        self.names = names
        self.spec = {names[key]: part.spec for key, part in parts.items()}

    def write(self, target: Tree, row: int, value: Any) -> None:
        for key, part in self.parts.items():
            part.write(target[self.names[key]], row, value[key])

    def write_all(self, target: Tree, values: Any) -> None:
        for key, part in self.parts.items():
            part.write_all(target[self.names[key]], values[key])

    def check(self, value: Any, key: tuple[str, ...] = ()) -> None:
        for name, part in self.parts.items():
            try:
                inner = value[name]
            except (KeyError, IndexError, TypeError):
                raise Fault((*key, str(name)), f"an entry {name!r}", value, "every key of the space must be there") from None
            part.check(inner, (*key, self.names[name]))

    def outside(self, value: Any, key: tuple[str, ...] = ()) -> Fault | None:
        found = (part.outside(value[name], (*key, self.names[name])) for name, part in self.parts.items())
        return next((fault for fault in found if fault is not None), None)


def obs_of(space: spaces.Space[Any], name: str = "env", key: tuple[str, ...] = ()) -> Obs:
    """How to write the observations of a space, which is the part `key` of those of the env."""
    if isinstance(space, spaces.Box):
        return BoxObs(space)
    if isinstance(space, spaces.Discrete):
        return OneHotObs(np.array(int(space.n)), np.array(int(space.start)))
    if isinstance(space, spaces.MultiDiscrete):
        return OneHotObs(space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return BitsObs(space)
    if isinstance(space, spaces.Dict | spaces.Tuple) and len(space.spaces):
        names = {one: _plain(one) for one in _parts(space)}
        return DictObs({one: obs_of(part, name, (*key, names[one])) for one, part in _parts(space).items()}, names)
    raise _unfit(space, "observation", name, key, "a gymnasium.ObservationWrapper that makes it a Box")


class Actions(ABC):
    """Convert rows of actions to values of one action space."""

    spec: ActionSpec

    @abstractmethod
    def batch(self, rows: Tree) -> Any:
        """`[E, ...]` rows as gymnasium's vectorized envs take them; never a view of the rows."""

    def split(self, rows: Tree) -> Sequence[Any]:
        """One action for each row."""
        return list(self.batch(rows))

    @abstractmethod
    def rows(self, values: Any) -> Tree:
        """The inverse of `batch`."""

    @abstractmethod
    def write_mask(self, target: Tree, row: int, value: Any) -> None:
        """Write the mask of one row; gymnasium's `sample(mask)` forms and flat arrays are both accepted."""


class DiscreteActions(Actions):
    spec: Discrete

    def __init__(self, space: spaces.Discrete) -> None:
        self.spec = Discrete(int(space.n))
        self.start = int(space.start)

    def batch(self, rows: Tree) -> Array:
        return np.add(rows, self.start)  # type: ignore[arg-type]

    def split(self, rows: Tree) -> Sequence[Any]:
        return list(np.asarray(rows) + self.start if self.start else np.asarray(rows))

    def rows(self, values: Any) -> Array:
        return np.asarray(values, np.int64) - self.start

    def write_mask(self, target: Tree, row: int, value: Any) -> None:
        target[row] = np.asarray(value).astype(bool)  # type: ignore[index]


class MultiDiscreteActions(Actions):
    spec: MultiDiscrete

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self.spec = MultiDiscrete(tuple(int(count) for count in space.nvec.ravel()))
        self.start = space.start
        self.dtype = space.dtype

    def batch(self, rows: Tree) -> Array:
        shaped = np.asarray(rows).reshape(-1, *self.start.shape)
        return (shaped + self.start).astype(self.dtype)

    def rows(self, values: Any) -> Array:
        return np.reshape(np.asarray(values, np.int64) - self.start, (len(values), -1))

    def write_mask(self, target: Tree, row: int, value: Any) -> None:
        flat = np.concatenate([np.ravel(part) for part in _masks(value)]) if isinstance(value, tuple) else np.ravel(value)
        target[row] = flat.astype(bool)  # type: ignore[index]


class MultiBinaryActions(Actions):
    spec: MultiBinary

    def __init__(self, space: spaces.MultiBinary) -> None:
        self.spec = MultiBinary(int(np.prod(space.shape)))
        self.shape = space.shape
        self.dtype = space.dtype

    def batch(self, rows: Tree) -> Array:
        return np.array(rows, self.dtype).reshape(-1, *self.shape)

    def rows(self, values: Any) -> Array:
        return np.reshape(np.asarray(values, np.int8), (len(values), -1))

    def write_mask(self, target: Tree, row: int, value: Any) -> None:
        target[row] = np.ravel(value).astype(bool)  # type: ignore[index]


class BoxActions(Actions):
    spec: Box

    def __init__(self, space: spaces.Box) -> None:
        low, high = (tuple(np.ravel(bound).astype(float).tolist()) for bound in (space.low, space.high))
        self.spec = Box(space.shape or (1,), low, high)
        self.shape = space.shape
        self.dtype = np.dtype(space.dtype or "float32")

    def batch(self, rows: Tree) -> Array:
        numbers = np.rint(rows) if self.dtype.kind in "iub" else rows  # type: ignore[arg-type]
        return np.array(numbers, self.dtype).reshape(-1, *self.shape)

    def split(self, rows: Tree) -> Sequence[Any]:
        taken = self.batch(rows)
        return list(taken) if self.shape else [taken[i : i + 1].reshape(()) for i in range(len(taken))]

    def rows(self, values: Any) -> Array:
        return np.reshape(np.asarray(values, np.float32), (len(values), *self.spec.shape))

    def write_mask(self, target: Tree, row: int, value: Any) -> None:
        """A Box has no mask."""


class DictActions(Actions):
    spec: dict[str, Any]

    def __init__(self, parts: dict[Any, Actions], *, tuple_: bool) -> None:
        self.parts = parts
        self.tuple = tuple_
        self.spec = {_plain(key): part.spec for key, part in parts.items()}

    def batch(self, rows: Tree) -> Any:
        values = {key: part.batch(rows[_plain(key)]) for key, part in self.parts.items()}
        return tuple(values.values()) if self.tuple else values

    def split(self, rows: Tree) -> Sequence[Any]:
        columns = [part.split(rows[_plain(key)]) for key, part in self.parts.items()]
        lines = zip(*columns, strict=True)
        return list(lines) if self.tuple else [dict(zip(self.parts, line, strict=True)) for line in lines]

    def rows(self, values: Any) -> Tree:
        return {_plain(key): part.rows(values[key]) for key, part in self.parts.items()}

    def write_mask(self, target: Tree, row: int, value: Any) -> None:
        for key, part in self.parts.items():
            if _plain(key) in target:
                part.write_mask(target[_plain(key)], row, value[key])


def actions_of(space: spaces.Space[Any], name: str = "env", key: tuple[str, ...] = ()) -> Actions:
    """How to read the actions of a space, which is the part `key` of those of the env."""
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscreteActions(space)
    if isinstance(space, spaces.MultiBinary):
        return MultiBinaryActions(space)
    if isinstance(space, spaces.Box):
        return BoxActions(space)
    if isinstance(space, spaces.Dict | spaces.Tuple) and len(space.spaces):
        parts = {one: actions_of(part, name, (*key, _plain(one))) for one, part in _parts(space).items()}
        return DictActions(parts, tuple_=isinstance(space, spaces.Tuple))
    raise _unfit(space, "action", name, key, "a gymnasium.ActionWrapper")


def _parts(space: Any) -> dict[Any, spaces.Space[Any]]:
    """The spaces by key; those of a Tuple are counted."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))


def _unfit(space: spaces.Space[Any], what: str, name: str, key: tuple[str, ...], remedy: str) -> UserError:
    """Text, Sequence, Graph and OneOf have values of many sizes, or none that are numbers."""
    at = f", {list(key)}" if key else ""
    return UserError(
        f"env '{name}' has {'an' if what[0] in 'ao' else 'a'} {what} space that has no fixed shape{at}: {space}",
        ("expected", "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"),
        ("try", remedy),
    )


def _plain(key: Any) -> str:
    return str(key).replace("/", ".")


def _masks(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in (_masks(part) if isinstance(part, tuple) else [part])]


def _likely_shape(found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    if sorted(found) == sorted(wanted):
        return f"axes in another order; declare {sizes(found)} or transpose"
    if found[1:] == wanted:
        return "an axis too many: return one observation, not a batch"
    return f"declare shape {sizes(found)}, or return {sizes(wanted)}"


def frame_rate(env: Any) -> float:
    """Frames per second of a gymnasium or PettingZoo env, from its metadata."""
    rate = (getattr(env, "metadata", None) or {}).get("render_fps")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else 30.0
