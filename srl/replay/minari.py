"""Data sets of Minari: their episodes as rows, and recordings written as new ones. Needs the extra minari."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.api.actions import action_map
from srl.api.env import ActionSpec, Box, Discrete, MultiDiscrete
from srl.core.errors import UserError
from srl.core.spec import Leaf, lead, zeros
from srl.core.tree import Array, build, leaves
from srl.envs.spaces import actions_of, obs_of
from srl.replay.recording import About

_AT_ONCE = 50_000
"""Rows that are written at once, about."""


def episodes(name: str) -> Iterator[dict[str, Array]]:
    """The rows of every episode by our names. `obs` has one more."""
    data, title = _opened(name), f"minari:{name}"
    obs, actions = obs_of(data.observation_space, title), actions_of(data.action_space, title)
    for episode in data.iterate_episodes():
        seen = zeros(lead(obs.spec, len(episode.rewards) + 1))
        obs.write_all(seen, episode.observations)
        yield {
            **dict(leaves(seen, "obs")),
            **dict(leaves(actions.rows(episode.actions), "action")),
            "reward": np.asarray(episode.rewards),
            "terminated": np.asarray(episode.terminations, bool),
            "truncated": np.asarray(episode.truncations, bool),
        }


def row_bytes(name: str) -> int:
    """About the memory that its rows take."""
    first = next(episodes(name), {})
    return sum(array.nbytes for array in first.values()) * int(_opened(name).total_steps) // max(len(first.get("reward", ())), 1)


def write(name: str, about: About, columns: Iterable[Mapping[str, Array]]) -> tuple[int, int]:
    """A new data set of these rows, each with its next observation (`next_obs`): (episodes, rows)."""
    library = _library(name)
    to_env = action_map(about.action, about.bounds)
    data: Any = None
    number = total = 0
    for held in _batches(rows for column in columns for rows in _split(column)):
        buffers = [library.data_collector.EpisodeBuffer(**_episode(rows, to_env)) for rows in held]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that authors and permanent links are recommended
            if data is None:
                data = _created(library, name, about, buffers)
            else:
                data.update_dataset_from_buffer(buffers)
        number, total = number + len(held), total + sum(len(rows["reward"]) for rows in held)
    return number, total


def _split(column: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """The rows of every episode; the last one of a column ends too."""
    low = 0
    for high in (np.flatnonzero(column["terminated"] | column["truncated"]) + 1).tolist():
        yield {path: leaf[low:high] for path, leaf in column.items()}
        low = high


def _batches(episodes: Iterable[dict[str, Array]]) -> Iterator[list[dict[str, Array]]]:
    """Episodes that are written at once."""
    held, size = [], 0
    for rows in episodes:
        held.append(rows)
        size += len(rows["reward"])
        if size >= _AT_ONCE:
            yield held
            held, size = [], 0
    if held:
        yield held


def _episode(rows: Mapping[str, Array], to_env: Callable[[Any], Any]) -> dict[str, Any]:
    """The fields of an episode: the next observation of its last row is its last one."""
    last = {path.removeprefix("next_"): leaf[-1:] for path, leaf in rows.items() if path.startswith("next_obs")}
    return {
        "observations": _tree({path: np.concatenate([rows[path], leaf]) for path, leaf in last.items()}, "obs"),
        "actions": to_env(_tree(rows, "action")),
        "rewards": rows["reward"],
        "terminations": rows["terminated"],
        "truncations": rows["truncated"],
    }


def _tree(rows: Mapping[str, Array], name: str) -> Any:
    """The leaves `name` and `name/...` as one tree."""
    return build({path.partition("/")[2]: leaf for path, leaf in rows.items() if path.partition("/")[0] == name})


def _created(library: Any, name: str, about: About, held: list[Any]) -> Any:
    record: Any = about.record
    try:
        return library.create_dataset_from_buffers(
            name,
            held,
            env=gymnasium.spec(about.env) if about.env in gymnasium.registry else None,
            observation_space=_space(record["obs"]),
            action_space=_action_space(about.action),
        )
    except ValueError as error:
        raise UserError(f"the data set minari:{name} cannot be written", ("cause", str(error)), code="E11") from error


def _space(spec: Any) -> spaces.Space[Any]:
    """Of the observations of one agent, from those of a slab `[T+1, E, A, ...]`."""
    if not isinstance(spec, Leaf):
        return spaces.Dict({key: _space(part) for key, part in spec.items()})
    shape, dtype = spec.shape[3:], np.dtype(spec.dtype)
    if dtype.kind == "b":
        return spaces.MultiBinary(shape)
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return spaces.Box(low, high, shape, dtype.type)


def _action_space(action: ActionSpec) -> spaces.Space[Any]:
    if isinstance(action, dict):
        return spaces.Dict({key: _action_space(part) for key, part in action.items()})
    if isinstance(action, Discrete):
        return spaces.Discrete(action.n)
    if isinstance(action, MultiDiscrete):
        return spaces.MultiDiscrete(np.array(action.counts))
    if isinstance(action, Box):
        low, high = (np.reshape(bound, action.shape).astype(np.float32) for bound in (action.low, action.high))
        return spaces.Box(low, high, action.shape, np.float32)
    return spaces.MultiBinary(action.n)


def _opened(name: str) -> Any:
    library = _library(name)
    try:
        return library.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(
            f"there is no data set minari:{name} on this machine",
            ("cause", str(error)),
            ("try", f"minari download {name}, or `minari list local`, which shows those that are here"),
            code="E11",
        ) from error


def _library(name: str) -> Any:
    try:
        import minari
    except ImportError as error:
        extra = "pip install 'really-scalable-rl[minari]'"
        raise UserError(f"minari:{name} needs Minari", ("cause", str(error)), ("try", extra), code="E11") from error
    return minari
