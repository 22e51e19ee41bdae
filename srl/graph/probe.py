"""A short measurement in a process of its own: what an env step and acting cost here. Remembered by env, policy and CPU."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgpack

from srl.config.experiment import Experiment, read_experiment, write_experiment
from srl.core.errors import SrlError
from srl.graph.layouts import Timing
from srl.graph.machine import Machine

BUDGET = 0.7
"""Seconds for each of the two figures."""


def probe(experiment: Experiment) -> Timing | None:
    """Microseconds per env step; None if it could not be measured (the check that follows says why)."""
    data = write_experiment(experiment)
    key = hashlib.sha256(json.dumps([data["env"], data.get("policy"), data.get("policies"), Machine.here().cpu]).encode())
    remembered = _cache() / f"{key.hexdigest()[:16]}.json"
    try:
        return Timing(**json.loads(remembered.read_text()))
    except (OSError, ValueError, TypeError):
        pass
    child = subprocess.run(
        [sys.executable, "-m", "srl.graph.probe"],
        input=msgpack.packb({"experiment": data, "path": sys.path}),
        capture_output=True,
        check=False,
    )
    if child.returncode != 0:
        return None
    found = msgpack.unpackb(child.stdout)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    remembered.write_text(json.dumps(found))
    return Timing(**found)


def measure(experiment: Experiment) -> Timing:
    """The measurement itself."""
    from srl.api.env import new_block, renew
    from srl.core.seeds import Seeds
    from srl.core.spec import lead, zeros
    from srl.envs.resolve import make_env
    from srl.graph.derive import derive
    from srl.graph.layouts import plan
    from srl.graph.policies import acting_policy, component_data, zero_ask

    graph = plan(experiment, machine=Machine(1, 0, 0)).graph
    derived = derive(graph)
    envs = min(experiment.sampling.envs, 32)
    env = make_env(component_data(graph.env), envs, Seeds(graph.seed, "probe"))
    block = new_block(env.spec, envs)
    env.reset(block)
    from srl.api.env import action_leaves

    actions = {name: zeros(lead(action_leaves(team.action), envs, len(team.agents))) for name, team in env.spec.teams.items()}

    def step() -> None:
        renew(block)
        env.step(actions, block)

    policies = [(acting_policy(info), info) for info in derived.players.values()]

    def act() -> None:
        for policy, info in policies:
            policy.act(zero_ask(info.spec, info.memory, envs))

    timing = Timing(env=_microseconds(step) / envs, act=_microseconds(act) / envs)
    env.close()
    return timing


def _microseconds(work: Any) -> float:
    """The median over rounds, after a warm-up."""
    work()
    times: list[float] = []
    end = time.perf_counter() + BUDGET
    while time.perf_counter() < end or len(times) < 3:
        before = time.perf_counter()
        work()
        times.append(time.perf_counter() - before)
    return sorted(times)[len(times) // 2] * 1e6


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srl" / "probe"


def _main() -> int:
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = msgpack.unpackb(sys.stdin.buffer.read())
    sys.path[:] = asked["path"]
    try:
        found = measure(read_experiment(asked["experiment"]))
    except SrlError:
        return 1
    wire.write(msgpack.packb({"env": found.env, "act": found.act}))
    wire.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
