"""A finished run: predict with its policies, evaluate and film them. Needs only the run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.api.actions import action_map
from srl.api.env import mask_leaves
from srl.api.policy import Ask, Policy
from srl.core.errors import UserError
from srl.core.files import read_text
from srl.core.progress import Tell, silent
from srl.core.seeds import Rng, row_keys, word
from srl.core.spec import lead, zeros
from srl.core.tree import Array, Tree, leaves, map_tree
from srl.graph.build import graph_from_yaml
from srl.graph.spec import Graph
from srl.plan.acting import new_policy, ready_policy
from srl.plan.derive import derive
from srl.plan.specs import Derived, PolicyInfo
from srl.store import checkpoint
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder
from srl.store.weights import check_checkpoint, checkpoint_folder
from srl.workers.rollout import Rollout, picture, rendering

if TYPE_CHECKING:  # torch
    from srl.api.neural import NeuralPolicy


def load_run(folder: str | Path) -> LoadedRun:
    """The run at `folder`, or the newest one below it."""
    return LoadedRun(RunFolder.open(folder))


class LoadedRun:
    """A run, read from its folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder.path
        folder.import_as_launched()
        self.graph: Graph = _graph(folder)

    @cached_property
    def derived(self) -> Derived:
        """All specs; builds env and policies once."""
        return derive(self.graph)

    def policy(self, which: str | Path = "best", *, name: str | None = None) -> LoadedPolicy:
        """The policy of a checkpoint: `best`, `latest`, `initial`, `step_000100000`, a tag or a path.

        `name`: of several policies.
        """
        name = name or self._only()
        if name not in self.derived.policies:
            raise UserError(f"the run has no policy '{name}'", ("policies", ", ".join(self.derived.policies)))
        info = self.derived.policies[name]
        acting = ready_policy(info, self.graph.policies[name])
        path = self._load(acting, which, name) if self._learned(name) else None
        return LoadedPolicy(info, acting, path, self.graph.seed)

    def network(self, which: str | Path = "best", *, name: str | None = None) -> NeuralPolicy:
        """The torch module of a policy with the weights of a checkpoint, for other programs.

        `network(obs)` gives the most likely actions for tensors `[N, ...]`, with memory `network(obs, memory)` both.
        `torch.jit.trace` and `torch.export` take it.
        """
        from srl.api.neural import drawing_nothing

        name = name or self._only()
        info = self.derived.policies[name]
        with drawing_nothing():
            network: NeuralPolicy = new_policy(info.use, info.config, info.spec)
        self._load(network, which, name)
        return network.eval()

    def checkpoint(self, which: str | Path = "best", name: str | None = None) -> Path:
        """The checkpoint of this name; `best` is the latest if nothing was evaluated."""
        if isinstance(which, Path) or "/" in str(which):
            return Path(which)
        place = checkpoint_folder(self.folder, self.graph.policies, name or self._only())
        if which == "best":
            path = checkpoint.best(place) or checkpoint.latest(place)
        elif which in ("latest", "initial"):
            path = checkpoint.latest(place if which == "latest" else place / which)
        else:
            found = [folder / str(which) for folder in (place, place / "archive")]
            path = next((folder for folder in found if (folder / "manifest.json").is_file()), None)
            path = path or checkpoint.latest(place / "tags" / str(which))
        if path is None:
            raise self._no_checkpoint(str(which), place)
        return path

    def sources(self, which: str | Path = "best") -> dict[str, Path]:
        """The checkpoint of this name, for every policy that plays and learns."""
        return {name: self.checkpoint(which, name) for name in self.derived.policies if self._learned(name)}

    @property
    def greedy(self) -> bool:
        """Whether the run is evaluated with the most likely actions, not with sampled ones."""
        evaluators = [node for node in self.graph.nodes if node.worker == "evaluator"]
        return all(bool(node.args.get("greedy", True)) for node in evaluators)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return list(read_numbers(self.folder / "metrics.jsonl"))

    def rollout(self, policies: Mapping[str, LoadedPolicy], *, envs: int, role: str = "play", render: bool = False) -> Rollout:
        """New envs in which these policies act."""
        graph = rendering(self.graph) if render else self.graph
        return Rollout(graph, self.derived, {name: one.acting for name, one in policies.items()}, envs=envs, role=role)

    def evaluate(
        self,
        which: str | Path = "best",
        *,
        episodes: int = 20,
        envs: int | None = None,
        greedy: bool | None = None,
        against: Mapping[str, LoadedPolicy] | None = None,
        tell: Tell = silent,
    ) -> Evaluation:
        """Means over whole episodes: `return`, `length`, and the env's own numbers. `against` replaces policies by name.

        `greedy`: None, as the run's own evaluator plays.
        """
        greedy = self.greedy if greedy is None else greedy
        policies = {name: self.policy(which, name=name) for name in self.derived.policies} | dict(against or {})
        with closing(self.rollout(policies, envs=envs or min(episodes, 8), role="evaluation")) as rollout:
            whole = -(-episodes // rollout.envs) * rollout.envs  # every env plays as many
            while not rollout.step(greedy=greedy, episodes=whole):
                tell("episodes", rollout.episodes, whole)
            spread = {name: float(np.std(values, ddof=len(values) > 1)) for name, values in rollout.returns().items()}
            return Evaluation(rollout.result(), spread=spread, episodes=rollout.episodes, greedy=greedy)

    def play(self, which: str | Path = "best", *, episodes: int = 1, greedy: bool | None = None) -> Iterator[Array]:
        """Pictures of one env, `[height, width, 3]`, for so many episodes. `greedy` as in `evaluate`."""
        greedy = self.greedy if greedy is None else greedy
        policies = {name: self.policy(which, name=name) for name in self.derived.policies}
        with closing(self.rollout(policies, envs=1, render=True)) as rollout:
            yield picture(rollout)
            while not rollout.step(greedy=greedy, episodes=episodes):
                yield picture(rollout)

    def _load(self, acting: Policy, which: str | Path, name: str) -> Path:
        """Give a policy the weights of a checkpoint."""
        path = self.checkpoint(which, name)
        check_checkpoint(path, name, self.derived.policies[name].params, ("try", "the policy and env of the run that wrote it"))
        saved = checkpoint.read(path)
        acting.load(saved.tree("policy"), saved.step)
        return path

    def _no_checkpoint(self, which: str, place: Path) -> UserError:
        whole = [one.name for one in checkpoint.checkpoints(place)]
        if not whole and checkpoint.best(place) is None:
            if (state := RunFolder(self.folder).state) != "running":
                return UserError(f"{self.folder} has no checkpoint", ("found", f"the run ended ({state}) before it saved one"))
            hint = "wait until the run has saved: every `checkpoint.every` updates, and when it ends or is stopped by Ctrl-C"
            return UserError(f"{self.folder} has no checkpoint yet", ("try", hint))
        archived = [one.name for one in checkpoint.checkpoints(place / "archive")]
        tags = sorted(one.name for one in (place / "tags").glob("*"))
        known = ["best", *(["latest"] if whole else []), *tags, *whole, *(name for name in archived if name not in whole)]
        return UserError(f"{self.folder} has no checkpoint '{which}'", ("known", ", ".join(known)))

    def _learned(self, name: str) -> bool:
        return self.derived.policies[name].params != {} and name in self.graph.learning

    def _only(self) -> str:
        names = list(self.graph.learning or self.graph.policies)
        if len(names) > 1:
            raise UserError("the run has several policies", ("policies", ", ".join(names)), ("try", f"name='{names[0]}'"))
        return names[0]


class Evaluation(dict[str, float]):
    """Means over episodes by name, with how they were measured."""

    def __init__(self, means: Mapping[str, float], *, spread: Mapping[str, float], episodes: int, greedy: bool) -> None:
        super().__init__(means)
        self.spread = spread
        """Standard deviation of the returns, by the same name."""
        self.episodes = episodes
        self.greedy = greedy
        """Whether the most likely actions were taken, or sampled ones."""


@dataclass
class LoadedPolicy:
    """One policy with its weights."""

    info: PolicyInfo
    acting: Policy
    checkpoint: Path | None
    seed: int
    _tick: int = 0

    def predict(
        self, obs: Tree, memory: Tree | None = None, *, greedy: bool = True, mask: Tree | None = None, state: Tree | None = None
    ) -> tuple[Any, Tree]:
        """`(action, memory)` for one observation, or for a stack of them; the action is the env's.

        Pass the memory back at the next step, and None at the start of an episode.
        """
        spec = self.info.spec
        stacked = _is_stack(obs, spec.obs)
        rows = map_tree(lambda leaf: np.asarray(leaf) if stacked else np.asarray(leaf)[None], obs)
        rows = map_tree(lambda leaf, want: np.asarray(leaf, want.dtype), rows, spec.obs)
        count = len(next(leaf for _, leaf in leaves(rows)))
        ids = np.arange(count, dtype=np.int64)
        first = np.full(count, memory is None)
        self._tick += 1
        act = self.acting.act(
            Ask(
                obs=rows,
                memory=zeros(lead(self.info.memory, count)) if memory is None else memory,
                first=first,
                mask=self._mask(mask, count, stacked),
                state=state,
                ids=ids,
                rng=Rng(row_keys(self.seed ^ word("predict"), ids, self._tick)),
                greedy=greedy,
            )
        )
        action = action_map(spec.action, self.info.bounds)(act.action)
        return (action if stacked else map_tree(lambda leaf: leaf[0], action)), act.memory

    def _mask(self, mask: Tree | None, count: int, stacked: bool) -> Tree | None:
        if not self.info.spec.mask:
            return None
        if mask is None:
            return map_tree(lambda leaf: np.ones(leaf.shape, bool), lead(mask_leaves(self.info.spec.action), count))  # type: ignore[no-any-return]
        return map_tree(lambda leaf: np.asarray(leaf, bool) if stacked else np.asarray(leaf, bool)[None], mask)  # type: ignore[no-any-return]


def _is_stack(obs: Tree, spec: Any) -> bool:
    """Whether the observation has an axis of rows before those of its spec."""
    want = dict(leaves(spec))
    for path, leaf in leaves(obs):
        if path not in want:
            break
        shape, row = np.shape(leaf), want[path].shape
        if shape == row:
            return False
        if shape[1:] == row:
            return True
        raise UserError(
            f"the observation{' ' + path if path else ''} has shape {shape}",
            ("expected", f"{row}, or {('rows', *row)} for several"),
        )
    raise UserError("the observation has other keys than the policy's", ("expected", ", ".join(want)))


def _graph(folder: RunFolder) -> Graph:
    if folder.graph.is_file():
        return graph_from_yaml(read_text(folder.graph), str(folder.graph))
    if not folder.config.is_file():
        raise UserError(f"{folder.path} holds neither graph.yaml nor config.yaml", ("expected", "the folder of a run"))
    from srl.plan.prepare import prepare

    return prepare(folder.config, inspect=False).graph
