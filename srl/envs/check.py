"""The env checker: runs an env alone with random actions and tests everything that the engine relies on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.api.env import ActionSpec, BatchEnv, Block, Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, new_block, renew
from srl.core.progress import Tell, silent
from srl.core.seeds import Seeds
from srl.core.spec import lead, spec_of
from srl.core.text import aligned, count
from srl.core.tree import Array, Tree, leaves, map_tree
from srl.core.user_code import user_code
from srl.envs.faults import bad_step, name_of
from srl.envs.resolve import make_env
from srl.envs.watch import Watcher, identities

_COPIES = 3


@dataclass(frozen=True, slots=True)
class GivenSeeds(Seeds):
    """The first episode of copy `i` has the seed `root + i`, so that an error can be reproduced."""

    def seed(self, env: int, episode: int) -> int:
        return (self.root + self.first + env + 1_000_003 * episode) % 2**31

    def rng(self, env: int, episode: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self.seed(env, episode)))


@dataclass(slots=True)
class EnvReport:
    """Findings of the checker. Problems that would break a run are raised instead."""

    spec: EnvSpec
    steps: int
    episodes: int
    saveable: bool
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What `srl check env NAME` prints."""
        rows, episodes = [], count(self.episodes, "episode")
        for name, team in self.spec.teams.items():
            rows.append((f"team {name}", f"{count(len(team.agents), 'agent')}: {', '.join(team.agents)}"))
            for path, leaf in leaves(team.obs):
                rows.append((f"  observation {path}".rstrip(), f"{leaf.dtype} {leaf.shape}"))
            rows.append(("  action", f"{team.action}{', with a mask' if team.mask else ''}"))
        rows.append(("tried", f"{self.steps} random steps of {_COPIES} copies, {episodes} ended"))
        rows.append(("OK", "equal seeds give equal episodes; an episode starts in the step after the last one ended"))
        rows.append(
            ("resume", "exact: the env can be saved" if self.saveable else "starts new episodes: the env cannot be saved")
        )
        return [*aligned(rows).splitlines(), *(f"warning: {line}" for line in self.warnings)]


def check_env(component: Any, *, seed: int = 0, ticks: int = 200, tell: Tell = silent) -> EnvReport:
    """Play, replay, and replay with other actions where actions must be ignored. Raises what would break a run."""
    name = _name(component)

    def make(root: int = seed) -> BatchEnv:
        with user_code(f"cannot make env '{name}'", ("try", "--trace, which shows the traceback")):
            return make_env(component, _COPIES, GivenSeeds(root))

    first = _play(make, name, ticks, tell)
    again = _play(make, name, ticks, tell, what="steps, seeded alike")
    _same(first, again, name, "is not the same when it is seeded alike", "take all randomness from the seed given to reset")
    other = _play(make, name, ticks, tell, what="steps, other actions at a reset", other_at_reset=True)
    _same(
        first,
        other,
        name,
        "uses the actions of the step after an end, so it begins the next episode within the step that ends one",
        "next-step autoreset: the step after an end ignores the actions and writes the first observation (or use: gym)",
    )
    report = EnvReport(first.env.spec, ticks, first.ends, _continues(make, name, first, ticks))
    report.warnings += getattr(first.env, "warnings", [])
    if first.ends == 0:
        report.warnings.append(f"no episode ended in {ticks} ticks; resets were seen at the start only")
    if ticks and not _differ(first, _play(lambda: make(seed + 77_777), name, 0)):
        report.warnings.append("other seeds begin with the same observation")
    for run in (first, again, other):
        run.env.close()
        run.env.close()
    return report


@dataclass(slots=True)
class _Run:
    env: BatchEnv
    rows: list[Tree]
    """Everything that was written, per tick; the first is that of reset."""
    actions: list[dict[str, Tree]]
    watcher: Watcher
    saved: Tree | None

    @property
    def ends(self) -> int:
        return self.watcher.ends


def _play(
    make: Callable[[], BatchEnv],
    name: str,
    ticks: int,
    tell: Tell = silent,
    *,
    what: str = "steps",
    other_at_reset: bool = False,
) -> _Run:
    env = make()
    watcher = Watcher(env.count, env.seeds, name)
    block = new_block(env.spec, env.count)
    _poison(block)
    watching = identities(block)
    env.reset(block)
    watcher.began(block, watching)
    run = _Run(env, [_written(block)], [], watcher, None)
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    for tick in range(ticks):
        tell(what, tick, ticks)
        if tick == ticks // 2:
            run.saved = _copied(env.save())
        actions = sample_actions(env.spec, block, rng)
        if other_at_reset and watcher.over.any():
            for team, spec in env.spec.teams.items():
                changed = _sample(spec.action, None, block.teams[team].active, other)
                map_tree(lambda leaf, new: leaf.__setitem__(watcher.over, new[watcher.over]), actions[team], changed)
        kept = map_tree(np.copy, actions)
        _poison(block)
        watching = identities(block)
        env.step(actions, block)
        watcher.stepped(block, watching)
        _untouched(actions, kept, watcher)
        run.rows.append(_written(block))
        run.actions.append(kept)
    return run


