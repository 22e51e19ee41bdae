"""Whether a run can be resumed: its folder, whether the checkpoint fits, and whether `stop` asks for more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from srl.core.errors import UserError
from srl.core.files import read_text
from srl.graph.spec import Graph
from srl.observe.result import RunResult
from srl.plan.specs import Derived
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.store.weights import check_checkpoint, checkpoint_folder


def resumable(path: str | Path | None, *, read_only: bool = False) -> RunFolder | None:
    """The folder of a run to resume. Unless it is only read, no other process may be running it."""
    if path is None:
        return None
    folder = RunFolder.open(path)
    if not folder.config.is_file():
        raise UserError(f"{folder.path} cannot be resumed: it has no config.yaml")
    if not read_only:
        folder.refuse_if_live()
    folder.import_as_launched()
    return folder


def requeued(path: Path, overrides: Sequence[str]) -> tuple[RunFolder | None, Sequence[str]]:
    """What `--resume-or-start` finds at `path`: the run to resume, and the overrides that are new to it.

    A run that was ended before its first checkpoint is moved aside and starts again.
    """
    folder = RunFolder(path)
    if not folder.config.is_file():
        return None, overrides
    folder.refuse_if_live()
    if all(
        {"initial", "archive"} & set(found.relative_to(folder.checkpoints).parts)
        for found in folder.checkpoints.rglob("manifest.json")
    ):
        path.rename(path.with_name(f"{path.name}_no_checkpoint_{time.strftime('%Y%m%d-%H%M%S')}"))
        return None, overrides
    words = read_text(folder.overrides).splitlines() if folder.overrides.is_file() else []
    folder.import_as_launched()
    return folder, [word for word in overrides if word not in words]


def check_fit(run: Path, graph: Graph, derived: Derived, changes: Sequence[str]) -> None:
    """E09 names the layer that differs, and the setting that changed it."""
    for name in graph.learning:
        path = checkpoint.latest(checkpoint_folder(run, graph.policies, name))
        if path is None:
            raise UserError(f"{run} has no checkpoint to resume from", ("try", "start a new run, without --resume"))
        changed = [("changed", text) for text in changes if text.startswith(("policy", "env", "policies"))]
        hint = ("try", "undo that setting, or start a new run without --resume")
        check_checkpoint(path, name, derived.policies[name].params, *changed, hint)


def notes(run: Path, graph: Graph) -> list[str]:
    """What of the run is gone: replays that were not saved."""
    if graph.mode == "inline":
        return []
    found = []
    for node in graph.nodes:
        if node.worker == "replay" and not all(
            (run / "replays" / f"{node.name}_{index}").is_dir() for index in range(node.count)
        ):
            warmup = node.loaded.warmup
            found.append(
                f"'{node.name}' is empty after a resume: no update before {warmup:,} env steps have come in"
                " (checkpoint.replay=true keeps its rows)"
            )
    return found


def nothing_left(folder: RunFolder, graph: Graph) -> RunResult | None:
    """The result of a resume that has nothing to do, because the run already fulfils its `stop`; None if it has."""
    folders = [checkpoint_folder(folder.path, graph.policies, name) for name in graph.learning]
    paths = [path for place in folders if (path := checkpoint.latest(place)) is not None]
    if not folders or len(paths) < len(folders):
        return None
    states = [checkpoint.read(path).state for path in paths]
    steps, updates = (min(int(state.get(name, 0)) for state in states) for name in ("env_steps", "updates"))
    solved, stop = folder.read_status().get("solved"), graph.stop
    if stop.env_steps is not None and steps >= stop.env_steps:
        why, hint = f"has {steps:,} env steps, and stop.env_steps={stop.env_steps}", "a larger stop.env_steps"
    elif stop.updates is not None and updates >= stop.updates:
        why, hint = f"has {updates:,} updates, and stop.updates={stop.updates}", "a larger stop.updates"
    elif solved is not None and stop.episode_return is not None and solved >= stop.episode_return:
        why = f"ended with a mean return of {solved:.1f}, and stop.return={stop.episode_return:g}"
        hint = "stop.return=null to train on until another limit of `stop`, or a higher stop.return"
    else:
        return None
    return RunResult(kind="done", headline=f"nothing to do: {folder.path} {why}", run=str(folder.path), summary=(("try", hint),))
