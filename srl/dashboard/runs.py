"""What the page is told of runs, read from their folders."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.core.files import parse_json, read_file
from srl.dashboard.sweeps import entry, sweeps_of, told
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder, newest, sweep_of

FILMS = {".mp4": "video/mp4", ".gif": "image/gif", ".png": "image/png"}
EVENTS = 300
"""Newest events that are shown."""
TAIL = 12
"""Last lines of a log that are shown."""
_READ = 1 << 14
"""Bytes at the end of a log that are looked at."""
_APART = ("seed", "name")
"""Settings in which runs of one group differ."""
LISTED = 5.0
"""Seconds for which a list of the runs below a folder is used."""


class Runs:
    """The runs below some folders, by id: the path of each below the folder that all are in."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = [Path(root).expanduser() for root in roots]
        self._found: dict[str, RunFolder] = {}
        self._looked = 0.0
        self._settings: dict[Path, tuple[int, dict[str, tuple[Any, str]]]] = {}

    def all(self, *, fresh: bool = False) -> dict[str, RunFolder]:
        """Every run by id, newest first."""
        now = time.monotonic()
        if fresh or not self._found or now - self._looked > LISTED:
            self._looked = now
            runs = {run.path.resolve(): run for root in self.roots for run in RunFolder.below(root)}
            ordered = sorted(runs.values(), key=lambda run: (run.created, run.path.name), reverse=True)
            self._found = {_id(run.path, self.roots): run for run in ordered}
        return self._found

    def get(self, name: str) -> RunFolder | None:
        """The run with this id."""
        return self._found.get(name) or self.all(fresh=True).get(name)

    def summaries(self) -> dict[str, Any]:
        """One entry for each run, with the settings in which they differ, and which runs to show first."""
        runs = self.all(fresh=True)
        settings = {name: self.settings(run) for name, run in runs.items()}
        varying = differing([{key: value for key, (value, _) in one.items()} for one in settings.values()])
        sweeps = sweeps_of(runs)
        entries = []
        for name, run in runs.items():
            own = {key: settings[name][key][0] for key in varying if key in settings[name]}
            swept = entry(run, sweeps)
            entries.append({**summary(run), **swept, "id": name, "settings": {**swept.get("settings", {}), **own}})
        varying = differing([one["settings"] for one in entries])
        return {"runs": entries, "varying": varying, "sweep": told(sweeps, runs), "shown": shown_first(runs, entries)}

    def settings(self, run: RunFolder) -> dict[str, tuple[Any, str]]:
        """Those in settings.json, read again when the file has changed."""
        try:
            changed = run.settings.stat().st_mtime_ns
            known = self._settings.get(run.settings)
            if known is None or known[0] != changed:
                known = self._settings[run.settings] = (changed, run.read_settings())
            return known[1]
        except (OSError, UserError):
            return {}

    def detail(self, name: str, run: RunFolder) -> dict[str, Any]:
        """Everything about one run but its curves."""
        return {
            "id": name,
            **moment(run),
            "settings": [[key, value, where] for key, (value, where) in self.settings(run).items()],
            "machine": machine(run),
            "folder": str(run.path),
        }


def moment(run: RunFolder) -> dict[str, Any]:
    """What changes while a run is under way."""
    live = read_live(run)
    return {"summary": summary(run), "live": live, "events": events(run), "films": films(run), "logs": logs(run, live)}


def summary(run: RunFolder) -> dict[str, Any]:
    """The newest figures of a run, of a damaged one what can be said."""
    try:
        status = run.read_facts()
    except UserError as error:
        status = {"state": f"damaged: {error.headline}"}
    known = ("experiment", "seed", "env_steps", "mean_return", "seconds", "created", "updated", "exit_code", "pid", "held")
    return {**{key: status[key] for key in known if key in status}, "state": status["state"], "folder": run.path.name}


def read_live(run: RunFolder) -> dict[str, Any]:
    """The newest report; empty before there is one."""
    try:
        return parse_json(run.live, read_file(run.live))
    except UserError:
        return {}


def events(run: RunFolder) -> list[dict[str, Any]]:
    """The newest events, oldest first."""
    try:
        return list(read_lines(run.events))[-EVENTS:]
    except UserError:
        return []


def films(run: RunFolder) -> list[dict[str, Any]]:
    """Films of evaluations, of the viewer and of `srl play`, newest first."""
    found = []
    for path in run.videos.glob("*") if run.videos.is_dir() else ():
        if path.suffix in FILMS and not path.name.startswith(".") and path.is_file() and not path.is_symlink():
            status = path.stat()
            steps = re.search(r"_(\d{9,})$", path.stem)
            at = int(steps[1]) if steps else None
            found.append({"name": path.name, "bytes": status.st_size, "time": status.st_mtime, "env_steps": at})
    return sorted(found, key=lambda film: (film["time"], film["name"]), reverse=True)


def logs(run: RunFolder, live: dict[str, Any]) -> dict[str, list[str]]:
    """Process -> the last lines of its log."""
    processes = dict.fromkeys(member["process"] for member in live.get("members", ()))
    found = {}
    for process in processes:
        node, _, index = process.partition("/")
        if index.isdigit() and (lines := tail(run.log(node, int(index)))):
            found[process] = lines
    return found


def tail(path: Path) -> list[str]:
    """The last lines of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _READ))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line[:400] for line in text.splitlines()[-TAIL:]]


def machine(run: RunFolder) -> list[list[str]]:
    """Versions and hardware, as env.txt has them."""
    try:
        lines = read_file(run.env).decode(errors="replace").splitlines()
    except UserError:
        return []
    return [[label, text] for label, colon, text in (line.partition(": ") for line in lines) if colon]


def differing(many: list[dict[str, Any]]) -> list[str]:
    """Names of the settings that not all have with the same value."""
    names = dict.fromkeys(name for one in many for name in one)
    missing = object()
    return [
        name for name in names if len({json.dumps(one.get(name), default=repr) if name in one else missing for one in many}) > 1
    ]


def shown_first(runs: dict[str, RunFolder], entries: list[dict[str, Any]]) -> list[str]:
    """The runs that a page opens with: those of a sweep together, the best first; else the newest."""
    if not runs:
        return []
    first = newest(runs.values())
    if (sweep := sweep_of(first.path)) is None:
        return [name for name, run in runs.items() if run is first]
    together = [one for one in entries if sweep_of(runs[one["id"]].path) == sweep]
    together.sort(key=lambda one: (-one.get("round", 0), -one.get("score", -math.inf)))
    return [one["id"] for one in together[:10]]


def _id(path: Path, roots: list[Path]) -> str:
    """What names a run in the address of a page: its path below the root, or its name."""
    for root in roots:
        if path != root and path.is_relative_to(root):
            return str(path.relative_to(root))
    return path.name
