"""Make a BatchEnv from its setting: a registered name, a gymnasium id, or a path to a class or function."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import re
from collections.abc import Mapping
from typing import Any

from srl.api.env import BatchEnv
from srl.core.errors import NotImportable, SrlError, UserError
from srl.core.load import load, nearest
from srl.core.registry import REGISTRIES
from srl.core.seeds import Seeds
from srl.envs.faults import name_of
from srl.envs.watch import watch

_OURS = ("stats", "signals", "state", "mask", "teams", "render", "checked", "on_error", "restarts", "step_timeout", "args")
"""Settings of the adapters; all other keys beside `use: my_pkg.envs:Make` go to the env itself."""
_FAMILIES = {
    "ALE": ("ale_py", "'really-scalable-rl[atari]'"),
    "MinAtar": ("minatar.gym", "'really-scalable-rl[minatar]'"),
    "MiniGrid": ("minigrid", "'really-scalable-rl[minigrid]'"),
    "BabyAI": ("minigrid", "'really-scalable-rl[minigrid]'"),
    "miniwob": ("miniwob", "miniwob"),
    "highway": ("highway_env", "highway-env"),
    "dm_control": ("shimmy", "'shimmy[dm-control]'"),
}
"""Families of gymnasium ids: the module that registers them, and what pip installs."""
_MUJOCO = ("threads", "max_episode_steps", "width", "height")


def make_env(component: Any, count: int, seeds: Seeds, *, place: str = "") -> BatchEnv:
    """`count` copies of an env. `component` is a name, `{use:, ...}`, or a thing with `use` and `args`.

    `place` names the worker in errors, such as `actor/3`.
    """
    use, args = _parts(component)
    target, args = _target(use, args)
    env = _build(target, use, args, count, seeds)
    if hasattr(env, "_srl_place"):  # an adapter, which finds faults itself
        env._srl_place = place
        return env
    return env if type(env).__module__.startswith("srl.") else watch(env, name_of(use), place=place)


def _parts(component: Any) -> tuple[Any, dict[str, Any]]:
    if isinstance(component, Mapping):
        args = dict(component)
        use = args.pop("use", None) or ("gym" if "id" in args else None)
        if use is None:
            raise UserError("'env' must name an env", ("expected", "a name, or {use: name, ...}"), ("try", "env.use=CartPole-v1"))
        return use, args
    if hasattr(component, "use"):
        return component.use, dict(component.args)
    return component, {}


def _target(use: Any, args: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The BatchEnv class, and its keywords."""
    registry = REGISTRIES["env"]
    if not isinstance(use, str):
        return _adapted(use, args)
    if use in ("gym", "gym_vector") and isinstance(name := args.get("id"), str):
        _import_family(name)
        if _lacks_package(name):
            raise _unknown(name)
    if use in registry or (":" in use and not _is_gym_id(use)):
        return _adapted(registry.resolve(use), args)
    if _has_mujoco(use, args):
        return registry.resolve("mujoco"), {"id": use, **_split(args, (*_OURS, *_MUJOCO))}
    if _is_atari(use):
        return registry.resolve("atari"), {"id": use, **args}
    if _is_gym_id(use):
        return registry.resolve("gym"), {"id": use, **_split(args)}
    raise _unknown(use)


