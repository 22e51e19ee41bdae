"""Random rows as the engine hands them to a learner: slabs that a policy recorded in a random world, and batches of a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from srl.api.env import ActionSpec, Discrete, MultiDiscrete, mask_leaves
from srl.api.policy import Ask, Policy, PolicySpec
from srl.api.slab import Replayed, SlabShape, slab_spec
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf, lead, spec_of, zeros
from srl.core.tree import Array, Tree, copy_into, leaves, map_tree
from srl.plan.acting import zero_ask


def random_tree(spec: Any, noise: np.random.Generator) -> Any:
    """Numbers of about 1 where they are real, of the whole range where they are bytes, else small ones."""

    def one(leaf: Leaf) -> Array:
        if leaf.dtype == "bool":
            return noise.random(leaf.shape) < 0.5
        if leaf.dtype == "uint8":
            return noise.integers(0, 256, leaf.shape, np.uint8)
        if np.dtype(leaf.dtype).kind in "iu":
            return noise.integers(0, 2, leaf.shape).astype(leaf.dtype)
        return noise.standard_normal(leaf.shape).astype(leaf.dtype)

    return map_tree(one, spec)


def random_obs(spec: Any, seen: Tree | None, noise: np.random.Generator) -> Any:
    """Rows that fit `spec`, of those that were seen if there are any."""
    if seen is None:
        return random_tree(spec, noise)
    rows = len(next(leaf for _, leaf in leaves(seen)))
    pairs = zip(leaves(seen), leaves(spec), strict=True)
    axes = next(leaf.shape[: len(leaf.shape) - source.ndim + 1] for (_, source), (_, leaf) in pairs)
    chosen = noise.integers(0, rows, axes)
    return map_tree(lambda leaf: leaf[chosen], seen)


def random_mask(action: ActionSpec, lead_: tuple[int, ...], noise: np.random.Generator) -> Any:
    """Masks that allow about half, and at least one choice of each entry."""
    if isinstance(action, dict):
        return {key: found for key, part in action.items() if (found := random_mask(part, lead_, noise)) is not None}
    leaf: Any = mask_leaves(action)
    if leaf == {}:
        return None
    mask = noise.random((*lead_, *leaf.shape)) < 0.5
    start = 0
    for number in entries(action):
        chosen = noise.integers(0, number, lead_)[..., None]
        np.put_along_axis(mask[..., start : start + number], chosen, True, -1)
        start += number
    return mask


def entries(action: ActionSpec) -> tuple[int, ...]:
    """How many choices every entry of a discrete action has; of other actions none."""
    return (action.n,) if isinstance(action, Discrete) else action.counts if isinstance(action, MultiDiscrete) else ()


def extra_of(policy: Policy, spec: PolicySpec) -> dict[str, Any]:
    """The specs of what a policy gives beside its actions."""
    found = dict(policy.act(zero_ask(spec, policy.memory)).extra)
    return {name: map_tree(lambda array: spec_of(np.asarray(array)[0]), tree) for name, tree in found.items()}


def recorded(
    policy: Policy,
    spec: PolicySpec,
    shape: SlabShape,
    extra: Mapping[str, Any],
    *,
    signals: Mapping[str, Any] | None = None,
    seen: Tree | None = None,
    seed: int = 0,
    ends: float = 0.15,
    dense: bool = False,
) -> dict[str, Any]:
    """A slab that the policy recorded in a random world. `ends`: share of rows that end an episode; `dense`: none does."""
    noise = np.random.default_rng(seed)
    rows = zeros(slab_spec(shape, spec, memory=policy.memory, extra=extra, signals=signals or {}))
    rows["obs"] = random_obs(spec_of(rows["obs"]), seen, noise)
    for name in ("state", "signals"):
        if name in rows:
            rows[name] = random_tree(spec_of(rows[name]), noise)
    if spec.mask:
        rows["mask"] = random_mask(spec.action, (shape.steps + 1, shape.envs, shape.agents), noise)
        rows["choice"][...] = noise.random(rows["choice"].shape) < 0.8
    rows["reward"][...] = noise.normal(size=rows["reward"].shape)
    rows["valid"][...] = True
    if not dense:
        _end_episodes(rows, noise, ends)
    _ask(policy, spec, shape, rows, seed)
    if spec.mask:
        rows["choice"] &= rows["valid"]
    return rows  # type: ignore[no-any-return]


def _end_episodes(rows: dict[str, Any], noise: np.random.Generator, ends: float) -> None:
    """Terminated, truncated, and the rows of the last observations."""
    end = noise.random(rows["valid"].shape) < ends
    rows["valid"][1:] = ~end[:-1]
    end &= rows["valid"]
    rows["terminated"][...] = end & (noise.random(end.shape) < 0.5)
    rows["truncated"][...] = end & ~rows["terminated"]
    rows["valid"][1:] = ~(rows["terminated"] | rows["truncated"])[:-1]
    rows["first"][1:-1] = ~rows["valid"][:-1]


def _ask(policy: Policy, spec: PolicySpec, shape: SlabShape, rows: dict[str, Any], seed: int) -> None:
    """Let the policy answer every row as an actor asks it, and write what it answers."""
    number = shape.envs * shape.agents
    memory: Any = zeros(lead(policy.memory, number))
    ids = np.arange(number)
    every = shape.memory_every or shape.steps
    for t in range(shape.steps + 1):
        at = _flat_row(t, number)
        first = rows["first"][t].reshape(-1)
        memory = map_tree(np.array, memory)
        for _, leaf in leaves(memory):
            leaf[first] = 0.0
        if policy.memory != {} and t < shape.steps and t % every == 0:
            for (_, target), (_, source) in zip(leaves(rows["memory"]), leaves(memory), strict=True):
                target[t // every] = source.reshape(shape.envs, shape.agents, *source.shape[1:])
        state = map_tree(lambda leaf, t=t: leaf[t], rows["state"]) if "state" in rows else None
        mask = at(rows["mask"]) if spec.mask else None
        act = policy.act(
            Ask(obs=at(rows["obs"]), memory=memory, first=first, mask=mask, state=state, ids=ids, rng=Rng(row_keys(seed, ids, t)))
        )
        memory = act.memory
        for name, tree in rows.get("extra", {}).items():
            copy_into(at(tree), act.extra[name])  # type: ignore[index, call-overload]
        if t < shape.steps:
            copy_into(at(rows["action"]), act.action)


def _flat_row(t: int, number: int) -> Callable[[Any], Any]:
    """What takes row t of a tree, `[N, ...]`: views."""
    return lambda tree: map_tree(lambda leaf: leaf[t].reshape(number, *leaf.shape[3:]), tree)


def drawn(rows: dict[str, Any], replay: Replayed, seed: int = 0) -> dict[str, Any]:
    """The same rows as a replay draws them: every env and agent is a window. Windows of one row have a sum of rewards."""
    steps, envs, agents = rows["reward"].shape
    columns = envs * agents

    def apart(leaf: Array) -> Array:
        return leaf if leaf.ndim == 1 else leaf.reshape(leaf.shape[0], columns, 1, *leaf.shape[3:])

    batch: dict[str, Any] = {
        name: tree if name == "state" else map_tree(apart, tree)
        for name, tree in rows.items()
        if name not in ("version", "reused")
    }
    noise = np.random.default_rng(seed + 1)
    batch["ids"] = np.arange(columns)
    batch["weight"] = noise.random(columns).astype(np.float32) / 2 + 0.5
    batch["version"] = np.zeros(columns, np.int64)
    batch["env_steps"] = np.array([steps * envs])
    if steps == 1:
        batch["discount"] = np.where(batch["terminated"], 0.0, replay.gamma**replay.n_step).astype(np.float32)
    return batch


def spoiled(rows: dict[str, Any], where: Array, names: tuple[str, ...], seen: Tree | None = None) -> dict[str, Any]:
    """A copy in which these leaves say something else in the rows `where`, `[T or T + 1, E, A]`."""
    noise = np.random.default_rng(2)
    found: dict[str, Any] = map_tree(np.copy, rows)
    for name in names:
        for path, leaf in leaves(found.get(name, {})):
            at = where[: len(leaf)]
            at = np.concatenate([at, np.zeros((len(leaf) - len(at), *at.shape[1:]), bool)])
            known = dict(leaves(seen))[path] if name == "obs" and seen is not None else None
            other = random_obs(Leaf(leaf[at].shape, leaf.dtype.name), known, noise)
            leaf[at] = other * 3 if leaf.dtype.kind == "f" and known is None else other
    return found
