"""Types shared by several rooms: components, policies, stop conditions, checkpoints, workers, ends of streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from srl.core.errors import SettingError
from srl.core.load import dump, option

OnFailure = Literal["stop", "restart", "leave"]
"""Stop the run, restart the process, or continue without it."""


@dataclass(frozen=True)
class Component:
    """`ppo`, or `{use: ppo, lr: 3e-4}`: an env, a policy, an algorithm by name, and its settings beside the name."""

    use: str
    """A registered name, `pkg.mod:Class` or `file.py:Class`."""
    args: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_plain(cls, data: Any) -> Component:
        """From what a file says; SettingError says what is wrong."""
        if isinstance(data, str):
            return cls(data)
        if not isinstance(data, Mapping) or not isinstance(data.get("use"), str):
            raise SettingError("", "must be a name, or a mapping with `use: name` and its settings")
        return cls(data["use"], {key: value for key, value in data.items() if key != "use"})

    def to_plain(self) -> str | dict[str, Any]:
        """The inverse of `from_plain`."""
        return {"use": self.use, **dump(self.args)} if self.args else self.use

    @property
    def flat(self) -> dict[str, Any]:
        """`{use: name, **args}`"""
        return {"use": self.use, **self.args}


@dataclass(frozen=True, kw_only=True)
class PolicyEntry:
    """One policy of the run."""

    policy: Component = option(Component("actor_critic"), "the network, or a policy without one")
    algorithm: Component | None = option(None, "the algorithm that trains it; null: it does not learn (frozen or scripted)")
    load: str | None = option(None, "run folder or checkpoint with the initial weights")
    fresh: tuple[str, ...] = option((), "patterns of layers that are not loaded")


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Stop conditions; the first one reached ends the run."""

    env_steps: int | None = option(None, "env steps trained on, independent of the number of agents", low=1)
    updates: int | None = option(None, "updates of the fastest trainer", low=1)
    seconds: float | None = option(None, "wall-clock time in seconds", low=0)
    episode_return: float | None = option(None, "mean return over the last 100 episodes", key="return")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Which checkpoints are kept. Intervals are in updates, so that inline runs do not depend on a clock."""

    every: int | Literal["auto"] = option(
        "auto", "updates between checkpoints; 0: only at the end; auto: 50, or 5,000 with a replay", low=0
    )
    keep: int = option(3, "number of checkpoints kept besides `best` and the archive", low=1)
    archive: int = option(
        0, "archive the policy of every n-th checkpoint permanently, for cross-play and as an opponent; 0: none", low=0
    )
    replay: bool = option(
        False, "save replays when the run ends, so that a resumed run need not fill them again; always so inline"
    )

    def interval(self, *, from_replay: bool) -> int:
        """Updates between the checkpoints of a trainer."""
        usual = 5_000 if from_replay else 50
        return usual if self.every == "auto" else self.every


@dataclass(frozen=True, kw_only=True)
class Matches:
    """What an evaluation plays, and when."""

    every: int = option(50_000, "env steps between evaluations", low=1)
    episodes: int = option(20, "episodes per match", low=1)
    greedy: bool = option(True, "play the most likely actions")
    sampled: bool = option(False, "also play with sampled actions, as training does")
    cross_play: bool = option(False, "each team also plays against the initial policies of the others")
    film_every: int = option(0, "number of evaluations per recorded video; 0: none", low=0)
    share: float = option(0.015, "largest part of busy cores that it may use; it also uses idle cores", low=0.001, high=1)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a viewer shows, and how."""

    show: Literal["auto", "window", "page", "film"] = option(
        "auto", "window, page (in a browser, on this host only) or film; auto: a window if there is a display, else a page"
    )
    fps: float | None = option(None, "steps a second; null: real time", low=0.1, high=1000)
    every: int = option(0, "env steps of training between two episodes; 0: play without a pause", low=0)
    greedy: bool = option(True, "play the most likely actions")
    port: int = option(0, "port of the page; 0: any free one", low=0, high=65535)

    def __post_init__(self) -> None:
        if self.show == "film" and not self.every:
            raise SettingError("every", "must be at least 1 with show: film", ("because", "films of every episode fill the disk"))


