"""Names and paths of classes: registered names are strings until they are used, `pkg.mod:Class` and `path/to/file.py:Class`
mean the same in every process."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import types
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from srl.core.errors import Fact, NotImportable, UserError
from srl.core.load import meant
from srl.core.where import caller

BUILTIN: dict[str, dict[str, str]] = {
    "env": {
        "gym": "srl.envs.gym:GymEnv",
        "gym_vector": "srl.envs.gym_vector:GymVectorEnv",
        "mujoco": "srl.envs.mujoco:MujocoEnv",
        "pettingzoo": "srl.envs.pettingzoo:PettingZooEnv",
        "fake": "srl.envs.fake:FakeEnv",
        "hide_and_seek": "srl.envs.hide_and_seek.env:HideAndSeekVec",
        "catch": "srl.envs.catch:Catch",
        "atari": "srl.envs.atari:Atari",
        "envpool": "srl.envs.envpool:EnvPool",
        "cartpole_positions": "srl.envs.hidden_velocity:CartPolePositions",
    },
    "policy": {
        "actor_critic": "srl.nets.actor_critic:ActorCritic",
        "recurrent": "srl.nets.recurrent:Recurrent",
        "entity": "srl.nets.entity:EntityPolicy",
        "q_network": "srl.nets.q_network:QNetwork",
        "recurrent_q": "srl.nets.recurrent_q:RecurrentQ",
        "squashed_gaussian": "srl.nets.continuous:SquashedGaussian",
        "deterministic": "srl.nets.continuous:Deterministic",
    },
    "algorithm": {
        "ppo": "srl.algorithms.ppo:PPO",
        "impala": "srl.algorithms.impala:Impala",
        "bc": "srl.algorithms.bc:BC",
        "distill": "srl.algorithms.distill:Distill",
        "ppg": "srl.algorithms.ppg:PPG",
        "appo": "srl.algorithms.appo:APPO",
        "dqn": "srl.algorithms.dqn:DQN",
        "r2d2": "srl.algorithms.r2d2:R2D2",
        "pqn": "srl.algorithms.pqn:PQN",
        "sac": "srl.algorithms.sac:SAC",
        "td3": "srl.algorithms.td3:TD3",
        "ddpg": "srl.algorithms.ddpg:DDPG",
    },
    "learner": {"single": "srl.learners.single:SingleLearner", "split": "srl.learners.split:SplitLearner"},
    "worker": {
        "actor": "srl.workers.actor:ActorWorker",
        "policy": "srl.workers.policy:PolicyWorker",
        "trainer": "srl.workers.trainer:TrainerWorker",
        "buffer": "srl.workers.buffer:BufferWorker",
        "record": "srl.workers.record:RecordWorker",
        "playback": "srl.workers.playback:PlaybackWorker",
        "relay": "srl.workers.relay:RelayWorker",
        "replay": "srl.workers.replay:ReplayWorker",
        "evaluator": "srl.workers.evaluator:EvaluatorWorker",
        "league": "srl.workers.league:LeagueWorker",
        "viewer": "srl.workers.viewer:ViewerWorker",
    },
    "layout": {
        "inline": "srl.graph.layouts:inline",
        "impala": "srl.graph.layouts:impala",
        "seed": "srl.graph.layouts:seed",
        "decoupled": "srl.graph.layouts:decoupled",
        "offpolicy": "srl.graph.layouts:offpolicy",
        "spreeze": "srl.graph.layouts:spreeze",
    },
    "transport": {
        "inproc": "srl.streams.inproc:InprocTransport",
        "shm": "srl.streams.shm:ShmTransport",
        "zmq": "srl.streams.zmq:ZmqTransport",
        "ipc": "srl.streams.zmq:IpcTransport",
    },
    "rule": {"uniform": "srl.workers.rules:Uniform", "win_rate": "srl.workers.rules:WinRate"},
    "launcher": {
        "loopback": "srl.launchers.loopback:Loopback",
        "ssh": "srl.launchers.ssh:Ssh",
        "slurm": "srl.launchers.slurm:Slurm",
        "ray": "srl.launchers.ray_cluster:RayCluster",
        "kubernetes": "srl.launchers.kubernetes:Kubernetes",
        "sky": "srl.launchers.sky:Sky",
        "external": "srl.launchers.external:External",
    },
    "transform": {"expert": "srl.experts:Expert"},
    "sink": {"wandb": "srl.observe.sinks.wandb:WandB", "prometheus": "srl.observe.sinks.prometheus:Prometheus"},
}
"""The names that come with the package, by kind: add a line to add a thing."""

OFF_POLICY = frozenset({"sac", "td3", "ddpg", "dqn", "r2d2", "bc"})
"""Algorithms that train from a replay: known without importing them."""
IN_PARTS = frozenset({"sac", "td3", "ddpg"})
"""Algorithms whose updates have two parts that run at the same time."""

C = TypeVar("C")
_PREFIX = "srl_file_"
_importing: list[str] = []


class Registry:
    """The names of one kind of thing."""

    def __init__(self, kind: str, builtin: dict[str, str] | None = None) -> None:
        self.kind = kind
        self._builtin = dict(builtin or {})
        self._targets: dict[str, Any] = dict(self._builtin)
        self._places: dict[str, str] = {}

    def add(self, name: str, target: Any, *, place: str | None = None) -> None:
        """Register a class or `"pkg.mod:Class"`. The same thing again (a reload, `__main__`, a file imported by two names)
        renews it; another is refused."""
        place = place or str(caller(__file__))
        if not name or ":" in name or name.endswith(".py"):
            from srl.core.text import article  # for errors only

            raise UserError(
                f"'{name}' is not a valid name of {article(self.kind)}",
                ("from", place),
                ("expected", "a name without ':' that does not end in .py"),
                code="E13",
            )
        if name in self._targets and not self._is_the_same(name, target, place):
            raise UserError(
                f"two things are registered as {self.kind} '{name}'",
                ("first", self.place(name)),
                ("second", place),
                ("try", "give one of them another name"),
                code="E13",
            )
        self._targets[name] = target
        self._places[name] = place

    def _is_the_same(self, name: str, target: Any, place: str) -> bool:
        known, new = _path(self._targets[name]), _path(target)
        if known == new:
            return True
        return self.place(name) == place and known.rpartition(":")[2] == new.rpartition(":")[2]

    def place(self, name: str) -> str:
        """`file.py:12`, where the name was registered."""
        target = self._targets[name]
        return self._places.get(name) or (f"{target} (built in)" if isinstance(target, str) else place_of(target))

    def everywhere(self, name: str) -> str:
        """A built-in name as it is, a name that was registered in this process as the path that every process can import."""
        target = self._targets.get(name, name)
        if isinstance(target, str):
            return name if name in self._builtin else target
        try:
            return dotted_path(target)
        except NotImportable:  # of a notebook: an inline run finds it by its name
            return name

    def resolve(self, name: Any) -> Any:
        """The class behind a name or a path; anything but text is returned as it is."""
        if not isinstance(name, str):
            return name
        target = self._targets.get(name, name)
        if not isinstance(target, str):
            return target
        if target is name and ":" not in name:
            raise self._unknown(name)
        return import_path(target, self.kind)

    def held(self, name: Any) -> Any:
        """The class itself, where this process registered one and not its path; else None."""
        target = self._targets.get(name) if isinstance(name, str) else name
        return None if isinstance(target, str) else target

    def names(self) -> list[str]:
        return sorted(self._targets)

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def _unknown(self, name: str) -> NotImportable:
        name = name if len(name) <= 100 else f"{name[:97]}..."
        return NotImportable(
            f"no {self.kind} is called '{name}'",
            *meant(name, self.names()),
            ("known", ", ".join(self.names()) or "none"),
            ("try", f"a path such as my_pkg.mod:Class or path/to/file.py:Class, or import=my_pkg, which registers '{name}'"),
        )


REGISTRIES: dict[str, Registry] = {kind: Registry(kind, table) for kind, table in BUILTIN.items()}


def load_plugins(names: Iterable[str]) -> None:
    """Import modules and `.py` files so that they register what they have, and the installed entry points `srl.plugins`."""
    from importlib.metadata import entry_points

    for name in names:
        import_module(name, f"plugin '{name}'")
    for entry in entry_points(group="srl.plugins"):
        owner = f" of {entry.dist.name}" if entry.dist is not None else ""
        import_module(entry.value.partition(":")[0], f"plugin '{entry.name}'{owner}")


def _registers(kind: str) -> Callable[[str], Callable[[C], C]]:
    """The decorator that registers a class or function of this kind under a name."""

    def named(name: str) -> Callable[[C], C]:
        place = str(caller(__file__))

        def keep(target: C) -> C:
            REGISTRIES[kind].add(name, target, place=place)
            return target

        return keep

    return named


register_env = _registers("env")
register_policy = _registers("policy")
register_algorithm = _registers("algorithm")
register_learner = _registers("learner")
register_worker = _registers("worker")
register_transport = _registers("transport")
register_transform = _registers("transform")
register_launcher = _registers("launcher")
register_rule = _registers("rule")
register_sink = _registers("sink")


def _path(target: Any) -> str:
    """A path that stays the same when a module is executed again."""
    if isinstance(target, str):
        return target
    try:
        return dotted_path(target)
    except NotImportable:
        return f"{target.__module__}:{target.__qualname__}"


def import_path(path: str, kind: str = "object") -> Any:
    """The object behind `pkg.mod:Class` or `file.py:Class`; NotImportable says what went wrong."""
    module_name, _, attribute = path.rpartition(":")
    if not module_name or not attribute:
        raise NotImportable(f"'{path}' is not an import path", ("expected", "pkg.mod:Class or path/to/file.py:Class"))
    found: Any = import_module(module_name, f"{kind} '{path}'")
    for part in attribute.split("."):
        if not hasattr(found, part):
            place = getattr(found, "__file__", None) or module_name
            headline = f"cannot import {kind} '{path}': no '{attribute}' there"
            raise NotImportable(headline, ("from", str(place)), *_offers(found, part))
        found = getattr(found, part)
    return found


def import_module(name: str, what: str = "") -> types.ModuleType:
    """A module by name, or a file ending in `.py` by path (which is run once per process)."""
    what = what or f"'{name}'"
    is_file = name.endswith(".py")
    file = _file(name) if is_file else None
    if is_file and file is None:
        raise NotImportable(f"cannot import {what}: no such file", ("from", str(Path.cwd() / name)))
    _importing.append(name)
    try:
        return _import_file(file) if file is not None else _import_dotted(name)
    except UserError:
        raise
    except Exception as problem:
        raise _failed(name, what, problem, is_file) from problem
    finally:
        _importing.pop()


def _file(name: str) -> Path | None:
    """The file of this path: from here, or of the examples that are installed with the package."""
    for folder in (Path(), Path(sys.prefix) / "share" / "srl"):
        try:
            if (path := folder / Path(name).expanduser()).is_file():
                return path.resolve()
        except (OSError, ValueError, RuntimeError):
            return None
    return None


def refuse_while_importing() -> None:
    """Called first by `srl.launch()`: a script that is imported for its classes must not start the run again."""
    if _importing:
        raise NotImportable(
            f"importing {_importing[-1]} starts a run",
            ("because", "every process of a run imports the file of its classes, and that file calls srl.launch"),
            ("try", 'put the call under `if __name__ == "__main__":`'),
        )


def dotted_path(found: Any) -> str:
    """The path by which every process can import the class or function."""
    module, name = found.__module__, found.__qualname__
    if "<" in name:
        inside = "inside a function" if "<locals>" in name else "without a name"
        raise NotImportable(
            f"'{name}' is defined {inside}, where other processes cannot find it",
            ("from", place_of(found)),
            ("try", "move it to the top level of its file, or mode=inline"),
        )
    if module.startswith(_PREFIX):
        module = str(sys.modules[module].__file__)
    return f"{_main_path(name) if module == '__main__' else module}:{name}"


def place_of(found: Any) -> str:
    """`file.py:12` of a class or function, as well as it is known."""
    try:
        return f"{inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]}"
    except (OSError, TypeError):
        return str(getattr(found, "__module__", "") or "unknown place")


def import_paths() -> list[str]:
    """Entries of `sys.path` beyond the installation: what a worker needs to find the modules this process finds."""
    roots = {str(Path(root).resolve()) for root in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    entries = [str(Path(entry or ".").resolve()) for entry in sys.path if not entry.endswith(".zip")]
    own = [entry for entry in entries if not any(entry == root or entry.startswith(root + os.sep) for root in roots)]
    return list(dict.fromkeys(own))


def _import_dotted(name: str) -> types.ModuleType:
    main = sys.modules.get("__main__")
    if main is not None and getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main  # started by `python -m name`
    return importlib.import_module(name)


def _import_file(path: Path) -> types.ModuleType:
    for module in [sys.modules["__main__"], *sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path:
            return module
    name = f"{_PREFIX}{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # its neighbours are importable, as when it runs as a script
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _main_path(name: str) -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name and not spec.name.endswith("__main__"):
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        raise NotImportable(
            f"'{name}' is defined in a notebook or an interactive session, where other processes cannot find it",
            ("try", "mode=inline, or move the class to a file and name it as path/to/file.py:" + name),
        )
    return str(Path(file).resolve())


def _offers(module: Any, wanted: str) -> list[Fact]:
    """The classes that a module defines, the most similar one first."""
    own = getattr(module, "__name__", "")
    found = {name: one for name, one in vars(module).items() if getattr(one, "__module__", "") == own and name[0] != "_"}
    classes = [name for name, one in found.items() if isinstance(one, type)]
    return [*meant(wanted, list(found)), ("classes there", ", ".join(classes) or "none")]


def _failed(name: str, what: str, problem: Exception, is_file: bool) -> NotImportable:
    error = NotImportable(f"cannot import {what}", ("cause", f"{type(problem).__name__}: {problem}{_origin(problem)}"))
    missing = problem.name or "" if isinstance(problem, ModuleNotFoundError) else ""
    if missing and not (name == missing or name.startswith(missing + ".")):
        error.add("try", f"install what it needs: pip install {missing.partition('.')[0]}")
    elif missing:
        searched = ", ".join(import_paths()) or "the installed packages only"
        error.add("searched", f"{searched}, and the installed packages")
        error.add("workers", f"import the same path in processes of their own, started in {Path.cwd()}")
        error.add("try", f"pip install -e . in its project, or name the file: path/to/{name.rpartition('.')[2]}.py:Class")
    return error


def _origin(problem: BaseException) -> str:
    """The last line outside the import machinery that was running."""
    trace, place = problem.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen") and file not in (__file__, importlib.__file__):
            place = f" ({file}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place
