"""Policies: whose agents each one acts for, what it is made of, and how an acting one is built."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from srl.api.env import EnvSpec
from srl.api.policy import Act, NoConfig, PolicySpec
from srl.api.slab import Replayed, Window
from srl.core.errors import UserError, about
from srl.core.load import load, nearest
from srl.core.registry import REGISTRIES
from srl.core.seeds import Seeds
from srl.core.spec import differences, spec_of
from srl.core.tree import leaves, map_tree
from srl.core.types import Component
from srl.core.where import Path, dotted
from srl.envs.resolve import make_env
from srl.graph.spec import Graph
from srl.plan.acting import acting_policy, named_arrays, new_policy, zero_ask
from srl.plan.specs import PolicyInfo

_TWIN_TOLERANCE = 1e-4


def inspect_env(graph: Graph) -> EnvSpec:
    """The spec of the env, from one copy of it."""
    env = make_env(graph.env.flat, 1, Seeds(graph.seed, "dry run"))
    try:
        return env.spec
    finally:
        env.close()


def teams_of(graph: Graph, env: EnvSpec) -> dict[str, tuple[str, ...]]:
    """Policy -> the teams it acts for. A team belongs to one policy as a whole."""
    owners: dict[str, list[str]] = {}
    for team, spec in env.teams.items():
        names = {agent: _match(graph, agent) for agent in spec.agents}
        if missing := [agent for agent, name in names.items() if name is None]:
            raise UserError(
                f"agent '{missing[0]}' has no policy",
                ("agents of the env", ", ".join(names)),
                ("patterns", ", ".join(f'"{pattern}": {name}' for pattern, name in graph.agents.items()) or "none"),
                ("try", f'agents: {{"{_glob(missing[0])}": {next(iter(graph.policies))}}}, or "*" for all of them'),
                code="E06",
            )
        if len(set(names.values())) > 1:
            raise UserError(
                f"the agents of team '{team}' are split between policies {sorted(map(str, set(names.values())))}",
                ("expected", "one policy for all agents of a team"),
                ("try", f"env.teams='{_whole_teams(graph, env)}' of a PettingZoo env; another has to declare such teams"),
                code="E10",
            )
        owners.setdefault(str(names[spec.agents[0]]), []).append(team)
    unknown = sorted(set(owners) - set(graph.policies))
    if unknown:
        raise UserError(
            f"`agents` refers to policy '{unknown[0]}', which is not defined",
            ("policies", ", ".join(graph.policies)),
            ("try", f"policies: {{{unknown[0]}: {{policy: ..., algorithm: ...}}}}"),
            code="E06",
        )
    _refuse_idle_patterns(graph, env)
    return {name: tuple(teams) for name, teams in owners.items()}


def _whole_teams(graph: Graph, env: EnvSpec) -> str:
    """Teams that no two policies share, as the adapter of PettingZoo envs takes them."""
    teams: dict[str, list[str]] = {}
    for team, spec in env.teams.items():
        names = [_match(graph, agent) for agent in spec.agents]
        for agent, name in zip(spec.agents, names, strict=True):
            teams.setdefault(f"{team}-{name}" if len(set(names)) > 1 else team, []).append(agent)
    return json.dumps(teams)


def _refuse_idle_patterns(graph: Graph, env: EnvSpec) -> None:
    """A pattern without agents is misspelt, or stands after one that takes all of them."""
    agents = [agent for team in env.teams.values() for agent in team.agents]
    used = {next(pattern for pattern in graph.agents if fnmatchcase(agent, pattern)) for agent in agents}
    if idle := [pattern for pattern in graph.agents if pattern not in used]:
        taken = [agent for agent in agents if fnmatchcase(agent, idle[0])]
        near = None if taken else nearest(idle[0], [*agents, *sorted({_glob(agent) for agent in agents})])
        raise UserError(
            f"pattern '{idle[0]}' matches no agent",
            ("found", f"earlier patterns take {', '.join(taken)}" if taken else f"the agents of the env: {', '.join(agents)}"),
            *([("did you mean", near)] if near else []),
            ("try", "leave it out: the first pattern that fits an agent counts" if taken else "leave it out, or correct it"),
            code="E10",
        )


def policy_spec(env: EnvSpec, teams: tuple[str, ...]) -> PolicySpec:
    """What a policy of these teams meets."""
    first, *others = (env.teams[team] for team in teams)
    for team, spec in zip(teams[1:], others, strict=True):
        lines = differences(first.obs, spec.obs)
        if lines or spec.action != first.action or spec.mask != first.mask:
            raise UserError(
                f"teams '{teams[0]}' and '{team}' cannot share one policy",
                ("because", lines[0] if lines else "their actions differ"),
                ("try", "a policy for each of them"),
                code="E10",
            )
    agents = sum(len(env.teams[team].agents) for team in teams)
    return PolicySpec(obs=first.obs, action=first.action, mask=first.mask, state=env.state, agents=agents)


def inspect_policies(graph: Graph, env: EnvSpec) -> dict[str, PolicyInfo]:
    """Build every policy once and act on zeros."""
    owners = teams_of(graph, env)
    if unused := [name for name, entry in graph.policies.items() if name not in owners]:
        raise UserError(
            f"policy '{unused[0]}' is not assigned to any agent",
            ("patterns", ", ".join(f'"{pattern}": {name}' for pattern, name in graph.agents.items())),
            code="E10",
        )
    _check_learners(graph)
    return {name: _inspect(name, graph, env, teams) for name, teams in owners.items()}


def _inspect(name: str, graph: Graph, env: EnvSpec, teams: tuple[str, ...]) -> PolicyInfo:
    entry, spec = graph.policies[name], policy_spec(env, teams)
    section: Path = ("policies", name) if name != "main" else ()
    with about(*section, "policy", "use"):
        policy = new_policy(entry.policy.use, entry.policy.args, spec, (*section, "policy"))
    act = policy.act(zero_ask(spec, policy.memory))
    found = {key: map_tree(lambda array: spec_of(np.asarray(array)[0]), leaf) for key, leaf in dict(act.extra).items()}
    wanted: tuple[str, ...] = ()
    window, replay = Window(), None
    if entry.algorithm is not None:
        with about(*section, "algorithm", "use"):
            kind = REGISTRIES["algorithm"].resolve(entry.algorithm.use)
        if not isinstance(policy, kind.Policy):
            raise UserError(
                f"algorithm {entry.algorithm.use} cannot train policy {entry.policy.use}",
                ("expected", f"a {kind.Policy.__name__} ({kind.Policy.__module__})"),
                ("try", "leave `policy` out, for the one that the algorithm is made for"),
                code="E10",
                path=(*section, "policy"),
            )
        needs = kind.needs(load(kind.Config, entry.algorithm.args, path=(*section, "algorithm")), spec)
        wanted, window, replay = needs.extra, needs.window, needs.replay
        _check_replay(replay, needs.joint, window, policy, section)
    if missing := [key for key in wanted if key not in found and key not in env.signals]:
        raise UserError(
            f"algorithm of '{name}' needs '{missing[0]}', but neither the policy nor the env provides it",
            ("policy provides", ", ".join(found) or "nothing besides actions"),
            ("env gives", ", ".join(env.signals) or "no signals"),
            code="E10",
        )
    params = spec_of(named_arrays(policy))
    twin = policy.numpy_twin() if hasattr(policy, "numpy_twin") else None
    info = PolicyInfo(
        name=name,
        use=REGISTRIES["policy"].everywhere(entry.policy.use),
        config=dict(entry.policy.args),
        spec=spec,
        teams=teams,
        memory=policy.memory,
        reads=tuple(policy.reads),
        bounds=policy.bounds,
        extra={key: found[key] for key in wanted if key in found},
        signals={key: leaf for key, leaf in env.signals.items() if key in wanted},
        params=params,
        twin=twin,
        needs_torch=twin is None and params != {},
        window=window,
        replay=replay,
    )
    if twin is not None:
        _compare(info, policy)
    return info


def _check_replay(replay: Replayed | None, joint: bool, window: Window, policy: Any, section: Path) -> None:
    """What a replay cannot give."""
    if replay is None:
        return
    path = (*section, "algorithm", "window")
    if joint:
        raise UserError("a replay cannot keep agents apart", ("because", "Needs.joint and Needs.replay are both set"), code="E10")
    if policy.memory != {} and window.length is None:
        raise UserError(
            f"'{dotted(path)}' must have a length: a replay has no slabs to train as a whole",
            ("try", "Needs(window=Window(burn_in=40, length=40), ...)"),
            code="E10",
            path=path,
        )
    if window.rows > 1 and replay.n_step > 1:
        raise UserError(
            "a replay sums the rewards of single rows only",
            ("found", f"n_step={replay.n_step} with windows of {window.rows} rows"),
            ("try", "Replayed(n_step=1), and returns over the rows of the window"),
            code="E10",
        )


def _check_learners(graph: Graph) -> None:
    """The settings of the learners are right."""
    for node in graph.nodes:
        learner = getattr(node.loaded, "learner", None)
        if isinstance(learner, Component):
            kind = REGISTRIES["learner"].resolve(learner.use)
            load(getattr(kind, "Config", NoConfig), learner.args, path=("workers", node.name, "learner"))


def _compare(info: PolicyInfo, policy: Any) -> None:
    """A twin that acts differently is an error of its author, found before the run."""
    twin = acting_policy(info)
    twin.load(named_arrays(policy), 0)
    for greedy in (False, True):
        _compare_acts(info, _noisy_act(policy, info.spec, greedy), _noisy_act(twin, info.spec, greedy))


def _compare_acts(info: PolicyInfo, expected: Act, got: Act) -> None:
    pairs = zip(
        leaves({"action": expected.action, "extra": expected.extra}),
        leaves({"action": got.action, "extra": got.extra}),
        strict=True,
    )
    for (path, want), (_, have) in pairs:
        worst = float(np.max(np.abs(np.asarray(want, np.float64) - np.asarray(have, np.float64)), initial=0.0))
        if worst > _TWIN_TOLERANCE:
            raise UserError(
                f"the numpy twin of policy '{info.name}' acts differently: {path} is off by {worst:.2g}",
                ("twin", str(info.twin)),
                ("try", "let `numpy_twin` return None until it agrees"),
            )


def _noisy_act(policy: Any, spec: PolicySpec, greedy: bool) -> Act:
    ask = zero_ask(spec, {}, envs=16)
    ask.greedy = greedy
    noise = np.random.default_rng(0)
    ask.obs = map_tree(lambda leaf: noise.standard_normal(leaf.shape).astype(leaf.dtype), ask.obs)
    result: Act = policy.act(ask)
    return result


def _match(graph: Graph, agent: str) -> str | None:
    return next((name for pattern, name in graph.agents.items() if fnmatchcase(agent, pattern)), None)


def _glob(agent: str) -> str:
    head, _, tail = agent.rpartition("_")
    return f"{head}_*" if head and tail.isdigit() else agent
