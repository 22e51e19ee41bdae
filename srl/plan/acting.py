"""Policies that act: made from what was inspected, with the weights that they load. Imports no torch unless one needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from srl.api.env import mask_leaves
from srl.api.policy import Ask, Policy, PolicySpec
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.seeds import Rng
from srl.core.spec import lead, zeros
from srl.core.tree import map_tree
from srl.core.types import PolicyEntry
from srl.core.where import Path
from srl.plan.specs import PolicyInfo

_ROWS = 4  # envs in the dry run


def ready_policy(info: PolicyInfo, entry: PolicyEntry, device: str = "cpu") -> Policy:
    """A policy that acts; one that is not trained has its weights already. What has no torch stays on the CPU."""
    policy = acting_policy(info)
    if device != "cpu" and hasattr(policy, "to"):
        policy.to(device)
    if entry.algorithm is None and entry.load is not None:
        from srl.store.weights import read_weights  # an actor has no need of it, unless a policy of its own loads something

        policy.load(read_weights(entry.load, info.name), 0)
    return policy


def acting_policy(info: PolicyInfo) -> Policy:
    """A policy that acts: the torch-free twin where there is one."""
    if info.twin is not None:
        return cast(Policy, REGISTRIES["policy"].resolve(info.twin)(info.config, info.spec))
    if not info.needs_torch:
        return cast(Policy, new_policy(info.use, info.config, info.spec))
    from srl.api.neural import drawing_nothing

    with drawing_nothing():  # a trainer of this process may draw from the same generator
        return cast(Policy, new_policy(info.use, info.config, info.spec))


def new_policy(use: str, config: Mapping[str, Any], spec: PolicySpec, path: Path = ("policy",)) -> Any:
    """The policy itself, from its name and settings, which stand at `path`."""
    kind = REGISTRIES["policy"].resolve(use)
    settings = getattr(kind, "Config", None)
    return kind(load(settings, config, path=path) if settings is not None else dict(config), spec)


def named_arrays(policy: Any) -> dict[str, Any]:
    """Parameters and buffers of a torch policy by name; a torch-free policy has none."""
    if not hasattr(policy, "state_dict"):
        return {}
    return {name: tensor.detach().cpu().numpy() for name, tensor in policy.state_dict().items()}


def zero_ask(info_spec: PolicySpec, memory: Any, envs: int = _ROWS) -> Ask:
    """A block of zeros."""
    rows = envs * info_spec.agents
    ids = np.arange(rows, dtype=np.int64)
    mask = map_tree(lambda leaf: np.ones(leaf.shape, bool), lead(mask_leaves(info_spec.action), rows)) if info_spec.mask else None
    return Ask(
        obs=zeros(lead(info_spec.obs, rows)),
        memory=zeros(lead(memory, rows)) if memory != {} else {},
        first=np.ones(rows, bool),
        mask=mask,
        state=zeros(lead(info_spec.state, envs)) if info_spec.state is not None else None,
        ids=ids,
        rng=Rng(ids.astype(np.uint64)),
    )


def answer(policy: Policy, info: PolicyInfo, rows: Mapping[str, Any], *, greedy: bool) -> dict[str, Any]:
    """The policy's answer to these `[E, A, ...]` rows, with the part of `extra` that the algorithm needs."""
    envs, agents = rows["first"].shape
    count = envs * agents
    flat = {name: map_tree(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), rows[name]) for name in rows if name != "state"}
    act = policy.act(
        Ask(
            obs=flat.get("obs", {}),
            memory=flat.get("memory", {}),
            first=flat["first"],
            mask=flat.get("mask"),
            state=rows.get("state"),
            ids=flat["ids"],
            rng=Rng(flat["keys"]),
            greedy=greedy,
        )
    )
    done: dict[str, Any] = {"action": act.action}
    if info.memory != {}:
        done["memory"] = act.memory
    if info.extra:
        extra = cast("dict[str, Any]", act.extra)
        done["extra"] = {name: extra[name] for name in info.extra}
    return cast("dict[str, Any]", map_tree(lambda leaf: leaf.reshape(envs, agents, *leaf.shape[1:]), done))
