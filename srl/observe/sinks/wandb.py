"""Weights & Biases: charts and evaluations over env steps. Without a network it keeps them in the run folder for `wandb sync`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from srl.core.errors import UserError
from srl.core.load import option
from srl.graph.spec import Graph
from srl.observe.report import Lines, Report
from srl.observe.result import RunResult
from srl.observe.sinks.base import Sink
from srl.observe.sinks.tensorboard import settings
from srl.store.run_folder import sweep_of


@dataclass(frozen=True, kw_only=True)
class WandBConfig:
    """What is not said here W&B takes from its own variables, such as WANDB_ENTITY and WANDB_MODE."""

    project: str | None = option(None, "name of the project; null: that of the experiment")
    entity: str | None = option(None, "user or team")
    group: str | None = option(None, "name that runs have in common; null: the folder of the sweep, if the run is part of one")
    mode: Literal["online", "offline"] | None = option(None, "offline: write to the run folder, for `wandb sync` later")
    tags: tuple[str, ...] = option((), "tags of the run")


class WandB(Sink):
    """A resumed run continues under the id that it had: the name of its folder."""

    Config: ClassVar[type] = WandBConfig

    def __init__(self, folder: Path, config: WandBConfig) -> None:
        self._folder, self._config = folder, config
        self._run: Any = None

    @classmethod
    def check(cls) -> None:
        try:
            from wandb import init  # noqa: F401  a folder wandb/ can be imported too
        except ImportError as error:
            hint = "pip install 'really-scalable-rl[wandb]'"
            raise UserError("sinks: wandb cannot work without the package wandb", ("cause", str(error)), ("try", hint)) from error

    def begin(self, graph: Graph, plan: Lines) -> None:
        import wandb

        config, sweep = self._config, sweep_of(self._folder)
        self._run = wandb.init(
            project=config.project or graph.name,
            entity=config.entity,
            group=config.group or (f"{sweep.parent.name} {sweep.name}" if sweep is not None else None),
            id=self._folder.name,
            name=self._folder.name,
            resume="allow",
            mode=config.mode,
            tags=config.tags,
            dir=self._folder,
            config=settings(graph),
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="env_steps")
        self.address = str(self._folder / "wandb") if self._run.offline else self._run.url or ""

    def report(self, report: Report) -> None:
        for one in report.evaluated:
            self._run.log({**one.values, "env_steps": one.env_steps})
        self._run.log({**report.charts, "env_steps": report.env_steps})

    def end(self, result: RunResult) -> None:
        if self._run is not None:
            self._run.summary["end"] = result.kind
            self._run.finish(exit_code=result.exit_code)
