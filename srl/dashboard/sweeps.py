"""sweep.json, the table of a sweep: what it says of each of its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.core.files import parse_json, read_file
from srl.store.run_folder import SWEEP, RunFolder, sweep_of


def sweeps_of(runs: Mapping[str, RunFolder]) -> dict[Path, dict[str, Any]]:
    """The sweeps that these runs are of, by folder; of a damaged file, nothing."""
    places = dict.fromkeys(place for run in runs.values() if (place := sweep_of(run.path)) is not None)
    return {place: found for place in places if (found := _read(place / SWEEP))}


def entry(run: RunFolder, sweeps: Mapping[Path, Mapping[str, Any]]) -> dict[str, Any]:
    """What the sweep varied (`settings`), the `score`, and of successive halving the last `round`, counted from 1."""
    place = sweep_of(run.path)
    if place is None or place not in sweeps:
        return {}
    sweep, own = sweeps[place], str(run.path.absolute().relative_to(place))
    row = next((row for row in sweep["runs"] if row.get("folder") == own), None)
    if row is None:  # it has not ended yet
        return {}
    found: dict[str, Any] = {"settings": row["settings"]}
    score = row["figures"].get(sweep["metric"])
    if isinstance(score, int | float) and math.isfinite(score):
        found["score"] = score
    if isinstance(row.get("round"), int):
        found["round"] = row["round"] + 1
        if row.get("end") == "stopped early":
            found["state"] = row["end"]
    return found


def told(sweeps: Mapping[Path, Mapping[str, Any]], runs: Mapping[str, RunFolder]) -> dict[str, Any] | None:
    """What all runs have in common that are of one sweep: its `metric`, its `axes`, and how many runs were `refused`."""
    if len(sweeps) != 1 or any(sweep_of(run.path) not in sweeps for run in runs.values()):
        return None
    (sweep,) = sweeps.values()
    axes = [axis.partition("=")[0] for axis in sweep["axes"]]
    return {"metric": sweep["metric"], "axes": axes, "refused": sum(row.get("folder") is None for row in sweep["runs"])}


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parse_json(path, read_file(path))
    except UserError:
        return {}
    rows = found.get("runs")
    whole = isinstance(found.get("metric"), str) and isinstance(found.get("axes"), list) and isinstance(rows, list)
    if not whole or not all(isinstance(row, dict) and {"settings", "figures"} <= set(row) for row in rows or ()):
        return {}
    return found
