"""`srl status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from srl.cli.asking import ADDRESS, asking
from srl.cli.parsing import Parser
from srl.core.errors import UserError
from srl.core.text import aligned, clock_time, columns, figure
from srl.store.run_folder import RunFolder


def status(argv: list[str]) -> int:
    """One line per run, newest first; everything about a single run."""
    parser = Parser(
        prog="srl status", description="list the newest runs: state, env steps, mean return of the last 100 episodes, duration"
    )
    parser.add_argument(
        "folder", nargs="?", default="runs", help="a run folder, a folder with runs (default: runs), or a run's control.json"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help=ADDRESS)
    parser.add_argument("--all", action="store_true", help="show all runs, not only the newest ten")
    given = parser.parse_args(argv)
    root = Path(given.folder)
    if (root / "status.json").is_file() or root.is_file() or given.address is not None:
        facts = asking(given.folder, given.address)(what="status")
        if (control := root / "control.json").is_file():
            facts["control"] = f"{control}: srl status, stop, logs and top take a copy of it on any machine"
        print(aligned(_lines(facts)))
        return 0
    if not root.is_dir():
        raise UserError(f"{root} does not exist", ("try", "python -m srl.launch experiment=cartpole, which makes a run"))
    found = sorted(((_moment(run), run) for run in RunFolder.below(root)), key=lambda one: one[0], reverse=True)
    rows: list[tuple[str, ...]] = [("updated", "state", "env steps", "return", "duration", "folder")]
    rows += [_row(moment, run) for moment, run in (found if given.all else found[:10])]
    print(columns(rows, right=(2, 3, 4)) if found else f"no runs in {root}")
    if len(found) > len(rows) - 1:
        print(f"the newest 10 of {len(found)}: --all shows all")
    return 0


def _lines(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All that is known of one run, with the words of the list."""
    for key, value in facts.items():
        if key == "incarnation" or value in (None, "", {}):  # for restarts; nothing that a person could use
            continue
        yield _CALLED.get(key, key.replace("_", " ")), _WRITTEN.get(key, _plain)(value)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {_plain(one)}" for key, one in value.items())
    return str(value).lower() if isinstance(value, bool) else figure(value) if isinstance(value, float) else str(value)


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _row(moment: float, run: RunFolder) -> tuple[str, ...]:
    when = _date(moment) if moment else "?"
    try:
        facts = run.read_facts()
    except UserError as error:
        return when, "damaged", "", "", "", f"{error.headline}: {dict(error.facts).get('found', '')}"
    duration = clock_time(facts["seconds"]) if "seconds" in facts else ""
    return when, facts["state"], figure(facts.get("env_steps")), figure(facts.get("mean_return")), duration, str(run.path)


def _moment(run: RunFolder) -> float:
    """When the run last said how it stands; of a damaged one, when its file was written."""
    try:
        return float(run.read_status().get("updated", 0.0))
    except UserError:
        return run.status.lstat().st_mtime


_CALLED = {"mean_return": "return", "seconds": "duration"}
_WRITTEN: dict[str, Callable[[Any], str]] = {
    "created": _date,
    "updated": _date,
    "seconds": clock_time,
    "env_steps": figure,
    "mean_return": figure,
}
