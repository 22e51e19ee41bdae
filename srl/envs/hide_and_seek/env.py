"""Hide and seek as a BatchEnv: N worlds stepped together, everything written in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, Literal, cast

import numpy as np

from srl.api.env import BatchEnv, Block, EnvSpec, MultiDiscrete, TeamSpec
from srl.core.errors import UserError
from srl.core.seeds import Seeds, generator
from srl.core.tree import Array, Tree
from srl.envs.drawing import require_gl
from srl.envs.hide_and_seek import rules, stats
from srl.envs.hide_and_seek.config import PHYSICS, STEP, Config, preset
from srl.envs.hide_and_seek.draws import Draws
from srl.envs.hide_and_seek.layout import Layout, check, layout, team_sizes
from srl.envs.hide_and_seek.observe import Observer, obs_spec
from srl.envs.hide_and_seek.rules import COUNTS, NEUTRAL
from srl.envs.hide_and_seek.scene import Poses, Scene
from srl.envs.hide_and_seek.senses import Senses
from srl.envs.hide_and_seek.transfer import GAMES, Shelter


class HideAndSeekVec(BatchEnv):
    """Teams `hider` and `seeker` with equal specs, so that one policy can play both.

    `preset`: mini, mini_2v2, quadrant, full, harder (the same as harder_1_5), harder_2, original, original_quadrant, or a
    transfer task (lock_and_return, sequential_lock, blueprint, shelter). `physics`: exact or fast. `picture`: how `render`
    draws, top or gl. Any other setting replaces that of the preset; the defaults below are those of quadrant.
    """

    PARTS: ClassVar[tuple[type, ...]] = tuple(type(getattr(Config(), part.name)) for part in fields(Config))
    """Whose fields the settings are, for help."""

    def __init__(
        self,
        count: int,
        seeds: Seeds,
        preset: str = "mini",
        physics: str | None = None,
        picture: Literal["top", "gl"] = "top",
        **overrides: Any,
    ) -> None:
        super().__init__(count, seeds)
        self.config = config = _config(preset, physics, overrides)
        if picture not in ("top", "gl"):
            raise UserError(f"'env.picture' is {picture!r}", ("expected", "top or gl"), code="E03")
        if picture == "gl":
            require_gl(("or", "env.picture=top, which needs no GL"))
        self._picture = picture
        from srl.envs.hide_and_seek.worlds import Worlds

        self.spec = env_spec(config)
        self._worlds = worlds = Worlds(config, count)
        self._painter: Any = None
        self.poses = Poses(worlds.agents, worlds.agent_speeds, worlds.objects, worlds.object_speeds)
        self.scene = Scene.empty(config, count)
        bodies = (worlds.model.agents, worlds.model.objects)
        self._senses = Senses(config, self.scene, self.poses, bodies, worlds.model.body_of_geom)
        self._game = GAMES[config.rules.task](config, self.scene, self.poses)
        if isinstance(self._game, Shelter):
            self._game.reaches = lambda origins, directions: worlds.cast(origins, directions)[1] == worlds.model.cylinder
        self._observer = Observer(config, self.scene, self.poses)
        self._tracker = stats.Tracker(config, self.scene, self.poses, self._game)
        self._team_of = np.arange(config.agents) >= config.hiders
        self._teams = {"hider": slice(0, config.hiders), "seeker": slice(config.hiders, config.agents)}
        self._episode = np.zeros(count, np.int64)
        self._ended = np.zeros(count, bool)
        self._act = np.tile(np.array(NEUTRAL), (count, config.agents, 1))
        self._frozen = rules.neutral_mask()
        self._counts: tuple[int, int] | None = None
        if config.teams.counts == "process":
            drawn = generator(seeds.root, seeds.role, seeds.first, "counts")
            self._counts = team_sizes(config, Draws(drawn))

    def reset(self, out: Block) -> None:
        self._start(np.arange(self.count))
        self._observe(out)

    def replay(self, episode_seeds: Sequence[int], out: Block) -> None:
        """Start the episodes of these seeds (the statistic `seed`) in all copies."""
        self._start(np.arange(self.count), episode_seeds)
        self._observe(out)

    def place(self, layouts: Sequence[Layout], out: Block) -> None:
        """Start an episode in each copy in a world made by hand."""
        self._enter(np.arange(self.count), layouts, [0] * self.count)
        self._observe(out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        fresh = np.flatnonzero(self._ended)
        self._manipulate(actions)
        live = ~self._ended
        if len(fresh):
            self._start(fresh)
        going = np.flatnonzero(live) if len(fresh) else None
        failed = self._worlds.step(going) if going is None or len(going) else fresh[:0]
        live[failed] = False
        self.scene.tick += live
        self._senses.update(self._worlds.cast)
        reward, over = self._game.score(live)
        reward *= live[:, None] & self.scene.agent_there
        self._tracker.update(live, reward)
        self._tracker.warn(failed)
        self._finish(live, over, failed, reward, out)
        self._observe(out)

    def render(self, env: int) -> Array:
        if self._painter is None:
            from srl.envs.hide_and_seek.render import GLPainter, TopPainter

            self._painter = GLPainter(self._worlds) if self._picture == "gl" else TopPainter(self.config)
        picture: Array = self._painter.paint(env, self.scene, self.poses)
        return picture

    def save(self) -> Tree:
        """The complete state, so that episodes continue bit-identically."""
        return {
            "worlds": self._worlds.save(),
            "scene": self.scene.save(),
            "tracker": self._tracker.save(),
            "game": self._game.save(),
            "episode": self._episode.copy(),
            "ended": self._ended.copy(),
        }

    def load(self, saved: Tree) -> None:
        self._worlds.load(saved["worlds"])
        self.scene.load(saved["scene"])
        self._tracker.load(saved["tracker"])
        # a game without memory saves an empty tree, which a flat file leaves out
        self._game.load(saved.get("game", {}) if isinstance(saved, dict) else {})
        self._episode[...] = saved["episode"]
        self._ended[...] = saved["ended"]
        self.poses.turn()
        self._observer.start()
        self._senses.start()

    def close(self) -> None:
        if self._painter is not None:
            self._painter.close()
            self._painter = None

    def _start(self, ids: Array, episode_seeds: Sequence[int] | None = None) -> None:
        """New episodes in those worlds."""
        if episode_seeds is None:
            episode_seeds = [self.seeds.seed(world, int(self._episode[world])) for world in ids.tolist()]
            self._episode[ids] += 1
        layouts = [layout(self.config, generator(seed, "hide_and_seek"), self._counts) for seed in episode_seeds]
        self._enter(ids, layouts, episode_seeds)

    def _enter(self, ids: Array, layouts: Sequence[Layout], episode_seeds: Sequence[int]) -> None:
        self._worlds.write(ids, layouts)
        self.scene.start(ids, layouts, self.poses, 0 if self.config.rules.unowned_veto else -1)
        self.scene.seed[ids] = episode_seeds
        self._observer.start()
        self._senses.start()
        self._tracker.start(ids)
        self._game.start(ids)
        self._ended[ids] = False
        self._senses.update(self._worlds.cast)

    def _manipulate(self, actions: Mapping[str, Tree]) -> None:
        """Forces, grabs and locks of this step, by what was seen before it."""
        scene, config, act = self.scene, self.config, self._act
        for name in self.spec.teams:
            act[:, self._teams[name]] = actions[name]
        if not scene.agent_there.all():
            act[~scene.agent_there] = NEUTRAL
        waiting = scene.tick < config.timing.prep_steps
        if waiting.any():
            act[waiting, config.hiders :] = NEUTRAL
        self._worlds.controls[...] = rules.controls(act[:, :, :3])
        distance = rules.reach(self.poses.agents, self.poses.objects, self.poses.object_turns, scene.half)
        near = (distance <= config.rules.reach) & scene.sees_object
        self._grab(rules.grab_targets(distance, near, act[:, :, 3] == 1))
        self._lock(near, act[:, :, 4] == 1)

    def _grab(self, targets: Array) -> None:
        changed = (targets != self.scene.grabbed) & (targets >= 0)
        if changed.any():
            world, agent = np.nonzero(changed)
            self._worlds.weld(world, agent, targets[world, agent])
        self._worlds.set_welds(targets >= 0)
        self.scene.grabbed[...] = targets

    def _lock(self, near: Array, glue: Array) -> None:
        scene, before = self.scene, self.scene.locked
        lots = partial(rules.lots, scene.seed, scene.tick, *near.shape[1:])
        locked, locker = rules.lock_update(near, glue, self._team_of, before, scene.locker, self._game.lockable(), lots)
        changed = locked != before
        if changed.any():
            self._worlds.hold(*np.nonzero(changed & locked))
            self._worlds.set_holds(locked)
            scene.locked[...], scene.locker[...] = locked, locker

    def _finish(self, live: Array, over: Array, failed: Array, reward: Array, out: Block) -> None:
        """Rewards and ends.

        If the simulator failed, the step is undone: the world is back in the state before it, the reward is zero, and the episode
        is truncated, so that the learner bootstraps from a valid state. Earlier rows have already been recorded and
        stay; the statistic `warned` counts such episodes.
        """
        truncated = live & (self.scene.tick >= self.config.timing.horizon)
        terminated = over & live
        if self.config.timing.end == "terminated":
            terminated, truncated = terminated | truncated, truncated & False
        truncated[failed] = True
        truncated &= ~terminated
        self._ended = terminated | truncated
        for name, team in self._teams.items():
            if name not in out.teams:
                continue
            block, there = out.teams[name], self.scene.agent_there[:, team]
            block.reward[...] = reward[:, team]
            block.terminated[...] = terminated[:, None] & there
            block.truncated[...] = truncated[:, None] & there
        if self._ended.any():
            out.stats[self._ended] = self._tracker.finish()[self._ended]

    def _observe(self, out: Block) -> None:
        """Observations, masks and presence of the rows that come next."""
        scene = self.scene
        self._observer.update()
        waiting = scene.tick < self.config.timing.prep_steps
        for name, block in out.teams.items():
            team = self._teams[name]
            there = scene.agent_there[:, team]
            self._observer.write(team, cast("dict[str, Array]", block.obs))
            block.active[...] = there
            free = there if name == "hider" else there & ~waiting[:, None]
            np.logical_or(free[:, :, None], self._frozen, out=cast("Array", block.mask))


def env_spec(config: Config) -> EnvSpec:
    obs, action = obs_spec(config), MultiDiscrete(COUNTS)
    sizes = {"hider": config.hiders, "seeker": config.seekers}
    return EnvSpec(
        teams={
            name: TeamSpec(agents=tuple(f"{name}_{index}" for index in range(size)), obs=obs, action=action, mask=True)
            for name, size in sizes.items()
            if size
        },
        stats=stats.names(GAMES[config.rules.task]),
        headline=stats.headline(config, GAMES[config.rules.task]),
        labels=("seed",),
        fps=1 / STEP,
    )


def _config(name: str, physics: str | None, overrides: dict[str, Any]) -> Config:
    config = preset(name)
    if physics is not None:
        if physics not in PHYSICS:
            raise UserError(f"'env.physics' is {physics!r}", ("expected", " or ".join(PHYSICS)), code="E03")
        config = config.override(**PHYSICS[physics])
    config = config.override(**overrides)
    check(config)
    return config
