"""Recorders write what passes through a sample stream to disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from srl.core.files import usable_path
from srl.core.load import option
from srl.graph.placement import members
from srl.replay.recording import About, Recording
from srl.streams.peers import End
from srl.streams.sample import Loan
from srl.workers.base import Context
from srl.workers.buffer import BufferArgs, BufferWorker


@dataclass(frozen=True, kw_only=True)
class RecordArgs(BufferArgs):
    folder: str = option(help="folder for the files; files of an earlier run are kept and new ones added")
    gigabytes: float = option(1.0, "maximum size of all files together; beyond it the oldest are deleted", above=0)


class RecordWorker(BufferWorker):
    """Passes slabs on as they are, and writes each once."""

    Args = RecordArgs
    noun = "recorder"
    args: RecordArgs

    def __init__(self, args: RecordArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        stream, folder = context.node.ports["source"], usable_path(args.folder)
        graph, info = context.graph, context.derived.policies[context.graph.stream(stream).policy]
        record = context.derived.streams[stream].record
        makers = [node for node, _, side in members(graph, stream) if side == "producer"]
        about = About(
            env="" if graph.env.args else graph.env.use,
            action=info.spec.action,
            bounds=info.bounds,
            record=record,
            groups=sum(node.count * getattr(node.loaded, "groups", 1) for node in makers),
        )
        self.recording = Recording(folder, record, limit=int(args.gigabytes * 1e9))
        about.write(folder)

    @classmethod
    def about(cls, args: BufferArgs) -> str:
        assert isinstance(args, RecordArgs)
        return f"writes slabs to {args.folder}, at most {args.gigabytes:g} GB"

    def drain(self) -> bool:
        done = super().drain()
        self.recording.flush()
        return done

    def _pass_on(self, loan: Loan) -> None:
        self.recording.put(cast("dict[str, Any]", loan.tree))
        self.reading.gauge("record/bytes", self.recording.written)
        super()._pass_on(loan)
