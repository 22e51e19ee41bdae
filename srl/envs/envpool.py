"""EnvPool: its tasks are stepped in C++ by threads, all copies of a group at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from srl.core.errors import UserError
from srl.core.load import nearest, option
from srl.core.seeds import Seeds
from srl.envs.gym_vector import GymVectorConfig, GymVectorEnv

_SAID = ("stack_num", "frame_skip", "repeat_action_probability", "noop_max", "episodic_life", "reward_clip")
"""Settings that change what is seen or rewarded: the plan states them."""


@dataclass(frozen=True, kw_only=True)
class EnvPoolConfig(GymVectorConfig):
    id: str = option(help="a task with one agent, such as Pong-v5 or HalfCheetah-v4")
    threads: int = option(1, "threads that step the copies of one group", low=1)


class EnvPool(GymVectorEnv):
    """`args` are settings of the task, by EnvPool's names. Each copy has a seed of its own."""

    Config: ClassVar[type[GymVectorConfig]] = EnvPoolConfig
    config: EnvPoolConfig

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds, **args)
        known = self._env.spec.config._asdict()  # type: ignore[union-attr]
        said = [f"{name}={known[name]}" for name in _SAID if name in known]
        self.spec = replace(self.spec, about=", ".join([f"EnvPool's own {self.name}", *said]))

    def _make(self) -> Any:
        try:
            import envpool
        except ImportError as problem:
            extra = "pip install 'really-scalable-rl[envpool]'"
            raise UserError(f"env '{self.name}' needs EnvPool", ("cause", str(problem)), ("try", extra)) from problem
        if self.name not in (known := envpool.list_all_envs()):
            near = nearest(self.name, known)
            raise UserError(f"EnvPool has no task '{self.name}'", *([("did you mean", f"{near}?")] if near else []))
        seeds = [self.seeds.seed(env, self._made) for env in range(self.count)]
        threads = min(self.config.threads, self.count)
        try:
            env = envpool.make(
                self.name, env_type="gymnasium", num_envs=self.count, num_threads=threads, env_seed=seeds, **self.config.args
            )
        except (TypeError, AssertionError, ValueError) as problem:
            raise UserError(f"cannot make env '{self.name}' of EnvPool", ("cause", str(problem))) from problem
        if (agents := env.spec.config.max_num_players) > 1:
            raise UserError(f"env '{self.name}' has {agents} agents", ("expected", "a task of EnvPool with one agent"))
        return env

    def _begin(self) -> Any:
        obs, _ = self._copies.limited(self._env.reset)()  # the seeds are those of its making
        return obs
