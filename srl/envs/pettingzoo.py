"""PettingZoo's envs, by turns too (srl/envs/turns.py): E copies, agents that die and appear, teams by name and spaces."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from srl.api.env import Block, EnvSpec, TeamSpec
from srl.core.errors import NotImportable, SettingError, SrlError, UserError
from srl.core.load import load, nearest, option
from srl.core.registry import REGISTRIES
from srl.core.seeds import Seeds
from srl.core.tree import Array, Tree, leaves, map_tree
from srl.envs.drawing import choose_gl
from srl.envs.faults import (
    EVERY,
    Copies,
    FaultConfig,
    Lost,
    RestartableEnv,
    Spot,
    bad_answer,
    bad_observation,
    bad_reward,
    bad_step,
    is_reward,
    name_of,
)
from srl.envs.spaces import Actions, BoxActions, Fault, Obs, actions_of, frame_rate, obs_of
from srl.envs.teams import given_teams, teams_by_name


@dataclass(frozen=True, kw_only=True)
class PettingZooConfig(FaultConfig):
    id: Any = option(help="mpe2.simple_tag_v3, pkg.mod:parallel_env, or a class or function that makes a ParallelEnv")
    args: Mapping[str, Any] = option({}, "keywords of the env")
    stats: tuple[str, ...] = option((), "info keys read when an episode ends, averaged over the agents that have them")
    state: bool | None = option(None, "the env's state() for critics; null: if it has one")
    mask: bool | None = option(
        None, "action masks from info or the observation's `action_mask`; null: if reset gives them; true: also of later teams"
    )
    teams: Mapping[str, tuple[str, ...]] = option(
        {}, "team: patterns of its agents; the first match counts; empty: by name and spaces"
    )
    render: bool = option(False, "render images (render_mode rgb_array)")
    checked: int = option(
        100, "number of first ticks in which all observations are checked; after that those of one copy a tick", low=0
    )

    def __post_init__(self) -> None:
        if odd := [team for team in self.teams if not team or "/" in team]:
            raise SettingError("teams", f"has the name '{odd[0]}': names must not be empty or contain /")


@dataclass(frozen=True, slots=True)
class _Team:
    """How the rows of one team are written and read."""

    agents: tuple[Any, ...]
    obs: Obs
    actions: Actions
    mask_from: str
    """"", "info" or "obs"."""
    late: bool
    """True if no agent of the team was present at the first reset, where masks are detected."""


class PettingZooEnv(RestartableEnv):
    """E copies of a ParallelEnv. An absent agent has rows of zeros and is not active."""

    Config: ClassVar[type] = PettingZooConfig
    _srl_place = ""

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds)
        self.config: PettingZooConfig = load(PettingZooConfig, args, path="env")
        self.name = name_of(self.config.id)
        if self.config.render:
            choose_gl()
        self._copies = Copies(self.config, seeds.first)
        self._envs = [_made(self.config, self.name) for _ in range(count)]
        self._seed = [seeds.seed(env, 0) for env in range(count)]
        self._elapsed = [0] * count
        probe = self._envs[0]
        rows, infos = self._answer(0, probe.reset(seed=self._seed[0]))
        grouped = given_teams(probe, self.config.teams, self.name) if self.config.teams else teams_by_name(probe)
        self._teams = {name: self._team(agents, rows, infos) for name, agents in grouped.items()}
        if self.config.mask and not any(team.mask_from for team in self._teams.values()):
            raise UserError(f"env '{self.name}' gives no action masks", ("try", "env.mask=false"))
        self._state = self._find_state(probe)
        self._episode = [-1] * count
        self._over = [False] * count
        self._finished: list[set[Any]] = [set() for _ in range(count)]
        self._there: list[set[Any]] = [set() for _ in range(count)]
        """The agents that take part in the next step."""
        self._tick = 0
        self.spec = EnvSpec(
            teams={
                name: TeamSpec(
                    agents=tuple(map(str, team.agents)), obs=team.obs.spec, action=team.actions.spec, mask=team.mask_from != ""
                )
                for name, team in self._teams.items()
            },
            state=self._state.spec if self._state is not None else None,
            stats=self.config.stats,
            fps=frame_rate(probe),
        )

    def reset(self, out: Block) -> None:
        for env in range(self.count):
            while not self._tried(self._begin, env, out):
                pass

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        chosen = {
            name: team.actions.split(map_tree(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), actions[name]))
            for name, team in self._teams.items()
        }
        full = self._tick < self.config.checked
        looked = self._tick % self.count
        self._tick += 1
        for env in range(self.count):
            if self._over[env]:
                done = self._tried(self._begin, env, out)
            else:
                done = self._tried(self._advance, env, chosen, out, full or env == looked)
            if not done:
                self._cut_off(env, out)

    def render(self, env: int) -> Array:
        if not self.config.render:
            raise UserError(f"env '{self.name}' was made without rendering", ("try", "env.render=true"))
        return np.asarray(self._envs[env].render())

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs = []

    def _tried(self, call: Callable[..., None], env: int, *args: Any) -> bool:
        """False if the copy failed and was made anew."""
        try:
            call(env, *args)
        except SrlError:
            raise
        except (Exception, SystemExit) as problem:
            if not self._copies.restarted(self._spot(env), problem):
                raise
            with contextlib.suppress(Exception):
                self._copies.limited(self._envs[env].close)()
            self._envs[env] = _made(self.config, self.name)
            return False
        return True

    def _cut_off(self, env: int, out: Block) -> None:
        """The next step begins an episode. The rows of the one that was cut off are not used."""
        for name, team in self._teams.items():
            block = out.teams[name]
            there = np.array([agent in self._there[env] for agent in team.agents])
            block.active[env], block.terminated[env], block.truncated[env], block.reward[env] = there, False, there, 0.0
            for _, leaf in (*leaves(block.obs), *leaves({} if block.mask is None else block.mask)):
                leaf[env] = 0
        for _, leaf in leaves(out.state) if self._state is not None else ():
            leaf[env] = 0
        if self._there[env]:
            self._copies.lost.append(Lost(env, self._tick, self._elapsed[env] + 1))
        self._over[env] = True
        self._there[env] = set()

    def _begin(self, env: int, out: Block) -> None:
        self._episode[env] += 1
        self._elapsed[env] = 0
        self._over[env] = True
        self._there[env] = set()
        self._finished[env].clear()
        self._seed[env] = self.seeds.seed(env, self._episode[env])
        rows, infos = self._answer(env, self._copies.limited(self._envs[env].reset)(seed=self._seed[env]))
        self._check_none_lost(env, set(rows), rows)
        self._show(env, rows, infos, out, look=True)
        self._over[env] = False
        self._there[env] = set(rows)

    def _advance(self, env: int, chosen: Mapping[str, Any], out: Block, look: bool) -> None:
        one = self._envs[env]
        alive = {agent for agent in one.agents if agent not in self._finished[env]}
        taken: dict[Any, Any] = {}
        for name, team in self._teams.items():
            start = env * len(team.agents)
            taken |= {agent: chosen[name][start + i] for i, agent in enumerate(team.agents) if agent in alive}
        step = self._copies.limited(one.step)
        answer = step(taken) if self._tick % EVERY else self._copies.timed(env, step)(taken)
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise bad_answer(self._spot(env), answer)
        rows, rewards, terminated, truncated, infos = answer
        self._elapsed[env] += 1
        for name, team in self._teams.items():
            block = out.teams[name]
            for i, agent in enumerate(team.agents):
                if agent in taken:
                    reward = rewards.get(agent, 0.0)
                    if not is_reward(reward):
                        raise bad_reward(self._spot(env), reward, f" for agent '{agent}'")
                    block.reward[env, i] = reward
                    block.terminated[env, i] = terminated.get(agent, False)
                    block.truncated[env, i] = truncated.get(agent, False)
        ended = {agent for agent in alive | set(rows) if terminated.get(agent) or truncated.get(agent)}
        # who comes with its end was never there: it has no row that could be cut
        rows = {agent: row for agent, row in rows.items() if agent in alive or agent not in ended}
        self._check_none_lost(env, (alive | set(rows)) - ended - self._finished[env], rows)
        self._show(env, rows, infos, out, look=look)
        self._finished[env] |= ended & alive
        self._there[env] = set(rows) - self._finished[env]
        if all(agent in self._finished[env] for agent in one.agents):
            self._over[env] = True
            self._write_stats(env, infos, out)

    def _show(self, env: int, rows: Mapping[Any, Any], infos: Mapping[Any, Any], out: Block, *, look: bool) -> None:
        """Row t+1 of every present agent; agents that end with this step are shown a last time."""
        for name, team in self._teams.items():
            block = out.teams[name]
            obs = map_tree(lambda leaf: leaf[env], block.obs)
            mask = map_tree(lambda leaf: leaf[env], block.mask) if block.mask is not None else None
            for i, agent in enumerate(team.agents):
                if agent not in rows or agent in self._finished[env]:
                    block.active[env, i] = False
                    map_tree(lambda leaf, i=i: leaf[i].fill(0), obs)
                    map_tree(lambda leaf, i=i: leaf[i].fill(0), mask if mask is not None else {})
                    continue
                row = rows[agent]["observation"] if team.mask_from == "obs" else rows[agent]
                if look:
                    self._look(env, agent, team, row)
                try:
                    team.obs.write(obs, i, row)
                except Exception:
                    self._look(env, agent, team, row)
                    raise
                if mask is not None:
                    self._write_mask(env, agent, team, rows[agent], infos, mask, i)
                elif "action_mask" in infos.get(agent, {}):
                    self._unexpected_mask(env, agent, team)
        if self._state is not None:
            self._state.write(out.state, env, self._envs[env].state())  # type: ignore[arg-type]

    def _write_mask(self, env: int, agent: Any, team: _Team, row: Any, infos: Mapping[Any, Any], mask: Tree, column: int) -> None:
        value = row["action_mask"] if team.mask_from == "obs" else infos.get(agent, {}).get("action_mask")
        if value is None:
            likely = "masks must come with every step, the last too"
            raise bad_step(self._spot(env), f"gave agent '{agent}' no info['action_mask']", likely)
        team.actions.write_mask(mask, column, value)

    def _unexpected_mask(self, env: int, agent: Any, team: _Team) -> None:
        """An ignored mask would let the policy choose forbidden actions."""
        if self.config.mask is False or isinstance(team.actions, BoxActions):
            return
        found = "no agent of its team was present" if team.late else "its team gave none"
        remedy = "env.mask=true takes it" if team.late else "give masks with every reset too"
        raise UserError(
            f"{self._spot(env)} gave agent '{agent}' an info['action_mask']",
            ("expected", f"no mask: at the first reset {found}"),
            ("try", f"{remedy}; env.mask=false leaves masks unread"),
            code="E05",
        )

    def _write_stats(self, env: int, infos: Mapping[Any, Any], out: Block) -> None:
        for column, key in enumerate(self.config.stats):
            values = [float(info[key]) for info in infos.values() if key in info]
            if not values:
                known = sorted({str(name) for info in infos.values() for name in info})
                near = nearest(key, known)
                likely = f"did you mean '{near}'?" if near else f"there is {', '.join(known) or 'nothing'}"
                raise bad_step(self._spot(env), f"has no info['{key}'] of any agent", likely)
            out.stats[env, column] = np.mean(values)

    def _look(self, env: int, agent: Any, team: _Team, row: Any) -> None:
        try:
            team.obs.check(row)
        except Fault as fault:
            key = (str(agent), *fault.key)
            raise bad_observation(self._spot(env), key, fault.expected, fault.found, fault.likely) from None

    def _check_none_lost(self, env: int, there: set[Any], rows: Mapping[Any, Any]) -> None:
        """An agent that has not ended must be observed and stay in `agents`."""
        if missing := there - (rows.keys() & set(self._envs[env].agents)):
            names = ", ".join(sorted(map(str, missing)))
            likely = "set terminated or truncated in the step that takes it out of `agents`, and give its last observation"
            raise bad_step(self._spot(env), f"lost agent {names} without an end", likely)

    def _answer(self, env: int, answer: Any) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        if isinstance(answer, tuple) and len(answer) == 2 and all(isinstance(part, Mapping) for part in answer):
            return answer
        raise bad_step(self._spot(env), f"returned a {type(answer).__name__} from reset()", "return (observations, infos)")

    def _team(self, agents: tuple[Any, ...], rows: Mapping[Any, Any], infos: Mapping[Any, Any]) -> _Team:
        env = self._envs[0]
        space, action = env.observation_space(agents[0]), env.action_space(agents[0])
        mask_from = ""
        split = isinstance(space, spaces.Dict) and set(space.spaces) == {"observation", "action_mask"}
        if split and self.config.mask is not False:
            space, mask_from = space.spaces["observation"], "obs"
        late = not any(agent in rows for agent in agents)
        if not mask_from and self.config.mask is not False and not isinstance(action, spaces.Box):
            shown = any("action_mask" in infos.get(agent, {}) for agent in agents)
            mask_from = "info" if shown or (late and self.config.mask) else ""
        return _Team(agents, obs_of(space, self.name), actions_of(action, self.name), mask_from, late)

    def _find_state(self, env: Any) -> Obs | None:
        if self.config.state is False:
            return None
        space = getattr(env, "state_space", None)
        if isinstance(space, spaces.Space):
            return obs_of(space, self.name)
        try:
            shape = np.shape(env.state())
        except (NotImplementedError, AttributeError):
            if self.config.state:
                raise UserError(f"env '{self.name}' has no state()", ("try", "env.state=false")) from None
            return None
        return obs_of(spaces.Box(-np.inf, np.inf, shape, np.float32), self.name)

    def _spot(self, env: int) -> Spot:
        return Spot(self.name, self._srl_place, self.seeds.first + env, self._seed[env], self._elapsed[env])


def _made(config: PettingZooConfig, name: str) -> Any:
    make = _maker(config.id) if isinstance(config.id, str) else config.id
    mode = {"render_mode": "rgb_array"} if config.render else {}
    try:
        env = make(**mode, **config.args)
    except TypeError as problem:
        raise UserError(f"cannot make env '{name}'", ("cause", f"{type(problem).__name__}: {problem}")) from problem
    if not hasattr(env, "possible_agents"):
        raise UserError(
            f"'{name}' made a {type(env).__name__}", ("expected", "a PettingZoo ParallelEnv or AECEnv with possible_agents")
        )
    if not hasattr(env, "agent_iter"):
        return env
    from srl.envs.turns import parallel  # for envs by turns only

    return parallel(env)


def _maker(path: str) -> Any:
    """`pkg.mod:function`, or a module with a `parallel_env`, as PettingZoo's own are."""
    if ":" in path:
        return REGISTRIES["env"].resolve(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo would rather have its envs made by a name
            module = importlib.import_module(path)
        return module.parallel_env if hasattr(module, "parallel_env") else module.env
    except (ImportError, AttributeError) as problem:
        raise NotImportable(
            f"cannot import env '{path}'",
            ("cause", f"{type(problem).__name__}: {problem}"),
            ("expected", "a module with a parallel_env or an env, such as mpe2.simple_tag_v3, or pkg.mod:parallel_env"),
        ) from problem
