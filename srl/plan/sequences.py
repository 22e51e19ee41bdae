"""Whether an algorithm's sequences can be cut out of the slabs that it gets, with the memory that is recorded in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from srl.core.errors import UserError
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.graph.placement import members
from srl.graph.spec import Graph
from srl.plan.specs import Derived, PolicyInfo

_LONG = 16
"""Rows of a sequence that is proposed, at most, where several lengths go."""


def check_sequences(graph: Graph, derived: Derived) -> None:
    """UserError instead of a first update that fails."""
    for name, info in derived.players.items():
        if info.chunk is None:
            continue
        for steps in sorted(_slab_lengths(graph, name)):
            error = _Cut(info, steps, info.chunk, _section(graph, name)).problem()
            if error is not None:
                raise error


@dataclass(frozen=True, slots=True)
class _Cut:
    """One policy's sequences in slabs of one length."""

    info: PolicyInfo
    steps: int
    chunk: int
    section: str
    """Where its settings stand: `algorithm`."""

    def problem(self) -> UserError | None:
        """The first thing that does not fit, in words."""
        chunk, burn_in, steps = self.chunk, self.info.burn_in, self.steps
        remembers, every = self.info.memory != {}, self.info.memory_every or self.steps
        if remembers and chunk == 1 and not burn_in and self.info.memory_every != 1:
            return self._alone()
        if chunk == 1 and not burn_in:
            return None
        if steps % chunk:
            return self._uneven()
        if remembers and chunk % every:
            return self._forgotten(every)
        if remembers and burn_in % every:
            return self._begins_between(every)
        if chunk + burn_in > steps:
            return UserError(
                f"'{self.section}.burn_in' must be at most {steps - chunk}, found {burn_in}",
                ("because", f"burn_in and chunk={chunk} must fit together into the {steps} rows of a slab"),
                ("try", f"sampling.steps={-(-(chunk + burn_in) // chunk) * chunk}, or a smaller {self.section}.burn_in"),
                code="E03",
            )
        return None

    def _alone(self) -> UserError:
        proposed = self._length(self.info.memory_every or 1)
        every = self.info.memory_every
        return UserError(
            f"'{self.section}.chunk' must be more than 1, found 1: policy '{self.info.name}' remembers",
            ("because", f"its memory is recorded {f'every {every} rows' if every else 'at the first row of a slab'}, "
             "and a row alone cannot be trained without it"),
            ("expected", f"rows of a sequence: a divisor of sampling.steps={self.steps}"),
            ("try", f"{self.section}.chunk={proposed}" if proposed > 1 else f"{self.section}.memory_every=1"),
         code="E03")  # fmt: skip

    def _uneven(self) -> UserError:
        below, above = self.steps // self.chunk * self.chunk, -(-self.steps // self.chunk) * self.chunk
        near = " or ".join(f"sampling.steps={size}" for size in (below, above) if size)
        return UserError(
            f"'{self.section}.chunk' must divide the {self.steps} rows of a slab, found {self.chunk}",
            ("expected", f"a divisor of sampling.steps={self.steps}"),
            ("try", f"{self.section}.chunk={self._length(1)}, or {near}"),
            code="E04",
        )

    def _forgotten(self, every: int) -> UserError:
        return UserError(
            f"'{self.section}.memory_every' must divide {self.section}.chunk={self.chunk}, found {every}",
            ("because", f"the memory of policy '{self.info.name}' must have been recorded where each sequence begins"),
            ("try", f"{self.section}.memory_every={math.gcd(self.chunk, self.info.burn_in)}"),
            code="E04",
        )

    def _begins_between(self, every: int) -> UserError:
        burn_in = self.info.burn_in
        near = " or ".join(f"{self.section}.burn_in={rows}" for rows in (burn_in // every * every, -(-burn_in // every) * every))
        return UserError(
            f"'{self.section}.burn_in' must be a multiple of {every}, found {burn_in}",
            (
                "because",
                f"memory is recorded every {every} rows, and a sequence begins {burn_in} rows before those it trains",
            ),
            ("try", f"{near}, or {self.section}.memory_every={math.gcd(self.chunk, burn_in)}"),
            code="E04",
        )

    def _length(self, multiple: int) -> int:
        """The longest usual sequence that divides a slab, as a multiple of this."""
        fits = [rows for rows in range(1, self.steps + 1) if self.steps % rows == 0 and rows % multiple == 0]
        return max([rows for rows in fits if rows <= _LONG and rows > 1] or fits[1:] or [1])


def _slab_lengths(graph: Graph, policy: str) -> set[int]:
    """Rows of the slabs that the trainer of a policy gets."""
    found = set()
    for stream in graph.streams:
        if stream.kind == "sample" and stream.policy == policy:
            for node, _, side in members(graph, stream.name):
                args = load(REGISTRIES["worker"].resolve(node.worker).Args, node.args)
                if side == "producer" and isinstance(steps := getattr(args, "steps", None), int):
                    found.add(steps)
    return found


def _section(graph: Graph, policy: str) -> str:
    """Where the settings of its algorithm stand in a file."""
    return "algorithm" if list(graph.policies) == ["main"] else f"policies.{policy}.algorithm"
