"""What people ask of a run while it is under way. Answers come from its folder, in which the run looks for the file `stop`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from srl.control.members import Members
from srl.core.errors import UserError
from srl.core.files import parse_json, read_file
from srl.core.load import meant
from srl.core.option import option
from srl.graph.placement import host_of
from srl.graph.spec import Graph
from srl.observe.totals import Totals
from srl.store.atomic import replace_file
from srl.store.run_folder import RunFolder

STOP, CONTROL = "stop", "control.json"
"""Files of a run that is under way. The last one has the address and the token by which other machines ask."""

MOST = 1 << 18
"""Bytes of a log in one answer."""
_PROCESSES = 200
"""The busiest ones are listed."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for."""

    what: Literal["status", "top", "logs", "log", "stop"] = option()
    log: str = option("", "the name of a log")
    begin: int = option(0, "where in the log; negative: before its end")
    now: bool = option(False, "stop without saving")


def answer(run: RunFolder, request: Request) -> dict[str, Any]:
    """The answer of a run, from its folder."""
    if request.what == "status":
        return {**run.read_facts(), "folder": str(run.path)}
    if request.what == "logs":
        return {name: _log_facts(path) for name, path in _logs(run).items()}
    if request.what == "log":
        return _part(run, request.log, request.begin)
    if run.state != "running":
        raise UserError(f"run {run.path} is not active", ("found", f"its state is {run.state}"))
    if request.what == "top":
        live = parse_json(run.live, read_file(run.live)) if run.live.is_file() else {}
        return {name: live[name] for name in ("screen", "hosts", "processes") if name in live}
    replace_file(run.path / STOP, "now" if request.now else "save")
    return {}


def asked_to_stop(folder: Path) -> str:
    """`save`, `now`, or empty if nobody has asked since the last call."""
    path = folder / STOP
    if not path.exists():
        return ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        how = path.read_text()
        path.unlink()
        return "now" if how == "now" else "save"
    return ""


def loads(graph: Graph, totals: Totals, members: Members) -> dict[str, Any]:
    """What hosts and processes use now."""
    rows: list[dict[str, Any]] = []
    for name, member in members.items():
        load = totals.load(name)
        row = {"process": name, "host": host_of(graph, member.owner.node, member.owner.index), "phase": member.phase}
        rows.append({**row, "cores": round(load.cores, 3), "rss": load.rss, "busy": round(load.busy, 3), "waits": load.waits})
    hosts: dict[str, list[Any]] = {}
    for row in rows:
        hosts.setdefault(row["host"], []).append(row)
    return {
        "hosts": [
            {
                "host": host,
                "processes": len(own),
                "running": sum(row["phase"] == "running" for row in own),
                "cores": sum(row["cores"] for row in own),
                "rss": sum(row["rss"] for row in own),
            }
            for host, own in hosts.items()
        ],
        "processes": sorted(rows, key=lambda row: -row["cores"])[:_PROCESSES],
    }


def forget(folder: Path) -> None:
    """Delete what only a run that is under way has."""
    for name in (STOP, CONTROL):
        (folder / name).unlink(missing_ok=True)


def _logs(run: RunFolder) -> dict[str, Path]:
    """Name of a worker, or of a file of the launcher -> its log."""
    found = {}
    for path in sorted(run.logs.glob("*.log")):
        node, _, index = path.stem.rpartition("-")
        found[f"{node}/{index}"] = path
    return found | {path.name: path for path in sorted((run.path / "launch").glob("*.out"))}


def _log_facts(path: Path) -> Mapping[str, Any]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
    return {"size": size, "last": next((line for line in reversed(lines) if line.strip()), "")[:500]}


def _part(run: RunFolder, name: str, begin: int) -> dict[str, Any]:
    logs = _logs(run)
    path = logs.get(name) or logs.get("/".join(name.rsplit("-", 1)))
    if path is None:
        raise UserError(
            f"the run has no log of '{name[:100]}'",
            *meant(name, list(logs)),
            ("logs", ", ".join(list(logs)[:20]) or "none"),
            ("because", "a process has one log, also for the workers inside it; a silent one has none on another host"),
        )
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(min(size, begin if begin >= 0 else max(0, size + begin)))
        at = file.tell()
        return {"begin": at, "size": size, "text": file.read(MOST).decode(errors="replace"), "end": file.tell()}
