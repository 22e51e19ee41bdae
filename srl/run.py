"""One run of an experiment: checked, given a folder, started, waited for. Behind `srl.launch` and `python -m srl.launch`."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.core.errors import UserError
from srl.core.files import read_text
from srl.graph.build import graph_to_yaml
from srl.plan.prepare import Prepared, prepare
from srl.resume import check_fit, notes, nothing_left, requeued, resumable
from srl.store.run_folder import RunFolder

if TYPE_CHECKING:
    from srl.control.controller import Controller
    from srl.graph.spec import Graph
    from srl.launchers.base import Submitter
    from srl.observe.result import RunResult
    from srl.observe.sinks.base import Sink
    from srl.observe.sinks.console import Console

RUNS = "runs"
"""Where run folders are made."""


class Run:
    """A run: `wait` runs it in this thread, `start` in a thread of its own. Its workers have processes, unless `mode=inline`."""

    def __init__(self, graph: Graph, folder: Path, controller: Controller | None, result: RunResult | None = None) -> None:
        self.graph = graph
        self.folder = folder
        self.result = result
        """How the run ended; None until then."""
        self._controller = controller
        self._problem: BaseException | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = self.result.kind if self.result is not None else "running" if self._thread is not None else "not started"
        return f"<Run {self.folder}: {state}>"

    def start(self) -> Run:
        """Start without waiting."""
        if self._thread is None and self._controller is not None:
            self._thread = threading.Thread(target=self._run, name="srl-run", daemon=True)
            self._thread.start()
        return self

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait until the run has ended; Ctrl-C drains and saves. Raises the error that made it fail."""
        result = self.finish(timeout)
        if (problem := result.problem()) is not None:
            raise problem
        return result

    def finish(self, timeout: float | None = None) -> RunResult:
        """The same, but a run that failed is a result too."""
        if self._thread is None:
            self._run()  # in this thread: signals reach the controller
        else:
            try:
                self._thread.join(timeout)
            except KeyboardInterrupt:
                self.stop()
                self._thread.join()
        if self._problem is not None:
            raise self._problem
        if self.result is None:
            raise TimeoutError(f"the run did not finish within {timeout} s")
        return self.result

    def stop(self) -> Run:
        """Drain, save and end; a second call ends at once."""
        if self._controller is not None:
            self._controller.stop()
        return self

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl so far."""
        from srl.store.lines import read_numbers

        return list(read_numbers(self.folder / "metrics.jsonl"))

    def policy(self, which: str = "best") -> Any:
        """A policy of this run, to predict with."""
        from srl.loaded import load_run

        return load_run(self.folder).policy(which)

    def _run(self) -> None:
        if self._controller is None or self.result is not None:
            return
        try:
            self.result = self._controller.run()
        except BaseException as problem:
            self._problem = problem


def make_run(
    experiment: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    settings: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
    resume_or_start: str | None = None,
    runs: str | Path = RUNS,
    console: Console | None = None,
) -> Run:
    """Check everything, then make the run folder. What is refused leaves neither a folder nor a process behind.

    `resume_or_start`: the id of a run, resumed if there is one in `runs`, started under this id if not.
    """
    if resume_or_start is not None:
        if resume is not None:
            raise UserError("--resume and --resume-or-start exclude each other")
        name = prepare(experiment, overrides, settings=settings, inspect=False).graph.name
        resumed, overrides = requeued(RunFolder.path_of(runs, name, resume_or_start), overrides)
        experiment, settings = (None, None) if resumed is not None else (experiment, settings)
    else:
        resumed = resumable(resume)
    prepared = prepare_run(experiment, overrides, settings=settings, resumed=resumed)
    if resumed is not None and (result := nothing_left(resumed, prepared.graph)) is not None:
        if console is not None:
            console.end(result)
        return Run(prepared.graph, resumed.path, None, result)
    if prepared.graph.hosts:
        from srl.cluster.address import check_listen
        from srl.launchers.base import Submitter, launcher_of

        launcher = launcher_of(prepared.graph)
        if isinstance(launcher, Submitter):
            if resume is not None or resume_or_start is not None:
                use = prepared.graph.launcher.use
                raise UserError(
                    f"launcher {use} cannot resume a run from here: its folder is where home will be",
                    ("try", "launcher.name=NAME with the name of that run: it continues there"),
                    path=("launcher",),
                )
            return _submitted(prepared, launcher, Path(runs), console)
        check_listen(launcher.check())
    folder = write_down(prepared, overrides, resumed, runs, resume_or_start)
    try:
        from srl.control.controller import Controller
        from srl.launchers.backend import LaunchedBackend

        assert prepared.derived is not None
        sinks: list[Sink] = [] if console is None else [console]
        if prepared.experiment.dashboard:
            from srl.dashboard.sink import Dashboard

            sinks.append(Dashboard(folder))
            folder.write_status({**folder.read_status(), "dashboard": sinks[-1].address})
        gone = notes(resumed.path, prepared.graph) if resumed is not None else []
        controller = Controller(
            prepared.graph,
            derived=prepared.derived,
            folder=folder,
            resume=resumed.path if resumed is not None else None,
            sinks=sinks,
            backend=(lambda: LaunchedBackend(prepared.graph, folder.path)) if prepared.graph.hosts else None,
            plan=[*prepared.lines(), *(("note", text) for text in gone), ("run folder", str(folder.path))],
        )
        return Run(prepared.graph, folder.path, controller)
    except BaseException:  # Ctrl-C, a full disk: there is no run
        _discard(folder, resumed)
        raise


def _submitted(prepared: Prepared, launcher: Submitter, runs: Path, console: Console | None) -> Run:
    """Hand the run over to another system. Its folder is made there."""
    from srl.observe.result import RunResult

    launcher.check()
    if console is not None:
        console.begin(prepared.graph, prepared.lines())
    next_steps = launcher.submit(prepared.text_for(launcher.there))
    result = RunResult(kind="submitted", headline=launcher.name, summary=tuple(next_steps.items()))
    if console is not None:
        console.end(result)
    return Run(prepared.graph, runs, None, result)


def prepare_run(
    experiment: str | Path | None,
    overrides: Sequence[str],
    *,
    settings: Mapping[str, Any] | None = None,
    resumed: RunFolder | None = None,
    inspect: bool = True,
) -> Prepared:
    """The experiment, ready to start. A resume must also fit its checkpoint."""
    prepared = prepare(experiment, overrides, settings=settings, resume=resumed.path if resumed else None, inspect=inspect)
    if resumed is not None and prepared.derived is not None:
        check_fit(resumed.path, prepared.graph, prepared.derived, prepared.changes)
    return prepared


def write_down(
    prepared: Prepared, overrides: Sequence[str], resumed: RunFolder | None, runs: str | Path, run_id: str | None = None
) -> RunFolder:
    """The run folder with everything that repeats the run; a resumed run keeps its own."""
    folder = resumed or RunFolder.create(runs, prepared.graph.name, prepared.graph.seed, run_id=run_id)
    try:
        folder.hold()
        folder.write_text("config.yaml", prepared.config_text())
        folder.write_text("graph.yaml", graph_to_yaml(prepared.graph))
        before = {name: where for name, (_, where) in folder.read_settings().items()}
        folder.write_text(folder.settings.name, json.dumps(prepared.flat(before), indent=1))
        lines = list(overrides)
        if resumed is not None and folder.overrides.exists():
            lines = [*read_text(folder.overrides).splitlines(), "--resume", *lines]
        folder.write_text("overrides.txt", "".join(f"{line}\n" for line in lines))
        for change in prepared.changes:
            folder.append_event("changed", what=change)
    except BaseException:
        _discard(folder, resumed)
        raise
    return folder


def _discard(folder: RunFolder, resumed: RunFolder | None) -> None:
    folder.close()
    if resumed is None:
        shutil.rmtree(folder.path, ignore_errors=True)
