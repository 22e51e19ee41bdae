"""PettingZoo's envs, by turns too (srl/envs/turns.py): E copies, agents that die and appear, teams by name and spaces."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from srl.api.env import BatchEnv, Block, EnvSpec, TeamSpec
from srl.core.errors import NotImportable, SettingError, SrlError, UserError
from srl.core.load import load, nearest, option
from srl.core.registry import REGISTRIES
from srl.core.seeds import Seeds
from srl.core.tree import Array, Tree, map_tree
from srl.envs.drawing import choose_gl
from srl.envs.faults import Spot, bad_answer, bad_observation, bad_reward, bad_step, is_reward, name_of
from srl.envs.spaces import Actions, BoxActions, Fault, Obs, actions_of, frame_rate, obs_of


@dataclass(frozen=True, kw_only=True)
class PettingZooConfig:
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


class PettingZooEnv(BatchEnv):
    """E copies of a ParallelEnv. An absent agent has rows of zeros and is not active."""

    Config: ClassVar[type] = PettingZooConfig
    _srl_place = ""

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds)
        self.config: PettingZooConfig = load(PettingZooConfig, args, path="env")
        self.name = name_of(self.config.id)
        if self.config.render:
            choose_gl()
        self._envs = [_made(self.config, self.name) for _ in range(count)]
        self._seed = [seeds.seed(env, 0) for env in range(count)]
        self._elapsed = [0] * count
        probe = self._envs[0]
        rows, infos = self._answer(0, probe.reset(seed=self._seed[0]))
        grouped = _given_teams(probe, self.config.teams, self.name) if self.config.teams else _teams(probe)
        self._teams = {name: self._team(agents, rows, infos) for name, agents in grouped.items()}
        if self.config.mask and not any(team.mask_from for team in self._teams.values()):
            raise UserError(f"env '{self.name}' gives no action masks", ("try", "env.mask=false"))
        self._state = self._find_state(probe)
        self._episode = [-1] * count
        self._over = [False] * count
        self._finished: list[set[Any]] = [set() for _ in range(count)]
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
            self._begin(env, out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        chosen = {
            name: team.actions.split(map_tree(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), actions[name]))
            for name, team in self._teams.items()
        }
        full = self._tick < self.config.checked
        looked = self._tick % self.count
        self._tick += 1
        for env in range(self.count):
            try:
                if self._over[env]:
                    self._begin(env, out)
                else:
                    self._advance(env, chosen, out, look=full or env == looked)
            except SrlError:
                raise
            except (Exception, SystemExit) as problem:
                problem.add_note(f"in {self._spot(env)}")
                raise

    def render(self, env: int) -> Array:
        if not self.config.render:
            raise UserError(f"env '{self.name}' was made without rendering", ("try", "env.render=true"))
        return np.asarray(self._envs[env].render())

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs = []

    def _begin(self, env: int, out: Block) -> None:
        self._episode[env] += 1
        self._elapsed[env] = 0
        self._over[env] = False
        self._finished[env].clear()
        self._seed[env] = self.seeds.seed(env, self._episode[env])
        rows, infos = self._answer(env, self._envs[env].reset(seed=self._seed[env]))
        self._check_none_lost(env, set(rows), rows)
        self._show(env, rows, infos, out, look=True)

    def _advance(self, env: int, chosen: Mapping[str, Any], out: Block, *, look: bool) -> None:
        one = self._envs[env]
        alive = {agent for agent in one.agents if agent not in self._finished[env]}
        taken: dict[Any, Any] = {}
        for name, team in self._teams.items():
            start = env * len(team.agents)
            taken |= {agent: chosen[name][start + i] for i, agent in enumerate(team.agents) if agent in alive}
        answer = one.step(taken)
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


def _teams(env: Any) -> dict[str, tuple[Any, ...]]:
    """Agents form a team if their names differ only by a number and their spaces are equal."""
    groups: list[tuple[str, Any, Any, list[Any]]] = []
    for agent in env.possible_agents:
        prefix = re.sub(r"[_-]?\d+$", "", str(agent)) or "agent"
        obs, action = env.observation_space(agent), env.action_space(agent)
        for name, known_obs, known_action, members in groups:
            if name == prefix and known_obs == obs and known_action == action:
                members.append(agent)
                break
        else:
            groups.append((prefix, obs, action, [agent]))
    teams: dict[str, tuple[Any, ...]] = {}
    for name, _, _, members in groups:
        number = sum(known == name or known.startswith(f"{name}-") for known in teams)
        teams[f"{name}-{number + 1}" if number else name] = tuple(members)
    return teams


def _given_teams(env: Any, patterns: Mapping[str, tuple[str, ...]], name: str) -> dict[str, tuple[Any, ...]]:
    """Every agent goes to the first team with a matching pattern."""
    teams: dict[str, list[Any]] = {team: [] for team in patterns}
    for agent in env.possible_agents:
        team = next((team for team, globs in patterns.items() if _fits(agent, globs)), None)
        if team is None:
            raise UserError(
                f"agent '{agent}' of env '{name}' is in no team",
                ("expected", "a team for every agent in env.teams"),
                ("try", f"env.teams.NAME=[{agent}], or a last team of all others: env.teams.NAME=['*']"),
            )
        teams[team].append(agent)
    for team, members in teams.items():
        if not members:
            raise _no_agent_matches(env, team, patterns[team], name)
        _refuse_unequal(env, team, members)
    return {team: tuple(members) for team, members in teams.items()}


def _fits(agent: Any, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(str(agent), pattern) for pattern in patterns)


def _no_agent_matches(env: Any, team: str, patterns: tuple[str, ...], name: str) -> UserError:
    agents = [str(agent) for agent in env.possible_agents]
    taken = [agent for agent in agents if _fits(agent, patterns)]
    near = None if taken else next(filter(None, (nearest(pattern, agents) for pattern in patterns)), None)
    return UserError(
        f"no agent of env '{name}' is left for team '{team}'",
        ("found", f"earlier teams take {', '.join(taken)}" if taken else f"the agents of the env: {', '.join(agents)}"),
        *([("did you mean", near)] if near else []),
        ("try", "list it before them: each agent goes to the first team that matches" if taken else "remove or correct it"),
    )


def _refuse_unequal(env: Any, team: str, members: list[Any]) -> None:
    for space_of in (env.observation_space, env.action_space):
        first = space_of(members[0])
        if odd := [agent for agent in members if space_of(agent) != first]:
            raise UserError(
                f"'{members[0]}' and '{odd[0]}' cannot be one team, '{team}'",
                ("because", f"their spaces differ: {first} and {space_of(odd[0])}"),
                ("try", "a team for each of them"),
            )


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
