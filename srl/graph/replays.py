"""What `auto` means for off-policy algorithms: which policies have a replay, and its sizes."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from srl.config.experiment import Experiment, Replay, Sampling
from srl.core.errors import UserError
from srl.core.registry import BUILTIN, OFF_POLICY
from srl.graph.ranks import most_ranks

_WARMUP, _PART = 5_000, 20
"""Env steps of the warm-up, and at most this part of a run."""
_ROUND, _SHORTEST, _LONGEST = 8, 4, 128
"""Updates that a slab of every actor in a process of its own should last for, and fewest and most steps of one."""
_AHEAD = 32
"""Updates that the rows of such actors should last for, while these do not get a core."""


def with_replay(experiment: Experiment, known: Collection[str] | None = None) -> Experiment:
    """With a replay, if any policy trains from one. `known`: which do, once their algorithms were asked."""
    found = replayed(experiment, known)
    if experiment.replay is None:
        return replace(experiment, replay=Replay()) if found else experiment
    if not found:
        used = sorted({entry.algorithm.use for entry in experiment.entries().values() if entry.algorithm})
        raise UserError(
            f"'replay' has no effect with algorithm {', '.join(used)}, which is on-policy",
            ("because", "it trains on every row once, in the batch that it was recorded for"),
            ("try", f"algorithm={sorted(OFF_POLICY)[-2]}, or ~replay"),
            code="E11",
            path=("replay",),
        )
    return experiment


def replayed(experiment: Experiment, known: Collection[str] | None = None) -> tuple[str, ...]:
    """The policies that train from a replay; before the algorithms were asked, by their names. Beside `replay:` in a file,
    algorithms of one's own do."""
    if known is not None:
        return tuple(name for name in experiment.learning if name in known)
    entries = experiment.entries()
    named = {name: entry.algorithm.use for name, entry in entries.items() if entry.algorithm is not None}
    asked = experiment.replay is not None
    return tuple(name for name, use in named.items() if use in OFF_POLICY or (asked and use not in BUILTIN["algorithm"]))


def sampled(experiment: Experiment, *, together: bool) -> tuple[int, int]:
    """Envs, and steps of a slab. With everything in one process a slab is one step, so that updates follow at once."""
    sampling, replay = experiment.sampling, experiment.replay
    envs = None if sampling.envs == "auto" else sampling.envs
    steps = None if sampling.steps == "auto" else sampling.steps
    if replay is None:
        return envs or 16, steps or 128
    parts = [number for number in (sampling.workers, sampling.groups) if number != "auto"]
    envs = envs or max(math.prod(parts), replay.shards * most_ranks(experiment))
    apart = min(_LONGEST, max(_SHORTEST, math.ceil(_ROUND / (replay.updates_per_step * envs))))
    return envs, steps or (1 if together else apart)


def decided(experiment: Experiment, sampling: Sampling, *, together: bool) -> Replay | None:
    """The replay without `auto`. Inline, actors take the next step once all updates of the last one are done."""
    replay = experiment.replay
    if replay is None:
        return None
    slab = max(1, int(sampling.envs) // (int(sampling.workers) * int(sampling.groups)) * int(sampling.steps))
    slabs = int(sampling.workers) * int(sampling.groups)
    ahead, warmup, stop = replay.ahead, replay.warmup, experiment.stop.env_steps
    if ahead == "auto" and together:
        ahead = slab * replay.shards
    elif ahead == "auto":
        ahead = max(2 * slabs * slab, 4 * slab, math.ceil(_AHEAD / replay.updates_per_step))
    if warmup == "auto":
        warmup = _WARMUP if stop is None else min(_WARMUP, max(1, stop // _PART))
    elif stop is not None and warmup >= stop:
        raise UserError(
            f"replay.warmup={warmup:,} must be below stop.env_steps={stop:,}, or the run ends before the first update",
            ("try", f"replay.warmup={stop // _PART}"),
            code="E04",
            path=("replay", "warmup"),
        )
    return replace(replay, ahead=ahead, warmup=warmup)
