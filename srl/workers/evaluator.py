"""Evaluators: episodes with the newest weights in separate envs; greedy, sampled, against the initial policy, and on film."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from srl.api.policy import Policy
from srl.core.load import option
from srl.core.machine import usable_cores
from srl.core.text import count
from srl.core.tree import Array, Tree
from srl.core.types import Matches, Waiting
from srl.envs.video import record
from srl.graph.spec import Graph
from srl.plan.acting import ready_policy
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.store.weights import checkpoint_folder, initial_folder
from srl.streams.base import updates_of
from srl.streams.param import ParamSubscriber
from srl.streams.peers import End
from srl.workers.base import Context, Port, Resumable, Worker
from srl.workers.modest import Modest
from srl.workers.rollout import Rollout, picture, rendering

_LOOK = 0.1
"""Seconds between two looks at the newest weights."""
_AT_ONCE = 0.2
"""Seconds of it between two looks at messages."""


_BETWEEN = 63
"""Bits of the updates in which versions differ that are not looked at."""


@dataclass(frozen=True, kw_only=True)
class EvaluatorArgs(Matches):
    envs: int = option(8, "envs stepped in parallel", low=1)


@dataclass(frozen=True, slots=True)
class _Match:
    """One way to play in an evaluation."""

    name: str
    """Prefix of its numbers: `eval`, `eval_sampled`, `cross/seeker`."""
    greedy: bool
    stand_ins: Mapping[str, Policy] = field(default_factory=dict)


class EvaluatorWorker(Resumable, Worker):
    """Evaluates one version at a time over whole episodes; each poll steps all envs."""

    ports = {"params": Port("param", "subscriber")}
    Args = EvaluatorArgs
    writes = True
    nice = 19
    concludes = True
    noun = "evaluator"
    advice = None
    args: EvaluatorArgs

    def __init__(self, args: EvaluatorArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        derived = context.derived
        only = next(iter(derived.policies))
        self._params = {port.partition(":")[2] or only: cast(ParamSubscriber, end) for port, end in ends.items()}
        entries = context.graph.policies
        self._policies = {name: ready_policy(info, entries[name]) for name, info in derived.policies.items()}
        known = derived.policies if args.cross_play else {}
        self._initial = {name: ready_policy(info, entries[name]) for name, info in known.items()}
        self._versions = dict.fromkeys(self._params, -1)
        self._weights: dict[str, Any] = {}
        """Valid until the next look at newer ones, which comes after the evaluation."""
        self._knows_initial = False
        self._next = self._env_steps = self._evaluations = 0
        self._matches: list[_Match] = []
        self._results: dict[str, float] = {}
        """Of the matches of this evaluation that have been played."""
        self._scored = ""
        """The match whose return decides which checkpoint is the best."""
        self._film: list[Array] | None = None
        earlier = context.resume or (context.folder if context.incarnation else None)  # this run goes on, or this worker
        score = checkpoint.best_score(checkpoint_folder(earlier, entries, next(iter(self._params)))) if earlier else None
        self._best = -np.inf if score is None else score
        self._modest = Modest(args.share * usable_cores())
        self._looked = 0.0
        self._ends_at = 0.0
        """When the last evaluation is abandoned; 0: none is running."""
        graph = rendering(context.graph) if args.film_every else context.graph
        self._rollout = Rollout(graph, derived, self._policies, envs=args.envs, role="evaluator")

    @classmethod
    def sizes(cls, args: EvaluatorArgs, port: str, graph: Graph) -> Mapping[str, int]:
        return {"quiet": 1}

    @classmethod
    def about(cls, args: EvaluatorArgs) -> str:
        return f"{count(args.episodes, 'episode')} every {count(args.every, 'env step')}"

    def poll(self) -> int:
        """Start an evaluation when one is due; otherwise continue the current one, as far as no other process needs the core."""
        if not self._modest.begin():
            return 0
        if not self._matches and not self._looks():
            return 0
        done = self._play()
        if not self.context.inline:
            self._modest.end()
        return done

    def wake_at(self) -> float | None:
        if self.context.inline:
            return None
        return self._modest.rests_until if self._matches else self._looked + _LOOK

    def _looks(self) -> bool:
        """Inline at once; else now and then, since a copy of the parameters is made for it."""
        now = time.monotonic()
        if not self.context.inline and now < self._looked + _LOOK:
            return False
        self._looked = now
        return self._due()

    def _play(self) -> int:
        """One step of all envs."""
        match = self._matches[0]
        if self._film is not None:
            self._film.append(picture(self._rollout))
        over = self._rollout.step(greedy=match.greedy, episodes=self.args.episodes)
        if self._film is not None and self._rollout.ended(0):
            self._show()
        if over:
            self._report(match, self._rollout.result())
            self._matches.pop(0)
            if self._matches:
                self._rollout.restart(self._matches[0].stand_ins)
            elif self.context.folder is not None:
                RunFolder(self.context.folder).append_eval({"env_steps": self._env_steps, **self._results})
        return self.args.envs

    def waits(self) -> tuple[Waiting, ...]:
        trainers = dict.fromkeys(worker for end in self._params.values() for worker in end.workers)
        return (Waiting("env steps", tuple(trainers)),)

    def drain(self) -> bool:
        """Abandon the current evaluation, unless it is the last one of the run."""
        until = min(time.monotonic() + _AT_ONCE, self._ends_at)
        while self._matches and time.monotonic() < until:
            self._play()
        if self._matches and time.monotonic() < self._ends_at:
            return False
        self._matches = []
        self._film = None
        return True

    def conclude(self, seconds: float) -> None:
        """Evaluate the final weights, which are most often the best."""
        due, number = self._next, self._evaluations
        steps = self._read(dict(self._versions))
        if steps is not None and steps > self._env_steps:
            self._begin(steps)
        self._matches = self._matches[:1]
        self._next, self._evaluations = due, number  # a resumed run keeps its times
        self._film = None
        self._ends_at = time.monotonic() + seconds

    def close(self) -> None:
        self._rollout.close()

    def state(self) -> Tree:
        return {"next": np.array([self._next]), "best": np.array([self._best]), "evaluations": np.array([self._evaluations])}

    def restore(self, state: Tree) -> None:
        assert isinstance(state, dict)
        self._next, self._best = int(state["next"][0]), float(state["best"][0])
        self._evaluations = int(state["evaluations"][0])

    def _due(self) -> bool:
        """Whether an evaluation begins."""
        steps = self._read({name: self._look_after(name) for name in self._params})
        if steps is None or steps < self._next:
            return False
        self._begin(steps)
        return True

    def _read(self, after: Mapping[str, int]) -> int | None:
        """Take the newest weights if they are newer than these; after how many env steps they were made."""
        for name, end in self._params.items():
            newer = end.latest(after[name])
            if newer is not None:
                self._versions[name], self._weights[name] = newer
        if len(self._weights) < len(self._params):
            return None
        return min(int(tree["env_steps"][0]) for tree in self._weights.values())

    def _begin(self, steps: int) -> None:
        """An evaluation of these weights."""
        for name, tree in self._weights.items():
            self._policies[name].load(tree["params"], self._versions[name])
        self._env_steps = steps
        self._next = steps - steps % self.args.every + self.args.every
        self._matches = self._plan()
        self._results.clear()
        self._scored = self._matches[0].name
        if self.args.film_every and self._evaluations % self.args.film_every == 0:
            self._film = []
        self._evaluations += 1
        self._rollout.restart(self._matches[0].stand_ins)

    def _look_after(self, name: str) -> int:
        """With a replay there are hundreds of versions a second: only every 64th is looked at."""
        seen, often = self._versions[name], self.context.derived.policies[name].replay is not None
        return seen | _BETWEEN if often and seen >= 0 else seen

    def _plan(self) -> list[_Match]:
        """All matches of one evaluation."""
        matches = [_Match("eval", True)] if self.args.greedy else []
        if self.args.sampled or not matches:
            matches.append(_Match("eval_sampled", False))
        if self.args.cross_play:
            self._meet_initial()
            owners = {team: name for name, info in self.context.derived.policies.items() for team in info.teams}
            initial = {team: self._initial[owner] for team, owner in owners.items()}
            if self._evaluations == 0:
                matches.append(_Match("cross/initial", False, initial))
            for team, owner in owners.items():
                if owner in self._params:
                    matches.append(
                        _Match(f"cross/{team}", False, {other: one for other, one in initial.items() if other != team})
                    )
        return matches

    def _meet_initial(self) -> None:
        """The policies before any update: from the run folder, else the first weights that came."""
        if self._knows_initial:
            return
        for name, tree in self._weights.items():
            run = self.context.folder
            path = checkpoint.latest(initial_folder(run, self.context.graph.policies, name)) if run is not None else None
            self._initial[name].load(checkpoint.read(path).groups["policy"] if path is not None else tree["params"], 0)
        self._knows_initial = True

    def _show(self) -> None:
        film, self._film = self._film, None
        if film and self.context.folder is not None:
            record(self.context.folder / "videos" / f"step_{self._env_steps:09d}", film, fps=self.context.derived.env.fps)

    def _report(self, match: _Match, result: Mapping[str, float]) -> None:
        updates = min(updates_of(version) for version in self._versions.values())
        for name, value in result.items():
            self._results[f"{match.name}/{name}"] = value
            self.reading.point(f"{match.name}/{name}", value, self._env_steps, updates)
        if match.name == self._scored:
            # against each other, no return tells who is better: the newest counts as the best
            self._keep(result.get("return", float(self._env_steps)))

    def _keep(self, score: float) -> None:
        """Write the weights of the best policies, each into a folder of its own beside the trainer's checkpoints."""
        if score <= self._best or self._env_steps == 0:  # the untrained policy is never the best
            return
        self._best = score
        run = self.context.folder
        if run is None:
            return
        for name, tree in self._weights.items():
            folder = checkpoint_folder(run, self.context.graph.policies, name)
            checkpoint.write_best(folder, self._env_steps, {"policy": tree["params"]}, score)