@dataclass(frozen=True, kw_only=True)
class PastVersions:
    """Which versions of a policy are kept, and which of them play."""

    choose: str = option(
        "uniform",
        "how to choose versions: uniform, latest-<n>, win_rate (prefers those that the learner beats least often), or my.py:Rule",
    )
    initial: float = option(0.0, "fraction of choices reserved for the initial version", low=0, high=1)
    power: float = option(2.0, "win_rate: a version is chosen in proportion to (1 - rate at which it is beaten) ** power", low=0)
    keep_every: int = option(10, "updates between kept versions", low=1)
    hold: int = option(4, "slabs played before the next choice; win_rate also waits until an episode has ended", low=1)


HOME = "home"
"""The host that a run is started on: where nodes are that name no other hosts."""
LOCAL = "local"
"""The launcher that starts nothing elsewhere."""
AUTO = "auto"
"""A component that is chosen for the machine."""


@dataclass(frozen=True, kw_only=True)
class HostGroup:
    """Hosts of one kind, besides the one that the run is started on. `workers.NODE.hosts: GROUP` places workers on them."""

    count: int | None = option(None, "number of hosts; null: as many as there are addresses, else 1", low=1, high=100_000)
    cores: int | None = option(None, "cores of each host that may be used; null: not checked", low=1)
    gpus: int = option(0, "GPUs of each host", low=0)
    memory: float | None = option(None, "GB of memory of each host; null: not checked", above=0)
    elastic: bool = option(False, "hosts may join late, leave and return; the run continues with those that are there")
    shared: bool | None = option(
        None, "whether its hosts see the run folder; null: found out by looking; false: files are sent to this machine"
    )
    addresses: tuple[str, ...] = option((), "names or addresses of the hosts, for launchers that do not find them by themselves")

    def __post_init__(self) -> None:
        if self.addresses and self.count not in (None, len(self.addresses)):
            raise SettingError(
                "count", f"must be the number of addresses ({len(self.addresses)}), not {self.count}", ("try", "leave count out")
            )

    @property
    def size(self) -> int:
        """The number of hosts."""
        return self.count or len(self.addresses) or 1


@dataclass(frozen=True, slots=True)
class WorkerId:
    """Which worker of which node, and how often it was started."""

    node: str
    index: int
    incarnation: int = 0

    @property
    def name(self) -> str:
        """`actor/0`"""
        return f"{self.node}/{self.index}"


FOREIGN = {"hostile": "not of this run", "stranger": "unknown peer", "handshake": "broken handshake"}
"""Reasons in `dropped` for what no peer had put: bytes that are no message, ends that are not attached (or too early), and
connections that broke before their handshake was over."""


SIDES = {
    "sample": ("producer", "consumer"),
    "infer": ("client", "server"),
    "param": ("publisher", "subscriber"),
    "sum": ("rank", "rank"),
}
"""Kind of stream -> its two sides."""


@dataclass(frozen=True, slots=True)
class BoundEnd:
    """One end of a stream, and where its peers reach it."""

    stream: str
    worker: str
    """`actor/0`"""
    port: str
    side: str
    address: Mapping[str, Any]
    slots: int = 0
    """Of a sample producer: how many slabs it has."""

    @property
    def name(self) -> str:
        """`samples.main:actor/0`"""
        return f"{self.stream}:{self.worker}"


@dataclass(slots=True)
class Counts:
    """Counters of an end. Added up over both ends, `put` = `taken` + in flight + the sum of `dropped` without FOREIGN."""

    put: int = 0
    taken: int = 0
    released: int = 0
    bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, number: int = 1) -> None:
        """Count dropped records."""
        self.dropped[reason] = self.dropped.get(reason, 0) + number

    def copy(self) -> Counts:
        """As they are now."""
        return replace(self, dropped=dict(self.dropped))

    def add(self, more: Counts) -> None:
        self.put += more.put
        self.taken += more.taken
        self.released += more.released
        self.bytes += more.bytes
        for reason, number in more.dropped.items():
            self.drop(reason, number)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a worker waits for, and from which workers."""

    what: str
    """`credit`, `free slot`, `slabs`, `answers`, `questions`, `parameters`, `newer parameters`, `past version`, `env steps`."""
    workers: tuple[str, ...] = ()
    """`node/index` of each; none: nothing that could give it is attached."""

    def __str__(self) -> str:
        return f"{self.what} from {', '.join(self.workers)}" if self.workers else f"{self.what}, from no worker that is attached"
