"""A real run with several supervisors on this machine, to compare the model with."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.plan.prepare import prepare
from srl.store.lines import read_numbers


@dataclass(frozen=True, slots=True)
class Seen:
    """What the run did between its first updates and its end."""

    rate: float
    actors_wait: float
    """Part of the time in which an actor and its policy had nothing to do."""
    trainer_waits: float
    staleness: float
    acting: float
    """Processor time of the actors for an env step, with all that belongs to it."""
    training: float
    """The same of the trainer."""
    cores: float
    """Processor time of all, by time."""
    available: float
    """Cores that other programs left to it, used or not."""


def real(experiment: str | None, overrides: list[str], seconds: float, *, hosts: int, envs: int) -> Seen:
    """`launcher=loopback`: one actor on each of these hosts."""
    from srl.control.controller import Controller
    from srl.launchers.backend import LaunchedBackend
    from srl.run import write_down

    placed = [f"hosts.check.count={hosts}", "hosts.check.cores=1", "workers.actor.hosts=check", "launcher=loopback"]
    sized = ["layout=impala", f"sampling.workers={hosts}", "sampling.groups=1", f"sampling.envs={hosts * envs}"]
    endless = [f"stop.{name}=null" for name in ("env_steps", "updates", "return")]
    prepared = prepare(experiment, [*overrides, *placed, *sized, *endless, f"stop.seconds={seconds}", "evaluation=null"])
    assert prepared.derived is not None
    with tempfile.TemporaryDirectory() as place:
        folder = write_down(prepared, (), None, Path(place))
        backend = LaunchedBackend(prepared.graph, folder.path)
        result = Controller(prepared.graph, folder=folder, derived=prepared.derived, backend=lambda: backend).run()
        if result.exit_code:
            raise UserError("the run to compare with failed", ("result", result.format()))
        read = (row for row in read_numbers(folder.metrics) if (row.get("update") or 0) >= 3)
        rows: list[dict[str, Any]] = [row for row in read if "total/env_steps" in row]  # a trainer without a core reports late
    if len(rows) < 6:
        raise UserError("too few updates to compare with", ("try", "--check 60"))
    rows = rows[:-2]  # the end of the run is a drain
    first, last, among = rows[0], rows[-1], rows[1:]
    passed = float(last["wall"]) - float(first["wall"])

    def mean(*names: str) -> float:
        return sum(float(row.get(name) or 0.0) for row in among for name in names) / len(among)

    acting, training = mean("busy/actor", "busy/policy"), mean("busy/trainer")
    rate = (float(last["total/env_steps"]) - float(first["total/env_steps"])) / passed
    return Seen(
        rate=rate,
        actors_wait=max(0.0, 1 - acting),
        trainer_waits=1 - training,
        staleness=mean("stream/samples.main/staleness_mean"),
        acting=mean("cpu/actor") / rate,
        training=mean("cpu/trainer") / rate,
        cores=mean("cpu/actor", "cpu/trainer"),
        available=mean("cpu/actor", "cpu/trainer", "cores_idle"),
    )