def _continues(make: Callable[[], BatchEnv], name: str, run: _Run, ticks: int) -> bool:
    """True if the env can be saved; a loaded copy must then continue exactly."""
    if run.saved is None:
        return False
    env = make()
    block = new_block(env.spec, env.count)
    env.reset(block)
    env.load(run.saved)
    for tick in range(ticks // 2, ticks):
        renew(block)
        env.step(map_tree(np.copy, run.actions[tick]), block)
        if _difference(run.rows[tick + 1], _written(block)) is not None:
            likely = "save all that the next steps depend on"
            raise bad_step(run.watcher.spot(0), "continues differently after save and load", likely)
    env.close()
    return True


def _same(first: _Run, second: _Run, name: str, what: str, likely: str) -> None:
    for tick, (one, two) in enumerate(zip(first.rows, second.rows, strict=True)):
        where = _difference(one, two)
        if where is not None:
            raise bad_step(first.watcher.spot(0), f"{what}: '{where}' differs at tick {tick}", likely)


def _differ(first: _Run, second: _Run) -> bool:
    second.env.close()
    return _difference(first.rows[0], second.rows[0]) is not None


def _difference(one: Tree, two: Tree) -> str | None:
    other = dict(leaves(two))
    return next((path for path, leaf in leaves(one) if not np.array_equal(leaf, other[path])), None)


def _written(block: Block) -> Tree:
    """A copy of the meaningful parts of a block."""
    names = ("obs", "mask", "active", "reward", "terminated", "truncated")
    parts: dict[str, Any] = {}
    for team, part in block.teams.items():
        parts[team] = {name: getattr(part, name) for name in names if getattr(part, name) is not None}
        parts[team] |= {f"signal {name}": leaf for name, leaf in part.signals.items()}
    if block.state is not None:
        parts[" state"] = block.state
    return map_tree(np.copy, parts)  # type: ignore[no-any-return]


def sample_actions(spec: EnvSpec, block: Block, rng: np.random.Generator) -> dict[str, Tree]:
    """Random actions for every team that the masks of the block allow."""
    teams = {name: block.teams[name] for name in spec.teams}
    return {name: _sample(team.action, teams[name].mask, teams[name].active, rng) for name, team in spec.teams.items()}


def _poison(block: Block) -> None:
    """A block as the engine passes it, with nan where the env must write."""
    renew(block)
    targets = [team.obs for team in block.teams.values()] + ([block.state] if block.state is not None else [])
    for target in targets:
        for _, leaf in leaves(target):
            leaf.fill(np.nan if leaf.dtype.kind == "f" else 77)


def _untouched(actions: Mapping[str, Tree], kept: Mapping[str, Tree], watcher: Watcher) -> None:
    if _difference(dict(actions), dict(kept)) is not None:
        raise bad_step(watcher.spot(0), "changed the actions it was given", "copy them first: they are the recorded rows")


def _copied(saved: Tree | None) -> Tree | None:
    return None if saved is None else map_tree(lambda leaf: np.array(leaf), saved)


def _sample(action: ActionSpec, mask: Tree | None, active: Array, rng: np.random.Generator) -> Any:
    """Random actions `[E, A, ...]` that the masks allow."""
    if isinstance(action, dict):
        inner = mask if isinstance(mask, dict) else {}
        return {key: _sample(part, inner.get(key), active, rng) for key, part in action.items()}
    if isinstance(action, Discrete):
        return _choices((action.n,), mask, active, rng)[..., 0]
    if isinstance(action, MultiDiscrete):
        return _choices(action.counts, mask, active, rng)
    if isinstance(action, MultiBinary):
        bits = rng.integers(0, 2, (*active.shape, action.n), np.int8)
        return bits if mask is None else bits & np.asarray(mask).astype(np.int8)
    assert isinstance(action, Box)
    low, high = (np.clip(np.reshape(bound, action.shape), -1e3, 1e3) for bound in (action.low, action.high))
    return rng.uniform(low, high, (*active.shape, *action.shape)).astype(np.float32)


def _choices(counts: tuple[int, ...], mask: Tree | None, active: Array, rng: np.random.Generator) -> Array:
    """[E, A, entries] int64; the first where nothing is allowed."""
    columns, start = [], 0
    for number in counts:
        score = rng.random((*active.shape, number))
        if mask is not None:
            score = np.where(np.asarray(mask)[..., start : start + number], score, -1.0)
        columns.append(score.argmax(axis=-1))
        start += number
    return np.stack(columns, axis=-1).astype(np.int64)


def _name(component: Any) -> str:
    use = component.get("use", component.get("id")) if isinstance(component, Mapping) else getattr(component, "use", component)
    return name_of(use)


def fits(spec: EnvSpec, block: Block, count: int) -> bool:
    """True if the rows of a block match the spec."""
    return all(
        spec_of(block.teams[name].obs) == lead(team.obs, count, len(team.agents)) for name, team in spec.teams.items()
    ) and (spec.state is None or spec_of(block.state) == lead(spec.state, count))
