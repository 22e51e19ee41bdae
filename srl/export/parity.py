"""Compare an exported program with the original, on the questions of real episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from srl.api.actions import action_map
from srl.api.env import ActionSpec, MultiBinary, MultiDiscrete
from srl.api.policy import Act, Ask, Policy
from srl.core.errors import SrlError
from srl.core.tree import Array, leaves, map_tree
from srl.export.program import Program
from srl.loaded import LoadedPolicy, LoadedRun

TOLERANCE = 1e-5
"""The largest difference of a number that is allowed, in units of the largest of its kind or of 1."""
ENVS = 8

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Parity:
    """How an exported program compares with the original."""

    observations: int
    difference: float
    """The largest of any number, in units of the largest of its kind or of 1."""
    ties: int
    """Actions that differ where the original gives both the same value, up to the tolerance."""


class Recorder:
    """A policy that keeps what it was asked and what it answered."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.asked: list[tuple[Ask, Act]] = []

    def act(self, ask: Ask) -> Act:
        act = self.policy.act(ask)
        self.asked.append((_copy(ask, ("obs", "memory", "mask", "state", "first")), _copy(act, ("action", "memory"))))
        return act


def record(run: LoadedRun, policies: Mapping[str, LoadedPolicy], name: str, observations: int) -> list[tuple[Ask, Act]]:
    """Questions to the policy `name` and its answers, in episodes that it plays with its most likely actions."""
    recorder = Recorder(policies[name].acting)
    playing = dict(policies) | {name: replace(policies[name], acting=recorder)}  # type: ignore[arg-type]
    with closing(run.rollout(playing, envs=ENVS, role="evaluation")) as rollout:
        while sum(len(ask.first) for ask, _ in recorder.asked) < observations:
            rollout.step(greedy=True)
    return recorder.asked


def compare(run: Callable[[Arrays], Arrays], program: Program, bounds: str, asked: list[tuple[Ask, Act]]) -> Parity:
    """Run the exported program on every question; an SrlError if it answers otherwise than the original."""
    largest, ties, rows = 0.0, 0, 0
    to_env = action_map(program.action, bounds)
    for ask, act in asked:
        given = _inputs(program, ask)
        found = run(given)
        with torch.inference_mode():
            wanted = {key: one.numpy() for key, one in program.run(*(torch.from_numpy(leaf) for leaf in given.values())).items()}
        exact = {_named("action", path): leaf for path, leaf in leaves(to_env(act.action))}
        exact |= {_named("next_memory", path): leaf for path, leaf in leaves(act.memory)}
        for name in program.outputs:
            want = exact.get(name, wanted[name])
            if np.issubdtype(found[name].dtype, np.floating):
                scale = max(1.0, float(np.abs(want).max()))
                largest = max(largest, float(np.abs(found[name] - want).max()) / scale)
            elif (differ := found[name] != want).any():
                path = name.removeprefix("action").removeprefix("/")
                if not _tied(_part(program.action, path), wanted, path, found[name], want)[differ].all():
                    raise _differs(f"output '{name}' is another action", rows, int(differ.sum()))
                ties += int(differ.sum())
        rows += len(ask.first)
    if not largest <= TOLERANCE:
        raise _differs(f"numbers differ by {largest:.1e}", rows, None)
    return Parity(rows, largest, ties)


def _inputs(program: Program, ask: Ask) -> Arrays:
    """A question as the arrays of the program."""
    state = ask.state
    if state is not None:
        agents = len(ask.first) // len(next(leaf for _, leaf in leaves(state)))
        state = map_tree(lambda leaf: np.repeat(leaf, agents, 0), state)
    parts: dict[str, Any] = {"obs": ask.obs, "mask": ask.mask, "state": state, "memory": ask.memory}
    flat = {_named(part, path): leaf for part, tree in parts.items() if tree is not None for path, leaf in leaves(tree)}
    return {name: flat[name] for name in program.inputs}


def _tied(action: ActionSpec, wanted: Arrays, path: str, found: Array, want: Array) -> Array:
    """Where the original gives two actions the same value, up to the tolerance."""
    values = wanted.get("q", wanted.get(_named("logits", path)))
    if values is None:
        return np.zeros(found.shape, bool)
    if isinstance(action, MultiBinary):
        return np.abs(values) <= TOLERANCE
    counts = action.counts if isinstance(action, MultiDiscrete) else (values.shape[-1],)
    parts = np.split(values, np.cumsum(counts)[:-1], -1)
    shape = found.shape
    one, two = (array.reshape(len(found), -1) for array in (found, want))
    rows = np.arange(len(found))
    gaps = np.stack([np.abs(part[rows, one[:, i]] - part[rows, two[:, i]]) for i, part in enumerate(parts)], -1)
    tied: Array = gaps.reshape(shape) <= TOLERANCE * np.maximum(1.0, np.abs(values).max())
    return tied


def _part(action: ActionSpec, path: str) -> ActionSpec:
    for key in path.split("/") if path else ():
        action = action[key]  # type: ignore[index]
    return action


def _differs(what: str, row: int, number: int | None) -> SrlError:
    times = [] if number is None else [("found", f"{number} of the rows after row {row}")]
    return SrlError(
        "the exported policy does not act as the original",
        ("because", what),
        *times,
        ("try", "--format pt2, or report it together with the run's config.yaml"),
    )


def _named(part: str, path: str) -> str:
    return f"{part}/{path}" if path else part


def _copy(one: Any, names: tuple[str, ...]) -> Any:
    """The same with copies of these trees: views are used again."""
    trees = {name: getattr(one, name) for name in names}
    return replace(one, **{name: None if tree is None else map_tree(np.array, tree) for name, tree in trees.items()})
