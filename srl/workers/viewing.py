"""One env in which the newest policies play at a human speed, within a small part of one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from srl.api.policy import Policy
from srl.core.errors import UserError
from srl.graph.spec import Graph
from srl.plan.acting import ready_policy
from srl.plan.specs import Derived
from srl.show.base import Facts, Show
from srl.streams.base import Version, updates_of
from srl.workers.rollout import Rollout, picture, rendering

Newest: TypeAlias = Callable[[Version], "tuple[Version, Any] | None"]
"""The newest parameters of a policy, if they are newer than a version: `ParamSubscriber.latest`."""

LOOK = 0.1
"""Seconds between two checks for watchers."""
FRESH = 0.5
"""Seconds between two looks at the newest parameters."""
_SLOWEST = 1.0
"""Seconds after which there is a picture, however much it costs."""


class Viewing:
    """Plays and shows; `poll` never waits."""

    def __init__(
        self,
        graph: Graph,
        derived: Derived,
        newest: Mapping[str, Newest],
        show: Show,
        *,
        fps: float | None = None,
        share: float = 0.25,
        greedy: bool = True,
        every: int = 0,
    ) -> None:
        """`newest`: by policy, of those that learn. `share`: part of one core that may be used. `every`: env steps of training
        between two episodes. `fps`: None, as fast as the real thing."""
        self.show = show
        self.facts = Facts(experiment=graph.name)
        self._newest = newest
        self._policies: dict[str, Policy] = {
            name: ready_policy(info, graph.policies[name]) for name, info in derived.policies.items()
        }
        self._versions = dict.fromkeys(newest, -1)
        self._steps = dict.fromkeys(newest, 0)
        self._greedy, self._every = greedy, every
        self._pause = 1 / (fps or derived.env.fps)
        self.share = share
        """May be changed at any time."""
        self._rollout = Rollout(rendering(graph), derived, self._policies, envs=1, role="viewer")
        self._due = self._looked = self._asked = 0.0
        self._begun = -1
        """Env steps of the policy with which the last episode began; -1: there was none."""
        self._over, self._playing, self._pictured = True, False, 0.0
        self._allowed, self._counted = share, time.monotonic()
        """Processor seconds that may be used now, and when that was known."""
        self._first_picture()

    @property
    def wake_at(self) -> float:
        """When there is something to do (time.monotonic)."""
        if not self._playing:
            return self._looked + LOOK
        debt = -self.share - self._allowed
        return max(self._due, self._counted + debt / self.share)

    def poll(self) -> int:
        """The next step, if it is time for it."""
        now = time.monotonic()
        if now < self.wake_at:
            return 0
        before = time.process_time()
        self._allowed = min(self._allowed + self.share * (now - self._counted), self.share)
        self._counted = now
        done = self._turn(now)
        self._allowed -= time.process_time() - before
        return done

    def close(self) -> None:
        """End the env and what shows it."""
        self._rollout.close()
        self.show.close()

    def _turn(self, now: float) -> int:
        self._looked = now
        self._playing = self.show.wanted and self._ready(now)
        if not self._playing:
            return 0
        self._due = max(self._due + self._pause, now)
        self._step()
        if self._allowed >= 0 or self._over or self.show.every_step or now - self._pictured >= _SLOWEST:
            self._pictured = now
            self.show.picture(picture(self._rollout), self.facts)
        if self._over:
            self.show.ended(self.facts)
        return 1

    def _ready(self, now: float) -> bool:
        """The weights of all are there, and it is time for an episode if none is under way."""
        if now - self._asked >= FRESH:
            self._asked = now
            self._load()
        if min(self._versions.values(), default=0) < 0:
            return False
        return not self._over or self._begun < 0 or self.facts.env_steps - self._begun >= self._every

    def _load(self) -> None:
        for name, newest in self._newest.items():
            if (found := newest(self._versions[name])) is not None:
                self._versions[name], tree = found
                self._steps[name] = int(tree["env_steps"][0])
                self._policies[name].load(tree["params"], found[0])
        self.facts.env_steps = min(self._steps.values(), default=0)
        self.facts.version = min(self._versions.values(), default=0)
        self.facts.update = updates_of(max(self.facts.version, 0))

    def _step(self) -> None:
        facts, rollout = self.facts, self._rollout
        if self._over:
            self._begun, self._over = facts.env_steps, False
            facts.episode, facts.step, facts.returned = facts.episode + 1, 0, {}
            if facts.episode > 1:
                rollout.step(greedy=self._greedy)  # this step only shows where the next episode begins
                return
        played = rollout.ended(0)
        rollout.step(greedy=self._greedy)
        facts.step += 1
        self._over = rollout.ended(0) > played
        facts.returned = rollout.last_returns() if self._over else rollout.so_far(0)
        if self._over:
            facts.last = facts.returned

    def _first_picture(self) -> None:
        """At once: an env without pictures is an error now."""
        try:
            frame = picture(self._rollout)
            self.show.picture(frame, self.facts)
        except (NotImplementedError, ValueError) as error:
            raise UserError(
                "the env cannot be shown: it does not render images",
                ("found", str(error)),
                ("expected", "render() that returns uint8 (height, width, 3); with Gymnasium render_mode='rgb_array'"),
                ("try", "~viewer"),
            ) from error
