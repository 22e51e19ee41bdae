"""Which agents of a PettingZoo env form a team."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from srl.core.errors import UserError
from srl.core.load import nearest


def teams_by_name(env: Any) -> dict[str, tuple[Any, ...]]:
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


def given_teams(env: Any, patterns: Mapping[str, tuple[str, ...]], name: str) -> dict[str, tuple[Any, ...]]:
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
