"""Viewers: the newest policy, acting at a human speed, for people to watch. Nothing waits for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from srl.core.load import option
from srl.core.machine import BELOW_ALL, usable_cores
from srl.core.types import Shown, Waiting
from srl.graph.spec import Graph
from srl.show.open import open_show
from srl.streams.param import ParamSubscriber
from srl.streams.peers import End
from srl.workers.base import Context, Port, Worker
from srl.workers.modest import Modest
from srl.workers.viewing import Viewing


@dataclass(frozen=True, kw_only=True)
class ViewerArgs(Shown):
    share: float = option(0.25, "largest part of one core that it may use", low=0.001, high=1)
    busy_share: float = option(0.015, "largest part of all cores that it may use while others want them", low=0.001, high=1)


class ViewerWorker(Worker):
    """Plays one env with the newest parameters of every policy, as long as someone watches."""

    ports = {"params": Port("param", "subscriber")}
    Args = ViewerArgs
    writes = True
    nice = BELOW_ALL
    noun = "viewer"
    advice = None
    drains = False
    args: ViewerArgs

    def __init__(self, args: ViewerArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        derived = context.derived
        only = next(iter(derived.policies))
        newest = {port.partition(":")[2] or only: cast(ParamSubscriber, end).latest for port, end in ends.items()}
        folder = context.folder / "videos" if context.folder is not None else None
        show = open_show(args.show, title=context.graph.name, port=args.port, films=folder, fps=args.fps or derived.env.fps)
        try:
            self._viewing = Viewing(
                context.graph, derived, newest, show, fps=args.fps, share=args.share, greedy=args.greedy, every=args.every
            )
        except BaseException:
            show.close()
            raise
        self._busy_share = min(args.share, args.busy_share * usable_cores())
        self._modest = Modest(self._busy_share)

    @classmethod
    def sizes(cls, args: ViewerArgs, port: str, graph: Graph) -> Mapping[str, int]:
        return {"quiet": 1}

    @classmethod
    def about(cls, args: ViewerArgs) -> str:
        """`a page, at most 0.25 cores`"""
        what = {"auto": "a window or a page", "window": "a window", "page": "a page", "film": "films"}[args.show]
        return f"{what}, at most {args.share:g} of a core"

    @property
    def address(self) -> str:
        return self._viewing.show.address

    def poll(self) -> int:
        """The next step and picture, if it is time for them."""
        self._modest.begin()
        if not (done := self._viewing.poll()):
            return 0
        self._modest.end()
        self._viewing.share = self.args.share if self._modest.alone else self._busy_share
        return done

    def wake_at(self) -> float | None:
        return None if self.context.inline else self._viewing.wake_at

    def waits(self) -> tuple[Waiting, ...]:
        return ()

    def metrics(self) -> Any:
        self.reading.gauge("viewer/episodes", self._viewing.facts.episode)
        return super().metrics()

    def close(self) -> None:
        self._viewing.close()
