"""Distributed reinforcement learning: one experiment file, from one process to a cluster.

Names are imported when they are first used (PEP 562), so `import srl` costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "srl.api.algorithm": ("Algorithm", "Needs"),
    "srl.api.batch": ("Batch",),
    "srl.api.env": ("Env", "BatchEnv", "EnvSpec", "TeamSpec", "Box", "Discrete", "MultiDiscrete", "MultiBinary"),
    "srl.api.neural": ("NeuralPolicy",),
    "srl.api.policy": ("Policy", "PolicySpec", "Ask", "Act"),
    "srl.api.transform": ("Transform",),
    "srl.core.load": ("option",),
    "srl.core.registry": tuple(
        f"register_{kind}"
        for kind in ("algorithm", "env", "launcher", "learner", "policy", "sink", "transform", "transport", "worker")
    ),
    "srl.graph.builder": ("GraphBuilder",),
    "srl.loaded": ("load_run",),
    "srl.observe.sinks.base": ("Sink",),
    "srl.session": ("build",),
    "srl.workers.base": ("Port", "Worker"),
}
_NAMES = {name: module for module, names in _HOMES.items() for name in names}
_OTHER = {"Env": "BatchEnv"}
"""Names under which a class goes here, if not its own."""

__all__ = ["__version__", "launch", *_NAMES]

if TYPE_CHECKING:
    from srl.api.algorithm import Algorithm as Algorithm
    from srl.api.algorithm import Needs as Needs
    from srl.api.batch import Batch as Batch
    from srl.api.env import BatchEnv as BatchEnv
    from srl.api.env import Box as Box
    from srl.api.env import Discrete as Discrete
    from srl.api.env import EnvSpec as EnvSpec
    from srl.api.env import MultiBinary as MultiBinary
    from srl.api.env import MultiDiscrete as MultiDiscrete
    from srl.api.env import TeamSpec as TeamSpec
    from srl.api.neural import NeuralPolicy as NeuralPolicy
    from srl.api.policy import Act as Act
    from srl.api.policy import Ask as Ask
    from srl.api.policy import Policy as Policy
    from srl.api.policy import PolicySpec as PolicySpec
    from srl.api.transform import Transform as Transform
    from srl.core.load import option as option
    from srl.core.registry import register_algorithm as register_algorithm
    from srl.core.registry import register_env as register_env
    from srl.core.registry import register_launcher as register_launcher
    from srl.core.registry import register_learner as register_learner
    from srl.core.registry import register_policy as register_policy
    from srl.core.registry import register_rule as register_rule
    from srl.core.registry import register_sink as register_sink
    from srl.core.registry import register_transform as register_transform
    from srl.core.registry import register_transport as register_transport
    from srl.core.registry import register_worker as register_worker
    from srl.graph.builder import GraphBuilder as GraphBuilder
    from srl.loaded import load_run as load_run
    from srl.observe.sinks.base import Sink as Sink
    from srl.run import Run
    from srl.session import build as build
    from srl.workers.base import Port as Port
    from srl.workers.base import Worker as Worker

    Env = BatchEnv


def launch(
    experiment: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: str | Path | None = None,
    resume_or_start: str | None = None,
    runs: str | Path = "runs",
    wait: bool = True,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Run an experiment. Keywords are settings, as in the file: `srl.launch("cartpole", algorithm={"lr": 1e-3})`.

    With `wait=False` it returns at once: use `run.wait()`, `run.stop()` and `run.metrics()`.
    `run.wait()` raises the error of a run that failed. `quiet` prints nothing.
    `resume`: a run folder. `resume_or_start`: the id of a run, which is resumed if it is there and started if not.
    """
    from srl.core.registry import refuse_while_importing
    from srl.observe.sinks.console import Console
    from srl.run import make_run

    refuse_while_importing()
    console = None if quiet else Console()
    run = make_run(
        experiment, overrides, settings=settings, resume=resume, resume_or_start=resume_or_start, runs=runs, console=console
    )
    if wait:
        run.wait()
    else:
        run.start()
    return run


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'srl' has no attribute '{name}'")
    found = getattr(importlib.import_module(_NAMES[name]), _OTHER.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