def _adapted(found: Any, args: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A BatchEnv unchanged; a gymnasium env or PettingZoo ParallelEnv behind its adapter."""
    if isinstance(found, type) and issubclass(found, BatchEnv):
        return found, args
    split = _split(args)
    parallel = _is_parallel(found, split["args"])
    return REGISTRIES["env"].resolve("pettingzoo" if parallel else "gym"), {"id": found, **split}


def _build(target: Any, use: Any, args: dict[str, Any], count: int, seeds: Seeds) -> BatchEnv:
    config = getattr(target, "Config", None)
    if config is not None:
        loaded = load(config, args, path="env")
        args = {key: getattr(loaded, key) for key in args}
    else:
        _check_keywords(target, use, args)
    env: BatchEnv = target(count, seeds, **args)
    return env


def _check_keywords(target: Any, use: Any, args: Mapping[str, Any]) -> None:
    known = list(inspect.signature(target).parameters.values())[2:]
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known):
        return
    names = [one.name for one in known]
    for key in args:
        if key not in names:
            near = nearest(key, names)
            hint = ("did you mean", f"{near}?") if near else ("settings", ", ".join(names) or "none")
            raise UserError(f"env '{use}' has no setting '{key}'", hint, code="E02")


def _split(args: Mapping[str, Any], ours: tuple[str, ...] = _OURS) -> dict[str, Any]:
    """Settings of the adapter beside the keywords of the env."""
    own = {key: value for key, value in args.items() if key in ours}
    rest = {key: value for key, value in args.items() if key not in ours}
    return own | {"args": {**own.get("args", {}), **rest}}


def _is_gym_id(name: str) -> bool:
    """True if gymnasium knows it; `module:Name-v0` imports the module first, as gymnasium does."""
    import gymnasium

    _import_family(name)
    if name in gymnasium.registry:
        return True
    if ":" in name and name.rpartition("-v")[2].isdigit() and not name.endswith(".py"):
        return True
    kind, _, version = name.rpartition("-v")
    known = [key for key in gymnasium.registry if key == name or key.rpartition("-v")[0] == kind]
    return bool(known) and version.isdigit()


def _import_family(name: str) -> None:
    """`ALE/Pong-v5` is registered by importing ale_py; likewise the other families."""
    import gymnasium

    module, _ = _FAMILIES.get(_family(name), ("", ""))
    if module and not _lacks_package(name) and name not in gymnasium.registry:
        logging.disable(logging.WARNING)  # MinAtar misses libraries that only its own pictures need
        family = importlib.import_module(module)
        logging.disable(logging.NOTSET)
        if hasattr(family, "register_envs"):
            family.register_envs()


def _family(name: str) -> str:
    """`ALE` of `ALE/Pong-v5`, `MiniGrid` of `MiniGrid-Empty-5x5-v0`."""
    return re.split("[/-]", name)[0]


def _lacks_package(name: str) -> bool:
    """True if the package that registers this id is not installed."""
    module, _ = _FAMILIES.get(_family(name), ("", ""))
    return bool(module) and importlib.util.find_spec(module.partition(".")[0]) is None


def _has_mujoco(name: str, args: Mapping[str, Any]) -> bool:
    """True if the batched MuJoCo env implements this task with these settings."""
    import gymnasium

    registered = gymnasium.registry.get(name)
    if registered is None or not str(registered.entry_point).startswith("gymnasium.envs.mujoco"):
        return False  # without importing our tasks
    from srl.envs.mujoco import plays

    return plays(name, args)


def _is_atari(name: str) -> bool:
    """True of the games that ale-py registers."""
    import gymnasium

    _import_family(name)
    registered = gymnasium.registry.get(name)
    return registered is not None and str(registered.entry_point).startswith("ale_py.")


def _is_parallel(found: Any, args: Mapping[str, Any]) -> bool:
    """True if a class or function makes PettingZoo ParallelEnvs. A function without a return annotation is called to find out."""
    kind = found if isinstance(found, type) else inspect.signature(found).return_annotation if callable(found) else None
    if isinstance(kind, str):
        return "ParallelEnv" in kind
    if kind is inspect.Signature.empty:
        env = found(**args)
        kind = type(env)
        env.close()
    return isinstance(kind, type) and any(base.__name__ in ("ParallelEnv", "AECEnv") for base in kind.__mro__)


def _is_parallel_module(name: str) -> bool:
    """`mpe2.simple_spread_v3`, `pettingzoo.butterfly.pistonball_v6`: a module, by its name alone."""
    package, _, module = name.partition(".")
    return bool(module) and (package in ("mpe2", "pettingzoo") or module.rpartition("_v")[2].isdigit())


def _unknown(name: str) -> SrlError:
    import gymnasium

    names = [*REGISTRIES["env"].names(), *gymnasium.registry]
    error = NotImportable(f"no env is called '{name}'")
    if _lacks_package(name):
        family = _family(name)
        return error.add("try", f"pip install {_FAMILIES[family][1]}, which registers the {family} envs")
    if _is_parallel_module(name):
        return error.add("try", f"env='{{use: pettingzoo, id: {name}}}'")
    if near := nearest(name, names):
        error.add("did you mean", f"{near}?")
    error.add("known", f"{', '.join(REGISTRIES['env'].names())}, and every gymnasium id")
    error.add("try", "a path such as my_pkg.envs:Make or path/to/file.py:Make, or import=my_pkg, which registers it")
    return error
