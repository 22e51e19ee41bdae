"""Weights that a policy starts from: `load: RUN` in an experiment, found in the folder of another run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import Fact, UserError
from srl.core.files import usable_path
from srl.core.spec import Leaf, TreeSpec, check_layers, differing
from srl.core.tree import leaves
from srl.core.types import PolicyEntry
from srl.store import checkpoint
from srl.store.run_folder import RunFolder, newest

Policies = Mapping[str, PolicyEntry]

_APART = ("initial", "archive", "tags")
"""Folders beside the checkpoints of a run whose one policy learns."""


def checkpoint_folder(run: Path, policies: Policies, policy: str) -> Path:
    """`checkpoints`, or `checkpoints/<policy>` where several policies learn."""
    folder = run / "checkpoints"
    return folder / policy if sum(entry.algorithm is not None for entry in policies.values()) > 1 else folder


def archive_folder(run: Path, policies: Policies, policy: str) -> Path:
    return checkpoint_folder(run, policies, policy) / "archive"


def initial_folder(run: Path, policies: Policies, policy: str) -> Path:
    """The policy as it was before any update."""
    return checkpoint_folder(run, policies, policy) / "initial"


def tag_folder(run: Path, policies: Policies, policy: str, tag: str = "") -> Path:
    """Of one tag, or of all: each is a folder with the one version that it names."""
    return checkpoint_folder(run, policies, policy) / "tags" / tag


def tagged(run: Path, policies: Policies, policy: str) -> dict[str, Path]:
    """Tag -> the checkpoint that it names."""
    folders = sorted(path for path in tag_folder(run, policies, policy).glob("*") if path.is_dir())
    return {folder.name: path for folder in folders if (path := checkpoint.latest(folder)) is not None}


def tag(run: Path, policies: Policies, policy: str, name: str, path: Path) -> Path:
    """Keep the policy of a checkpoint under a name, for good. A name means one version for ever."""
    if not re.fullmatch(r"[A-Za-z][\w.-]{0,63}", name) or name in ("best", "latest", "initial") or name.startswith("step_"):
        raise UserError(
            f"'{name}' cannot be the name of a version", ("expected", "a letter, then letters, digits, dots, - and _")
        )
    folder = tag_folder(run, policies, policy, name)
    if (found := checkpoint.latest(folder)) is not None:
        raise UserError(
            f"there is a version '{name}' already", ("found", str(found)), ("try", f"another name, or rm -r {folder}")
        )
    saved = checkpoint.read(path)
    state = {key: saved.state[key] for key in ("env_steps", "updates") if key in saved.state}
    return checkpoint.write(folder, saved.step, {"policy": saved.groups["policy"]}, state)


def split_tag(load: str) -> tuple[str, str]:
    """`RUN@NAME` -> run and name; no name where there is none, or where a file is called so."""
    run, at, name = load.rpartition("@")
    return (run, name) if at and "/" not in name and not usable_path(load).exists() else (load, "")


def exact_run(load: str) -> str:
    """The run that `load` names now: of a folder of runs, the newest one with weights. Later it could be the new run itself."""
    load, name = split_tag(load)
    if name:
        return f"{exact_run(str(usable_path(load).resolve()))}@{name}"
    given = usable_path(load)
    if not given.is_dir() or checkpoint.latest(given) or any((given / one).is_file() for one in ("manifest.json", "graph.yaml")):
        return load
    runs = [run for run in RunFolder.below(given) if next(run.checkpoints.rglob("manifest.json"), None)]
    return str(newest(runs).path) if runs else load


def find_weights(load: str, policy: str) -> Path:
    """The checkpoint that `load` means: itself, the newest of a folder of them, or a run's best (else its latest).

    Of a run with several policies, the one of the same name. `RUN@NAME`: the version with this tag, or `latest`, `initial`.
    """
    load, version = split_tag(load)
    given = usable_path(load)
    if version:
        return _named(RunFolder.open(given).checkpoints, policy, version)
    if (given / "manifest.json").is_file():
        return given
    if not (given / "graph.yaml").is_file() and (path := checkpoint.latest(given)) is not None:
        return path
    run = RunFolder.open(given)
    if (found := _best(run.checkpoints)) is not None:
        return found
    trained = sorted(one.name for one in run.checkpoints.glob("*") if one.name not in _APART and _best(one) is not None)
    if not trained:
        raise UserError(f"policy '{policy}' cannot start from {run.path}: the run has no checkpoint")
    if policy not in trained:
        raise UserError(
            f"policy '{policy}' cannot start from {given}: the run trained no policy of this name",
            ("policies there", ", ".join(trained)),
            ("try", f"load: {given}/checkpoints/{trained[0]}"),
        )
    path = _best(run.checkpoints / policy)
    assert path is not None
    return path


def read_weights(load: str, policy: str, fresh: Iterable[str] = ()) -> dict[str, Any]:
    """The arrays of the policy by name, without those matched by `fresh`."""
    path = find_weights(load, policy)
    groups = checkpoint.read(path).groups
    if "policy" not in groups:
        raise UserError(f"{path} holds no policy", ("found", ", ".join(groups) or "nothing"))
    return _kept(groups["policy"], fresh)


def starting_weights(policies: Policies, policy: str, *, own: Iterable[Path | None] = ()) -> dict[str, Any] | None:
    """The weights that `load` names; None without it, and where one of the runs in `own` has a checkpoint to resume."""
    entry = policies[policy]
    runs = [run for run in own if run is not None]
    if entry.load is None or any(checkpoint.latest(checkpoint_folder(run, policies, policy)) for run in runs):
        return None
    return read_weights(entry.load, policy, entry.fresh)


def check_fresh(policies: Policies) -> None:
    """Layers can be fresh only where others are loaded, and where they are trained."""
    for name, entry in policies.items():
        if entry.fresh and (entry.load is None or entry.algorithm is None):
            raise UserError(
                f"policy '{name}' has fresh layers, but {'loads nothing' if entry.load is None else 'nothing trains it'}",
                ("try", "`load: RUN` and an algorithm next to `fresh`, or no `fresh`"),
                code="E10",
            )


def check_weights(policies: Policies, params: Mapping[str, TreeSpec], *, resumed: bool = False) -> None:
    """E09 if the weights to load do not fit; checked before anything starts. `params`: policy -> what it has."""
    for name, entry in policies.items():
        if entry.load is None or (resumed and entry.algorithm is not None):
            continue
        shapes = {key: np.shape(array) for key, array in read_weights(entry.load, name).items()}
        wanted = {key: leaf.shape for key, leaf in leaves(params[name])}
        unused = [each for each in entry.fresh if not any(fnmatchcase(key, each) for key in [*shapes, *wanted])]
        if unused:
            raise UserError(f"no layer of policy '{name}' is called '{unused[0]}'", ("layers", ", ".join(wanted)), code="E10")
        have, want = _kept(shapes, entry.fresh), _kept(wanted, entry.fresh)
        if not want:
            raise UserError(f"all layers of policy '{name}' are fresh: nothing is left to load", ("try", "no `load`"), code="E10")
        check_layers(
            f"the weights to load do not fit policy '{name}'",
            want,
            have,
            ("checkpoint", str(find_weights(entry.load, name))),
            ("try", "the settings under `policy:` and the env of the run that it comes from (its config.yaml)"),
            ("or", f"fresh: [{', '.join(differing(want, have))}], patterns of layers to initialise instead"),
        )


def check_checkpoint(path: Path, policy: str, params: TreeSpec, *facts: Fact) -> None:
    """E09 if the layers of a checkpoint are not those of the policy."""
    have = {name: Leaf(array.shape, array.dtype.name) for name, array in checkpoint.read(path).groups["policy"].items()}
    check_layers(f"the checkpoint does not fit policy '{policy}'", dict(leaves(params)), have, ("checkpoint", str(path)), *facts)


def _named(checkpoints: Path, policy: str, version: str) -> Path:
    """`best`, `latest`, `initial`, a step or a tag, of this policy where several learned."""
    place = checkpoints / policy if (checkpoints / policy).is_dir() else checkpoints
    latest = {"latest": place, "best": place / "best", "initial": place / "initial"}.get(version, place / "tags" / version)
    steps = [folder / version for folder in (place, place / "archive") if (folder / version / "manifest.json").is_file()]
    path = next(iter(steps), None) or checkpoint.latest(latest)
    if path is None:
        tags = sorted(one.name for one in (place / "tags").glob("*"))
        raise UserError(f"{checkpoints.parent} has no version '{version}'", ("tags", ", ".join(tags) or "none"))
    return path


def _best(folder: Path) -> Path | None:
    return checkpoint.best(folder) or checkpoint.latest(folder)


def _kept(layers: Mapping[str, Any], fresh: Iterable[str]) -> dict[str, Any]:
    patterns = tuple(fresh)
    return {key: one for key, one in layers.items() if not any(fnmatchcase(key, each) for each in patterns)}
