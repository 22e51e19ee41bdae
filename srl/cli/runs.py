"""One run, started from the command line or from Python: prepared, shown, written down, run, waited for."""

from __future__ import annotations

import argparse
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.core.errors import SrlError, UserError
from srl.plan.prepare import Prepared, prepare

if TYPE_CHECKING:
    from srl.control.controller import Controller
    from srl.graph.spec import Graph
    from srl.observe.console import Console
    from srl.observe.result import RunResult
    from srl.plan.specs import Derived
    from srl.store.run_folder import RunFolder


def command(experiment: str | None, overrides: Sequence[str], given: argparse.Namespace) -> int:
    """`python -m srl.launch`; its exit code."""
    show_only = given.print_config or given.dry_run
    resumed = _run_folder(given.resume, look_only=show_only)
    look = not given.print_config and (resumed is not None or given.dry_run)
    prepared = _prepared(experiment, overrides, {}, resumed, look=look)
    if given.print_config:
        print(prepared.config_text(provenance=True), end="")
        return 0
    console = _console(given.quiet and not show_only)
    if prepared.derived is None and not _looks_late(prepared):
        prepared = prepared.looked()
    if prepared.derived is not None:
        console.plan(prepared.lines())
    if given.dry_run:
        return 0
    if text := _nothing_left(prepared, resumed):
        print(f"{text}\ntry: a larger `stop`, such as stop.env_steps=1_000_000")
        return 0
    folder = write_down(prepared, overrides, resumed, given.runs)
    try:
        console.message(f"run folder {folder.path}")
        return _controller(prepared, folder, resumed, console).run().exit_code
    except KeyboardInterrupt:  # before the controller listens, which is when it begins
        _interrupted(folder, console)
        raise
    except SrlError:  # refused before anything began
        if resumed is None:
            shutil.rmtree(folder.path)
        raise
    finally:
        folder.close()


