"""Evaluators: own envs and seeds, the newest weights, greedy and sampled; the best policy is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from srl.core.load import option
from srl.core.tree import Tree, map_tree
from srl.graph.policies import acting_policy
from srl.store import checkpoint
from srl.streams.base import End, ParamSubscriber
from srl.workers.base import Context, Port, Worker
from srl.workers.checkpoints import checkpoint_folder
from srl.workers.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class EvaluatorArgs:
    envs: int = option(8, "envs that play side by side", low=1)
    episodes: int = option(16, "episodes of each evaluation", low=1)
    every: int = option(50_000, "env steps between evaluations", low=1)
    sampled: bool = option(True, "also play with sampled actions, which is what training does")


class EvaluatorWorker(Worker):
    """Plays whole episodes with one version at a time, a step of all envs at each poll."""

    ports = {"params": Port("param", "subscriber")}
    Args = EvaluatorArgs
    args: EvaluatorArgs

    def __init__(self, args: EvaluatorArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        derived = context.derived
        self._params = {
            port.partition(":")[2] or next(iter(derived.policies)): cast(ParamSubscriber, end) for port, end in ends.items()
        }
        self._policies = {name: acting_policy(info) for name, info in derived.policies.items()}
        self._versions = dict.fromkeys(self._params, -1)
        self._weights: dict[str, Any] = {}
        self._next = 0
        self._env_steps = 0
        self._modes: list[bool] = []
        self._greedy: dict[str, float] = {}
        self._best = -np.inf
        self._rollout = Rollout(context.graph, derived, self._policies, envs=args.envs, role="evaluator")

    def poll(self) -> int:
        """Start an evaluation when one is due; else play on."""
        if not self._modes and not self._due():
            return 0
        mode = self._modes[0]
        if self._rollout.step(greedy=mode, episodes=self.args.episodes):
            self._report("greedy" if mode else "sampled", self._rollout.result())
            self._modes.pop(0)
            if self._modes:
                self._rollout.restart()
        return self.args.envs

    def waits(self) -> str:
        return f"{self._next:,} env steps"

    def drain(self) -> bool:
        """An evaluation that has begun is given up."""
        self._modes = []
        return True

    def close(self) -> None:
        self._rollout.close()

    def _due(self) -> bool:
        for name, end in self._params.items():
            newer = end.latest(self._versions[name])
            if newer is None:
                continue
            self._versions[name], tree = newer
            self._weights[name] = map_tree(np.copy, tree)
        if len(self._weights) < len(self._params):
            return False
        steps = min(int(tree["env_steps"][0]) for tree in self._weights.values())
        if steps < self._next:
            return False
        for name, tree in self._weights.items():
            self._policies[name].load(tree["params"], self._versions[name])
        self._env_steps = steps
        self._next = steps - steps % self.args.every + self.args.every
        self._modes = [True, False] if self.args.sampled else [True]
        self._rollout.restart()
        return True

    def _report(self, mode: str, result: Mapping[str, float]) -> None:
        prefix = "eval" if mode == "greedy" else "eval_sampled"
        for name, value in result.items():
            self.reading.add(f"{prefix}/{name}", value)
        self.reading.totals["eval/env_steps"] = self._env_steps
        score = result.get("return")
        if mode == "greedy" and score is not None and score > self._best:
            self._best = score
            self._keep(score)

    def _keep(self, score: float) -> None:
        """Write the weights of the best policies, each into a folder of its own beside the trainer's checkpoints."""
        run: Path | None = self.context.folder
        if run is None:
            return
        for name, tree in self._weights.items():
            folder = checkpoint_folder(run, self.context.graph, name)
            checkpoint.write_best(folder, self._env_steps, {"policy": tree["params"]}, score)

    def state(self) -> Tree:
        return {"next": np.array([self._next]), "best": np.array([self._best])}

    def restore(self, state: Tree) -> None:
        assert isinstance(state, dict)
        self._next, self._best = int(state["next"][0]), float(state["best"][0])
