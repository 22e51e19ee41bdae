"""Slabs and the windows that are cut out of them. A slab is all rows of E envs and A agents of one policy over T steps.

Rows 0..T are asked; row T gives the bootstrap and is asked again as row 0 of the next slab. `valid` rows are
real transitions, `choice` rows among them enter the policy loss. An episode's last observation is a row that
is not valid. `reward`, `terminated`, `truncated` belong to the action of their row. `version` answered row 0.
`reused`: a buffer has given the slab on before, so its steps are not new ones. `origin`, where a replay keeps the rows: the
number of their first env in the run, and a number that is one more than that of the slab before if nothing lies between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from srl.api.env import action_leaves, mask_leaves
from srl.api.policy import PolicySpec
from srl.core.errors import SettingError
from srl.core.spec import Leaf, TreeSpec, lead


@dataclass(frozen=True, slots=True)
class Window:
    """`16`, or `{burn_in: 8, length: 16, after: 1}`."""

    KEYS: ClassVar[tuple[str, ...]] = ("burn_in", "length", "after")

    burn_in: int = 0
    """Rows in front that only warm the memory up."""
    length: int | None = None
    """Trained rows; None: the whole slab where the policy has memory, single rows where it has none."""
    after: int = 0
    """Rows behind, for returns over several steps."""

    def __post_init__(self) -> None:
        for name, least in (("burn_in", 0), ("after", 0), ("length", 1)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise SettingError(name, f"must be a whole number of at least {least}, not {value!r}")
        if self.length is None and (self.burn_in or self.after):
            raise SettingError("length", "must be given with burn_in or after")

    @property
    def memory_every(self) -> int | None:
        """Memory is recorded at row 0 of a slab and at every k-th row, so that every window begins where there is one."""
        return None if self.length is None else math.gcd(self.length, self.burn_in, self.after)

    def within(self, steps: int) -> Window:
        """With the length that it has in slabs of so many rows."""
        return self if self.length is not None else Window(length=steps)

    @property
    def rows(self) -> int:
        """All of one window."""
        return self.burn_in + (self.length or 1) + self.after

    def fits(self, steps: int) -> bool:
        """True if windows can be cut so that every row of a slab is trained once."""
        return steps % (self.length or 1) == 0 and self.rows <= steps

    def places(self, steps: int) -> list[tuple[int, int]]:
        """(first row, rows before the trained ones) of every window. At the edges of a slab a window is moved inside."""
        firsts = range(0, steps, self.length or 1)
        starts = (min(max(first - self.burn_in, 0), steps - self.rows) for first in firsts)
        return [(start, first - start) for start, first in zip(starts, firsts, strict=True)]

    def trained(self, time: Any, before: Any) -> Any:
        """Which rows are trained: `time` counts from the window's first row, `before` is that of `places`."""
        return (time >= before) & (time < before + (self.length or 1))

    @classmethod
    def from_plain(cls, data: Any) -> Window:
        """From what a file says; ValueError says what is wrong."""
        if isinstance(data, Mapping):
            return cls(**{key: data[key] for key in cls.KEYS if key in data})
        return cls(length=data)

    def to_plain(self) -> int | dict[str, Any] | None:
        """The inverse of `from_plain`."""
        if not (self.burn_in or self.after):
            return self.length
        return {key: getattr(self, key) for key in self.KEYS if getattr(self, key)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What an off-policy algorithm asks of the replay that its batches are drawn from."""

    n_step: int = 1
    """Rewards in the sum of a single transition; windows of several rows come without sums."""
    gamma: float = 0.99
    """Discount within these sums."""
    prioritised: bool = False
    """Rows are drawn by the priorities that `batch.give_back(priority=...)` hands back, and come with importance weights."""
    refreshed: bool = False
    """`batch.give_back(memory=...)` hands back the memory before the first trained row of each window."""

    def __post_init__(self) -> None:
        if self.n_step < 1:
            raise SettingError("n_step", f"must be at least 1, not {self.n_step}")
        if not 0 <= self.gamma <= 1:
            raise SettingError("gamma", f"must be between 0 and 1, not {self.gamma}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabShape:
    """Sizes of one slab."""

    steps: int
    envs: int
    agents: int
    memory_every: int | None = None
    """Memory is recorded at row 0, and then at every k-th row."""

    @property
    def memories(self) -> int:
        """How many rows of a slab have their memory recorded."""
        return 1 if self.memory_every is None else -(-self.steps // self.memory_every)


def slab_spec(
    shape: SlabShape,
    policy: PolicySpec,
    *,
    memory: TreeSpec,
    extra: Mapping[str, TreeSpec],
    signals: Mapping[str, TreeSpec],
    origin: bool = False,
) -> dict[str, Any]:
    """The record of a sample stream."""
    steps, envs, agents = shape.steps, shape.envs, shape.agents
    rows, asked = (steps, envs, agents), (steps + 1, envs, agents)
    spec: dict[str, Any] = {
        "obs": lead(policy.obs, *asked),
        "action": lead(action_leaves(policy.action), *rows),
        "reward": Leaf(rows, "float32"),
        "terminated": Leaf(rows, "bool"),
        "truncated": Leaf(rows, "bool"),
        "first": Leaf(asked, "bool"),
        "valid": Leaf(rows, "bool"),
        "version": Leaf((1,), "int64"),
        "reused": Leaf((1,), "bool"),
    }
    if policy.mask:
        spec["mask"] = lead(mask_leaves(policy.action), *asked)
        spec["choice"] = Leaf(rows, "bool")
    if policy.state is not None:
        spec["state"] = lead(policy.state, steps + 1, envs)
    if extra:
        spec["extra"] = {name: lead(leaf, *asked) for name, leaf in extra.items()}
    if signals:
        spec["signals"] = {name: lead(leaf, *rows) for name, leaf in signals.items()}
    if memory != {}:
        spec["memory"] = lead(memory, shape.memories, envs, agents)
    if origin:
        spec["origin"] = Leaf((2,), "int64")
    return spec