class Run:
    """A run that goes on in a thread of this process (its workers in processes of their own, unless mode is inline)."""

    def __init__(self, graph: Graph, folder: Path, controller: Controller | None, result: RunResult | None = None) -> None:
        self.folder = folder
        self.graph = graph
        self.result = result
        self._controller = controller
        self._problem: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> Run:
        """Begin, without waiting."""
        if self._controller is None:
            return self
        self._thread = threading.Thread(target=self._run, name="srl-run", daemon=True)
        self._thread.start()
        return self

    def wait(self, timeout: float | None = None) -> RunResult:
        """Until the run has ended; Ctrl-C drains it and saves. Raises what made it fail."""
        if self._thread is None:
            self._run()  # in this thread: signals reach the controller
        else:
            self._join(timeout)
        if self._problem is not None:
            raise self._problem
        if self.result is None:
            raise TimeoutError(f"the run still goes on after {timeout} s")
        problem = self.result.problem()
        if problem is not None:
            raise problem
        return self.result

    def stop(self) -> Run:
        """Drain, save and end; a second call ends at once."""
        if self._controller is not None:
            self._controller.stop()
        return self

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl so far."""
        from srl.store.lines import read_lines

        return list(read_lines(self.folder / "metrics.jsonl"))

    def policy(self, which: str = "best") -> Any:
        """A policy of this run, to predict with."""
        from srl.loaded import load_run

        return load_run(self.folder).policy(which)

    def _run(self) -> None:
        if self._controller is None:
            return
        try:
            self.result = self._controller.run()
        except BaseException as problem:
            self._problem = problem

    def _join(self, timeout: float | None) -> None:
        assert self._thread is not None
        try:
            self._thread.join(timeout)
        except KeyboardInterrupt:
            self.stop()
            self._thread.join()


def start(
    experiment: str | Path | None,
    overrides: Sequence[str],
    *,
    settings: Mapping[str, Any],
    resume: str | Path | None,
    runs: str | Path,
    quiet: bool,
) -> Run:
    """Prepare a run and write it down. It begins with `wait`, or with `start`."""
    resumed = _run_folder(resume)
    prepared = _prepared(experiment, overrides, settings, resumed)
    if resumed is not None and (text := _nothing_left(prepared, resumed)):
        return Run(prepared.graph, resumed.path, None, _nothing_done(text, resumed))
    folder = write_down(prepared, overrides, resumed, runs)
    if not quiet:
        _console(quiet).plan(prepared.lines())
    try:
        return Run(prepared.graph, folder.path, _controller(prepared, folder, resumed, _console(quiet)))
    except BaseException:
        folder.close()
        raise


def _prepared(
    experiment: str | Path | None,
    overrides: Sequence[str],
    settings: Mapping[str, Any],
    resumed: RunFolder | None,
    *,
    look: bool = True,
) -> Prepared:
    prepared = prepare(experiment, overrides, settings=settings, resume=resumed.path if resumed else None, look=look)
    if resumed is not None and prepared.derived is not None:
        from srl.cli.fit import check_fit

        check_fit(resumed.path, prepared.graph, prepared.derived, prepared.changes)
    return prepared


def write_down(prepared: Prepared, overrides: Sequence[str], resumed: RunFolder | None, runs: str | Path) -> RunFolder:
    """The run folder with everything that repeats the run; a resumed run goes on in its own."""
    from srl.store.run_folder import RunFolder

    folder = resumed or RunFolder.create(runs, prepared.graph.name, prepared.graph.seed)
    try:
        _write_down(folder, prepared, overrides, resumed)
    except BaseException:  # Ctrl-C, a full disk: there is no run
        folder.close()
        if resumed is None:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    return folder


def _write_down(folder: RunFolder, prepared: Prepared, overrides: Sequence[str], resumed: RunFolder | None) -> None:
    folder.hold()
    folder.write_text("config.yaml", prepared.config_text())
    folder.write_text("graph.yaml", prepared.graph_text())
    lines = list(overrides)
    if resumed is not None and folder.overrides.exists():
        lines = [*folder.overrides.read_text().splitlines(), "--resume", *lines]
    folder.write_text("overrides.txt", "".join(f"{line}\n" for line in lines))
    folder.write_seeds({"root": prepared.graph.seed})
    for change in prepared.changes:
        folder.append_event("changed", what=change)


def _controller(prepared: Prepared, folder: RunFolder, resumed: RunFolder | None, console: Console) -> Controller:
    from srl.control.controller import Controller

    return Controller(
        prepared.graph,
        folder=folder,
        resume=resumed.path if resumed else None,
        console=console,
        derived=prepared.derived or (lambda: _looked(prepared, console)),
    )


def _interrupted(folder: RunFolder, console: Console) -> None:
    """The result of a run that ended before it began; one that is resumed stands as it stood."""
    from srl.observe.result import EXIT_CODES, RunResult

    result = RunResult(kind="interrupted", headline="before anything began", run=str(folder.path))
    if folder.read_status().get("state") in ("created", "running"):
        folder.write_status({**folder.read_status(), "state": result.kind, "exit_code": EXIT_CODES[result.kind]})
    console.finish(None, result.format())


def _looks_late(prepared: Prepared) -> bool:
    """Whether the look at env and policies takes long and processes can start meanwhile."""
    from srl.plan.remembered import is_remembered

    return prepared.graph.mode != "inline" and not is_remembered(prepared.graph)


def _looked(prepared: Prepared, console: Console) -> Derived:
    """The look, while the processes start; then the plan can be shown."""
    done = prepared.looked()
    console.plan(done.lines())
    assert done.derived is not None
    return done.derived


def _nothing_left(prepared: Prepared, resumed: RunFolder | None) -> str:
    """Why a resume has nothing to do; empty if it has."""
    if resumed is None:
        return ""
    from srl.cli.fit import nothing_left

    return nothing_left(resumed.path, prepared.graph)


def _nothing_done(text: str, resumed: RunFolder) -> RunResult:
    from srl.observe.result import RunResult

    return RunResult(kind="done", headline=text, run=str(resumed.path))


def _console(quiet: bool) -> Console:
    from srl.observe.console import Console

    return Console(quiet=quiet)


def _run_folder(path: str | Path | None, *, look_only: bool = False) -> RunFolder | None:
    if path is None:
        return None
    from srl.store.run_folder import RunFolder

    folder = RunFolder.open(path)
    if not folder.config.is_file():
        raise UserError(f"{folder.path} cannot be resumed: it has no config.yaml")
    if not look_only:
        folder.refuse_if_live()
    return folder
