"""A policy as one program over plain arrays: observation, mask and memory in, the env's action and the next memory out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.batch import Batch
from srl.api.env import ActionSpec, Box, mask_leaves
from srl.api.neural import NeuralPolicy
from srl.core.spec import Leaf
from srl.core.tree import build, leaves, map_tree
from srl.nets.dists import Bernoulli, Categorical, Gaussian, Joint, MultiCategorical
from srl.nets.q_policy import Best
from srl.nets.tanh_normal import TanhNormal
from srl.plan.specs import PolicyInfo

ROWS = 3
"""Rows of the example that is traced; any other number runs too."""


class Program(nn.Module):
    """Takes the arrays of `inputs` in their order, `[N, ...]` each, and gives those that `outputs` names.

    Memory is zero at the start of an episode. Inputs that are not in `kept` are zeros within the program.
    """

    def __init__(self, policy: NeuralPolicy, info: PolicyInfo, kept: Collection[str] | None = None) -> None:
        super().__init__()
        self.policy = policy
        self.action = info.spec.action
        self.bounds = info.bounds
        self.all: dict[str, Leaf] = dict(_inputs(info))
        self.inputs = {name: leaf for name, leaf in self.all.items() if kept is None or name in kept}
        with torch.no_grad():
            self.outputs = list(self.run(*self.example()))

    def example(self) -> tuple[Tensor, ...]:
        """A few rows of zeros; every choice of a mask is allowed."""
        return tuple(
            torch.full((ROWS, *leaf.shape), name.split("/")[0] == "mask", dtype=_dtype(leaf))
            for name, leaf in self.inputs.items()
        )

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.run(*arrays).values())

    def run(self, *arrays: Tensor) -> dict[str, Tensor]:
        """The outputs by name."""
        given = dict(zip(self.inputs, arrays, strict=True))
        given |= {name: arrays[0].new_zeros((arrays[0].shape[0], *leaf.shape), dtype=_dtype(leaf))
                  for name, leaf in self.all.items() if name not in given}  # fmt: skip
        first = torch.zeros_like(arrays[0].reshape(arrays[0].shape[0], -1)[:, 0], dtype=torch.bool)[None]
        rows = {name: leaf if name.startswith("memory") else leaf[None] for name, leaf in given.items()}
        mask = _tree(rows, "mask")
        batch = Batch({"obs": _tree(rows, "obs"), "mask": mask, "state": _tree(rows, "state"), "first": first,
                       "memory": _tree(rows, "memory") or {}, "valid": ~first})  # fmt: skip
        heads = self.policy.unroll(batch)
        dist = self.policy.dist(heads, mask)
        action = _bounded(map_tree(lambda leaf: leaf[0], dist.mode()), self.action, self.bounds)
        after = {f"memory/{path}" if path else "memory": leaf for path, leaf in leaves(heads.get("memory", {}))}
        found = {_named("action", path): leaf for path, leaf in leaves(action)}
        found |= {name: leaf[0] for name, leaf in _distribution(dist, heads, "")}
        return found | {f"next_{name}": leaf for name, leaf in after.items() if name in self.inputs}


def needed(program: torch.export.ExportedProgram, inputs: list[str], outputs: list[str]) -> set[str]:
    """The inputs that decide actions: not the state that only a critic reads, nor the critic's memory."""
    program = program.run_decompositions()  # nothing is written in place any more
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    name_of = dict(zip(signature.user_inputs, inputs, strict=True))
    ends = dict(zip(outputs, signature.user_outputs, strict=True))
    wanted = [name for name in outputs if not name.startswith("next_")]
    kept: set[str] = set()
    while wanted:
        seen, open_ = set(), [nodes[str(ends[wanted.pop()])]]
        while open_:
            node = open_.pop()
            if node not in seen and not isinstance(node.meta.get("val"), torch.SymInt):  # a number of rows is no data
                seen.add(node)
                open_ += node.all_input_nodes
        new = {name_of[node.name] for node in seen if node.name in name_of} - kept
        kept |= new
        wanted += [f"next_{name}" for name in new if f"next_{name}" in ends]
    return kept


def _inputs(info: PolicyInfo) -> Iterator[tuple[str, Leaf]]:
    """Of one row."""
    spec = info.spec
    parts: dict[str, Any] = {"obs": spec.obs}
    if spec.mask and "mask" in info.reads:
        parts["mask"] = mask_leaves(spec.action)
    if "state" in info.reads and spec.state is not None:
        parts["state"] = spec.state
    parts["memory"] = info.memory
    for part, tree in parts.items():
        for path, leaf in leaves(tree):
            yield _named(part, path), leaf


def _named(part: str, path: str) -> str:
    return f"{part}/{path}" if path else part


def _tree(rows: dict[str, Tensor], part: str) -> Any:
    """The tree of one part of the inputs; None if it has none."""
    pairs = {name.removeprefix(part).removeprefix("/"): leaf for name, leaf in rows.items() if name.split("/")[0] == part}
    return build(pairs) if pairs else None


def _dtype(leaf: Leaf) -> torch.dtype:
    return torch.from_numpy(np.zeros((), leaf.dtype)).dtype


def _bounded(action: Any, spec: ActionSpec, bounds: str) -> Any:
    """As `srl.api.actions.action_map`."""
    if isinstance(spec, dict):
        return {key: _bounded(action[key], part, bounds) for key, part in spec.items()}
    if not isinstance(spec, Box) or bounds == "none":
        return action
    low, high = (torch.tensor(one, dtype=torch.float32).reshape(spec.shape) for one in (spec.low, spec.high))
    if bounds == "clip":
        return torch.clamp(action, low, high)
    return (high + low) / 2 + (high - low) / 2 * torch.clamp(action, -1.0, 1.0)


def _distribution(dist: Any, heads: dict[str, Any], path: str) -> Iterator[tuple[str, Tensor]]:
    """The numbers of a distribution, `[1, N, ...]`."""
    if isinstance(dist, Joint):
        for key, part in dist.parts.items():
            yield from _distribution(part, heads, _named(path, key) if path else key)
    elif isinstance(dist, Best):
        yield "q", heads["q"]
    elif isinstance(dist, Categorical):
        yield _named("logits", path), dist.logits
    elif isinstance(dist, MultiCategorical):
        yield _named("logits", path), torch.cat([part.logits for part in dist.parts], -1)
    elif isinstance(dist, Bernoulli):
        yield _named("logits", path), dist.logits.movedim(0, -1)
    elif isinstance(dist, Gaussian | TanhNormal):
        yield _named("mean", path), dist.mean
        yield _named("log_std", path), dist.log_std.expand_as(dist.mean)
