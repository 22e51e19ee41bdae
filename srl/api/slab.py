"""The layout of a slab: all rows of E envs and A agents of one policy over T steps.

Rows 0..T are asked; row T gives the bootstrap and is asked again as row 0 of the next slab. `valid` rows are
real transitions, `choice` rows among them enter the policy loss. An episode's last observation is a row that
is not valid. `reward`, `terminated`, `truncated` belong to the action of their row. `version` answered row 0.
`reused`: a buffer has given the slab on before, so its steps are not new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from srl.api.env import action_leaves, mask_leaves
from srl.api.policy import PolicySpec
from srl.core.spec import Leaf, TreeSpec, lead


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
    return spec
