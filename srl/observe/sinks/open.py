"""The sinks of a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.core.registry import REGISTRIES
from srl.graph.spec import Graph
from srl.observe.sinks.base import Sink
from srl.observe.sinks.jsonl import JsonLines
from srl.observe.sinks.tensorboard import TensorBoard
from srl.store.run_folder import RunFolder


def open_sinks(graph: Graph, folder: RunFolder, earlier: Mapping[str, Any]) -> list[Sink]:
    """metrics.jsonl, TensorBoard, and those that the experiment names. `earlier`: the status of the run that is resumed."""
    resume_at = int(earlier["env_steps"]) if "env_steps" in earlier else None
    sinks: list[Sink] = [JsonLines(folder), TensorBoard(folder, resume_at=resume_at)]
    for name in graph.sinks:
        kind: Any = REGISTRIES["sink"].resolve(name)
        sinks.append(kind(Path(folder.path)))
    return sinks
