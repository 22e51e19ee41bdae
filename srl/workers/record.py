"""Recorders write what passes through a sample stream to disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from srl.core.files import usable_path
from srl.core.load import option
from srl.replay.recording import Recording
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
        record = context.derived.streams[context.node.ports["source"]].record
        self.recording = Recording(usable_path(args.folder), record, limit=int(args.gigabytes * 1e9))

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
