"""The folder of one run: `runs/<experiment>/<time>_s<seed>_<id>/`. Readable by its owner only."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from srl.core.errors import UserError
from srl.core.files import bad_file, parse_json, read_file, read_json, read_text, refuse_irregular, usable_path
from srl.core.machine import version_of
from srl.core.option import option
from srl.store.atomic import replace_file
from srl.store.checkpoint import to_json
from srl.store.lines import LineFile

LOCK = "lock"
"""The file that the process which writes to a run folder holds."""

_TRIES, _PAUSE = 5, 0.02

_PACKAGES = (
    *("really-scalable-rl", "numpy", "torch", "gymnasium", "pyzmq", "msgpack", "pyyaml", "grpcio", "safetensors", "rich"),
    *("mujoco", "pettingzoo", "ale-py", "envpool"),
)


@dataclass(frozen=True, kw_only=True)
class Status:
    """The known keys of status.json; others are allowed."""

    state: str = "unknown"
    experiment: str = ""
    created: float = option(0.0, low=0, high=1e10)
    updated: float = option(0.0, low=0, high=1e10)
    pid: int | None = option(None, low=0)
    seed: int | None = option(None, low=0)
    incarnation: int = option(0, low=0)
    env_steps: int = option(0, low=0)
    exit_code: int | None = None
    checkpoint: str = ""
    reached: Any = None
    mean_return: float | None = None
    """Over the last 100 episodes, or as many as there were."""
    seconds: float = option(0.0, low=0)
    """Of all sessions together."""
    viewer: str = ""
    """Where a person finds the viewer of a run that is under way."""
    dashboard: str = ""
    """Where a person finds its dashboard."""
    solved: float | None = None
    """The mean return with which the run ended by `stop.return`."""


class RunFolder:
    """The paths of a run's files. Small files are replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.graph = path / "config.yaml", path / "graph.yaml"
        self.overrides, self.env = path / "overrides.txt", path / "env.txt"
        self.status, self.eval = path / "status.json", path / "eval.csv"
        self.params = path / "params.json"
        self.live, self.settings = path / "live.json", path / "settings.json"
        self.metrics, self.events = path / "metrics.jsonl", path / "events.jsonl"
        self.logs, self.tb, self.videos = path / "logs", path / "tb", path / "videos"
        self.checkpoints = path / "checkpoints"
        self._events: LineFile | None = None
        self._lock: IO[bytes] | None = None

    @classmethod
    def create(cls, root: str | Path, experiment: str, seed: int, *, run_id: str | None = None) -> RunFolder:
        """Make the folder of a new run. Its name is made of time and seed, or is `run_id`."""
        path = cls.path_of(root, experiment, run_id or f"{time.strftime('%Y%m%d-%H%M%S')}_s{seed}_{secrets.token_hex(3)}")
        parent = path.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        except OSError as error:
            raise UserError(
                f"the folder of the run cannot be made in {root}",
                ("found", f"{error.strerror}: {error.filename}"),
                ("expected", "a folder that you may write to, or that can be made"),
                ("try", "--runs DIR"),
            ) from error
        run = cls(path)
        try:
            for name in ("logs", "tb", "videos", "checkpoints"):
                (path / name).mkdir()
            run.write_status({"state": "created", "experiment": experiment, "seed": seed})
            run.write_env()
        except BaseException:  # Ctrl-C, a full disk: there is no run
            shutil.rmtree(path, ignore_errors=True)
            raise
        return run

    @staticmethod
    def path_of(root: str | Path, experiment: str, run_id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", run_id):
            raise UserError(f"'{run_id}' cannot be the id of a run", ("expected", "letters, digits, dots, - and _"))
        return Path(root) / re.sub(r"[^A-Za-z0-9._-]+", "-", experiment).strip("-.") / run_id

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The run at `path`; of a folder of runs (or of experiments) the newest one."""
        given = usable_path(path)
        if (given / "status.json").is_file():
            return cls(given)
        if not (runs := cls.below(given)):
            what = "holds no run (no status.json in it or below)" if given.is_dir() else "does not exist"
            raise UserError(f"{given} {what}", ("expected", "a run folder such as runs/cartpole/20250131-120000_s1_a1b2c3"))
        return newest(runs)

    @classmethod
    def below(cls, root: Path) -> list[RunFolder]:
        """Every run below a folder, at any depth."""
        found = []
        for place, folders, files in os.walk(root):
            if "status.json" in files:
                found.append(cls(Path(place)))
                folders.clear()  # a run holds no other
            folders[:] = [name for name in folders if not name.startswith(".")]
        return found

    def hold(self) -> None:
        """Lock the folder until `close` or the end of this process. E16 if another process holds the lock."""
        if self._lock is not None:
            return
        file = self._open_lock("ab")
        for _ in range(_TRIES):  # `is_live` of another process holds it for an instant
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE)
            else:
                self._lock = file
                return
        file.close()
        raise self._is_live()

    def refuse_if_live(self) -> None:
        if self.is_live:
            raise self._is_live()

    @property
    def is_live(self) -> bool:
        """Whether a process holds the lock."""
        if not os.path.lexists(self.path / LOCK):
            return False
        file = self._open_lock("rb")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def state(self) -> str:
        """The state of the run: the last one written, or `died` if that is `running` and no process holds the lock."""
        return str(self.read_facts()["state"])

    def read_facts(self) -> dict[str, Any]:
        """The contents of status.json, with the state of the run now."""
        facts = self.read_status()
        if facts.get("state") == "running" and not self.is_live:
            facts = self.read_status()  # it may have ended between the two questions
            if facts["state"] == "running":
                facts["state"] = "died"
        return {"state": "unknown", **facts}

    def log(self, role: str, index: int) -> Path:
        """The log file of one worker: `logs/actor-7.log`."""
        return self.logs / f"{role}-{index}.log"

    def write_text(self, name: str, text: str) -> None:
        """Replace a small text file (config.yaml, graph.yaml, overrides.txt) atomically."""
        replace_file(self.path / name, text)

    def write_env(self) -> None:
        """Write env.txt: current folder, versions, git, machine. Nothing secret: no environment variables, no remotes."""
        facts = {"folder": str(Path.cwd()), **describe_machine()}
        replace_file(self.env, "".join(f"{name}: {value}\n" for name, value in facts.items()))

    def import_as_launched(self) -> None:
        """Make the modules of the folder that the run was launched in importable."""
        lines = read_text(self.env).splitlines() if self.env.is_file() else []
        folder = next((line.removeprefix("folder: ") for line in lines if line.startswith("folder: ")), "")
        if folder and folder not in sys.path and Path(folder).is_dir():
            sys.path.append(folder)

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace status.json atomically. `created` stays, `updated` is now."""
        now = time.time()
        created = self.read_status().get("created", now)
        replace_file(self.status, to_json({**status, "created": created, "updated": now}))

    def read_settings(self) -> dict[str, tuple[Any, str]]:
        """Every setting of the run by its dotted name: its value, and where it came from."""
        if not os.path.lexists(self.settings):
            return {}
        found = parse_json(self.settings, read_file(self.settings))
        return {name: (pair[0], str(pair[1])) for name, pair in found.items() if isinstance(pair, list) and len(pair) == 2}

    def read_status(self) -> dict[str, Any]:
        """The contents of status.json; empty without one."""
        return read_json(self.status, Status)[1] if os.path.lexists(self.status) else {}

    @property
    def created(self) -> float:
        """When the run began; 0 if status.json cannot be read."""
        try:
            return float(self.read_status().get("created", 0.0))
        except UserError:
            return 0.0

    def append_event(self, kind: str, **fields: Any) -> None:
        """One line in events.jsonl: started, attached, died, restarted, checkpoint, advice, stopped ..."""
        if self._events is None:
            self._events = LineFile(self.events)
        self._events.append({"time": time.time(), "event": kind, **fields})

    def append_eval(self, row: Mapping[str, object]) -> None:
        """Append a row to eval.csv. A new column is empty in earlier rows."""
        rows = [*self.read_eval(), {name: str(value) for name, value in row.items()}]
        columns = list(dict.fromkeys(name for each in rows for name in each))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        replace_file(self.eval, text.getvalue())

    def read_eval(self) -> list[dict[str, str]]:
        if not os.path.lexists(self.eval):
            return []
        try:
            rows = list(csv.DictReader(io.StringIO(read_text(self.eval)), restval="", restkey=""))
        except csv.Error as error:
            raise bad_file(self.eval, str(error), "a table of commas and lines") from error
        return [{name: value for name, value in row.items() if name} for row in rows]

    def sweep(self) -> None:
        """Delete incomplete checkpoints of writers that are gone."""
        for path in self.checkpoints.rglob(".tmp-*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files and release the lock. Idempotent."""
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _open_lock(self, mode: str) -> IO[bytes]:
        path = self.path / LOCK
        refuse_irregular(path)
        try:
            return cast(IO[bytes], path.open(mode))
        except OSError as error:
            raise bad_file(path, error.strerror or str(error)) from error

    def _is_live(self) -> UserError:
        pid = self.read_status().get("pid")
        return UserError(
            f"run {self.path} is still active{f' (process {pid})' if pid else ''}",
            ("found", f"{self.path / LOCK} is locked"),
            ("try", f"`srl stop {self.path}`, which saves and ends it, or start a new run without --resume"),
            code="E16",
        )


def newest(runs: Iterable[RunFolder]) -> RunFolder:
    return max(runs, key=lambda run: (run.created, run.path.name))


def describe_machine() -> dict[str, str]:
    """Versions, git commits and hardware, as text. Nothing is imported for it."""
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "host": platform.node(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "git srl": "installed" if "site-packages" in __file__ else _git(Path(__file__).parent),
        "git here": _git(Path.cwd()),
        "program": Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "",
    }
    return facts | {package: version for package in _PACKAGES if (version := version_of(package))}


def _git(folder: Path) -> str:
    """Commit of the repository around `folder`, with a mark if files differ from it."""
    ask = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return answer.stdout.strip() if answer.returncode == 0 else "no repository"


SWEEP = "sweep.json"
"""In the folder of a sweep: one row for each run, with its settings and figures."""


def sweep_of(run: Path) -> Path | None:
    """The folder of the sweep that a run is part of."""
    return next((folder for folder in run.absolute().parents[:4] if (folder / SWEEP).is_file()), None)
