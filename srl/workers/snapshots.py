"""What an inline checkpoint keeps of a group of envs, so that a resumed run continues exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.core.tree import copy_into, map_tree
from srl.workers.group import Group


def snapshot(group: Group, barrier: int) -> dict[str, Any]:
    """What `restore` needs to continue at the next slab. Envs that cannot be saved are made anew, here and there."""
    env = group.env.save()
    if env is None:
        group.renew(barrier)
    saved: dict[str, Any] = {
        "players": {name: map_tree(np.copy, player.outliving) for name, player in group.players.items()},
        "tick": np.array([group.tick]),
    }
    if group.log is not None:
        saved["episodes"] = map_tree(np.copy, group.log.arrays)
    return saved if env is None else {**saved, "env": env}


def restore(group: Group, saved: Mapping[str, Any], barrier: int) -> None:
    """The inverse of `snapshot`."""
    if "env" not in saved:
        group.renew(barrier)
    group.tick = int(saved["tick"][0])
    for name, player in group.players.items():
        copy_into(player.outliving, saved["players"][name])
    if group.log is not None:
        copy_into(group.log.arrays, saved["episodes"])
    if "env" in saved:
        group.env.load(saved["env"])
