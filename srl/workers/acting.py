"""From a question's rows to the policy and back: `[E, A, ...]` blocks are `[N, ...]` rows to a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from srl.api.policy import Ask, Policy
from srl.core.seeds import Rng
from srl.core.tree import Tree, map_tree
from srl.plan.specs import PolicyInfo


def answer(policy: Policy, info: PolicyInfo, rows: Mapping[str, Any], *, greedy: bool) -> dict[str, Any]:
    """What the policy does in these rows; `extra` only as far as the algorithm wants it."""
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
    return cast("dict[str, Any]", _blocks(done, envs, agents))


def _blocks(tree: Tree, envs: int, agents: int) -> Tree:
    if agents == 1:
        return map_tree(lambda leaf: leaf[:, None], tree)  # type: ignore[no-any-return]
    return map_tree(lambda leaf: leaf.reshape(envs, agents, *leaf.shape[1:]), tree)  # type: ignore[no-any-return]
