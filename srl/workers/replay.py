"""Replays keep the newest rows of actors and draw batches from them, at a rate that the limiter holds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from srl.api.actions import recorded_action
from srl.core.errors import UserError, about
from srl.core.files import usable_path
from srl.core.learner import copies_ahead
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.core.seeds import from_words, generator, to_words, word
from srl.core.spec import TreeSpec
from srl.core.tree import Tree, build, leaves
from srl.graph.placement import feeds, members
from srl.graph.spec import Graph, Node
from srl.plan.specs import Derived
from srl.replay import saved
from srl.replay.dataset import data_bytes, load_dataset
from srl.replay.limiter import Limiter
from srl.replay.mixture import Mixture
from srl.replay.store import Store, batch_record, store_bytes
from srl.streams.peers import End
from srl.streams.sample import Loan, SampleConsumer, SampleProducer, Slab
from srl.workers.base import Context, Port, Resumable, Worker

_FEEDBACK = 2
"""Records of feedback that a trainer may send ahead."""


@dataclass(frozen=True, kw_only=True)
class ReplayArgs:
    policy: str = "main"
    size: int = option(1_000_000, "rows kept, of all envs, agents and workers of this node together", low=1)
    batch: int = option(256, "rows in a batch, or sequences", low=1)
    warmup: int = option(1000, "env steps before the first batch is drawn", low=0)
    updates_per_step: float = option(1.0, "updates for every env step", above=0)
    ahead: int = option(64, "env steps that actors may be ahead of the updates", low=1)
    alpha: float = option(0.6, "with priorities: rows are drawn in proportion to priority ** alpha", low=0, high=1)
    beta: Schedule = option(
        Schedule(0.4), "with priorities: how much importance weights correct for them; 0: not at all, 1: fully", low=0, high=1
    )
    history: tuple[str, ...] = option((), "observations that are stacks of frames, kept as single frames")
    data: str | None = option(
        None, "recorded rows (.npz files), saved replays (RUN/replays) or minari:NAME, from which part of every batch is drawn"
    )
    share: float = option(0.5, "with data: the share of every batch that is drawn from it; 1: everything", above=0, high=1)


class ReplayWorker(Resumable, Worker):
    """The rows of one policy. Several workers are shards: each keeps the rows of its own actors."""

    ports = {
        "source": Port("sample", "consumer", pinned=True),
        "sink": Port("sample", "producer"),
        "feedback": Port("sample", "consumer", optional=True, divided=True),
    }
    Args = ReplayArgs
    writes = True
    nice = 0
    noun = "replay"
    advice = ("several replays (workers.replay.count)", "smaller batches, or fewer updates per step")
    args: ReplayArgs

    def __init__(self, args: ReplayArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._source = cast(SampleConsumer, ends["source"])
        self._sink = cast(SampleProducer, ends["sink"])
        self._feedback = cast("SampleConsumer | None", ends.get("feedback"))
        parts = context.node.count
        self._shards = _shards(context.graph, args.policy)
        record: Any = context.derived.streams[context.node.ports["source"]].record
        settings = _settings(args, context.node, context.graph, context.derived)
        self.store = Store(record, **settings)
        self.batches = self._with_data(record, settings)
        steps, envs, self._agents = record["reward"].shape
        self._per_slab = envs * self._agents
        self._slab_steps = steps * envs
        ahead = max(-(-args.ahead // parts), self._slab_steps)
        rate = args.updates_per_step * _ranks(context.graph, context.node)
        self.limiter = Limiter(updates_per_step=rate, warmup=-(-args.warmup // parts), ahead=ahead)
        self._in_turn = ahead == self._slab_steps
        """Actors take the next steps once all updates of the last ones are done."""
        self._places = self.sizes(args, "sink", context.graph)["slots"]
        self._under_way = 0
        """Slabs that actors were allowed to start."""
        seed = context.graph.seed ^ word(context.node.name)
        self._rng = generator(seed, "replay", context.index, 0 if context.inline else context.incarnation)
        self._columns: dict[int, int] = {}
        """Number of a group's first env -> the first of its columns."""
        self._numbers: dict[int, int] = {}
        """Number of a group's first env -> number of the slab that may come next without a gap."""
        self._number = self._fed = 0
        self._draining = False
        self._before = 0
        """Env steps of sessions before this one: the trainer has counted them."""
        if not context.inline and context.resume is not None and (folder := self._saved(context.resume)).is_dir():
            self.restore(saved.read(folder))
            self._before = self.store.env_steps

    def _with_data(self, record: Any, settings: Mapping[str, Any]) -> Store | Mixture:
        """What batches are drawn from: the store, or it and a data set of the same kind."""
        args, info = self.args, self.context.derived.policies[self.args.policy]
        if args.data is None:
            return self.store
        same = {key: value for key, value in settings.items() if key not in ("columns", "size")}
        actions = recorded_action(info.spec.action, info.bounds)
        with about("replay", "data"):
            return Mixture(self.store, load_dataset(usable_path(args.data), record, **same, actions=actions), args.share)

    @classmethod
    def about(cls, args: ReplayArgs) -> str:
        return (
            f"the newest {args.size:,} rows, batches of {args.batch:,}, {args.updates_per_step:g} updates per env step"
            f" after the first {args.warmup:,}"
        )

    @classmethod
    def check(cls, args: ReplayArgs, node: Node, graph: Graph) -> None:
        """Rows arrive, from at least one actor for each worker, and the bounds let neither side block the other."""
        producers = [one for one, _, side in members(graph, node.ports["source"]) if side == "producer"]
        if sum(one.count for one in producers) < node.count:
            raise UserError(
                f"{node.count} workers '{node.name}' have fewer actors than that",
                ("because", "each of them keeps the rows of its own actors"),
                ("try", f"sampling.workers={node.count}, or workers.{node.name}.count=1"),
                code="E04",
                path=("graph", "nodes", node.name, "count"),
            )
        slab = max((_slab_steps(one) for one in producers), default=1)
        if -(-args.ahead // node.count) < slab:
            raise UserError(
                f"'{node.name}' would wait forever: its actors may be {args.ahead:,} env steps ahead, and a slab has {slab:,}",
                ("try", f"replay.ahead={slab * _shards(graph, args.policy)}, or fewer sampling.envs or sampling.steps"),
                code="E04",
                path=("replay", "ahead"),
            )

    @classmethod
    def sizes(cls, args: ReplayArgs, port: str, graph: Graph) -> Mapping[str, int]:
        if port != "sink":
            return {}
        trainers = [node for node in graph.nodes if node.worker == "trainer" and node.loaded.policy == args.policy]
        return {"slots": 3 if any(copies_ahead(node.loaded.learner, node.device) for node in trainers) else 2}

    @classmethod
    def declares(cls, args: ReplayArgs, port: str, derived: Derived, known: Mapping[str, TreeSpec]) -> TreeSpec | None:
        """Batches of the rows that its source has."""
        if port != "sink" or "source" not in known:
            return None
        return batch_record(cast("dict[str, Any]", known["source"]), args.batch, derived.policies[args.policy].window)

    @classmethod
    def memory(cls, args: ReplayArgs, node: Node, graph: Graph, derived: Derived) -> int:
        record: Any = derived.streams[node.ports["source"]].record
        settings = _settings(args, node, graph, derived)
        sizes = {key: settings[key] for key in ("columns", "size", "window", "history")}
        own = store_bytes(record, **sizes, prioritised=settings["alpha"] is not None)
        if args.data is not None:
            with about("replay", "data"):
                own += data_bytes(usable_path(args.data))
        return node.count * own

    def poll(self) -> int:
        """Insert rows, draw the requested batches that are due, and let the actors continue as far as that allows."""
        done = self._take_back()
        while (loan := self._source.get()) is not None:
            self._insert(loan)
            done += 1
        while not self._draining and self._may_draw and (batch := self._place()) is not None:
            before = time.perf_counter()
            tree = cast("dict[str, Any]", batch.tree)
            self.batches.sample(self.args.batch, self._rng, tree, self.args.beta.at(self._progress))
            tree["env_steps"][0] -= self._before
            self._sink.put(batch)
            self.limiter.drawn += 1
            self.reading.count("replay/batches")
            self.reading.time("sampling", time.perf_counter() - before)
            done += 1
        return done + self._credit()

    def _place(self) -> Slab | None:
        """For the next batch. As many are asked for as are not in the hands of the trainer."""
        return next((batch for group in range(self._places - 1) if (batch := self._sink.alloc(group)) is not None), None)

    def drain(self) -> bool:
        """What has come is kept: it may be the end of a recording."""
        self._draining = True
        if self.context.deliver is not None:
            self.context.deliver()
        while (loan := self._source.get()) is not None:
            self._insert(loan)
        self._source.discard("stop")
        return True

    def save(self) -> None:
        """Beside the last checkpoint, if the file wants it."""
        context = self.context
        if not context.graph.checkpoint.replay or context.folder is None:
            return
        folder = self._saved(context.folder)
        new = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        saved.write(new, dict(leaves(self.state())))
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)

    def barrier(self, number: int) -> None:
        """Drop what has arrived and request it again; the store stays."""
        self._take_back()
        for credit in self._source.discard("barrier"):
            self._source.credit(credit, 0)
        self._sink.withdraw()

    def state(self) -> Tree:
        numbers = [(env, column, self._numbers[env]) for env, column in self._columns.items()]
        counts = [self.limiter.inserted, self.limiter.drawn]
        own = {"counts": np.array(counts), "groups": np.array(numbers, np.int64).reshape(-1, 3), "rng": to_words(self._rng)}
        return {"store": build(self.batches.state()), **own}

    def restore(self, state: Tree) -> None:
        flat = dict(leaves(state))
        store = {name.removeprefix("store/"): leaf for name, leaf in flat.items() if name.startswith("store/")}
        self.batches.restore(store)
        self.limiter.inserted, self.limiter.drawn = (int(one) for one in flat["counts"])
        for env, column, number in flat["groups"].tolist():
            self._columns[env], self._numbers[env] = column, number
        from_words(self._rng, flat["rng"])
        if self.context.inline:
            self._credit()  # as after a barrier: before anybody asks

    def _saved(self, run: Path) -> Path:
        return run / "replays" / self.context.name.replace("/", "_")

    def metrics(self) -> Any:
        limiter = self.limiter
        self.reading.gauge("replay/rows", min(self.store.inserted, self.store.size))
        self.reading.gauge("replay/size", self.store.size)
        self.reading.gauge("replay/owed", limiter.owed)
        return super().metrics()

    def _take_back(self) -> int:
        """What the algorithm says of rows that it was given; room for more is requested at once."""
        end, done = self._feedback, 0
        if end is None:
            return 0
        while (loan := end.get()) is not None:
            given = dict(cast("dict[str, Any]", loan.tree))
            missing = self.batches.give_back(given.pop("ids"), given)
            self.reading.count("replay/overwritten", missing)
            loan.release()
            done += 1
        for _ in range(_FEEDBACK - end.unused_credits):
            end.credit(self._fed, 0)
            self._fed += 1
        return done

    def _insert(self, loan: Loan) -> None:
        before = time.perf_counter()
        slab = cast("dict[str, Any]", loan.tree)
        first_env, number = slab["origin"].tolist()
        column = self._columns.setdefault(first_env, len(self._columns) * self._per_slab)
        self.store.insert(slab, column, self._numbers.get(first_env) == number)
        self._numbers[first_env] = number + 1
        loan.release()
        self._under_way -= 1
        self.reading.count("replay/env_steps", self.store.env_steps - self.limiter.inserted)
        self.limiter.inserted = self.store.env_steps
        self.reading.time("inserting", time.perf_counter() - before)

    def _credit(self) -> int:
        """Let actors start slabs, as far as the updates keep up; while nothing can be drawn, one after the other."""
        done = 0
        while not self._draining and self._may_start:
            self._source.credit(self._number, 0)
            self._number += 1
            self._under_way += 1
            done += 1
        return done

    @property
    def _progress(self) -> float:
        """Of the run, 0..1, by what this replay has seen of it."""
        stop, limiter = self.context.graph.stop, self.limiter
        counted = ((limiter.inserted, stop.env_steps), (limiter.drawn, stop.updates))
        return max((self._shards * count / wanted for count, wanted in counted if wanted), default=0.0)

    @property
    def _may_draw(self) -> bool:
        return self.limiter.may_draw and len(self.store) > 0

    @property
    def _may_start(self) -> bool:
        if self._in_turn and self._may_draw:
            return False
        enough = len(self.store) > 0 or self._under_way > 0
        return self.limiter.may_insert((self._under_way + 1) * self._slab_steps) or not enough


def _settings(args: ReplayArgs, node: Node, graph: Graph, derived: Derived) -> dict[str, Any]:
    """Of the store of one worker."""
    info = derived.policies[args.policy]
    record: Any = derived.streams[node.ports["source"]].record
    _, envs, agents = record["reward"].shape
    assert info.replay is not None
    return {
        "columns": envs * agents * _groups(graph, node),
        "size": -(-args.size // node.count),
        "window": info.window,
        "n_step": info.replay.n_step,
        "gamma": info.replay.gamma,
        "alpha": args.alpha if info.replay.prioritised else None,
        "history": args.history,
    }


def _ranks(graph: Graph, node: Node) -> int:
    """Trainers that train together, each on a batch for every update: one of these workers has the rows of one of them."""
    return max((one.count for one, _, side in members(graph, node.ports["sink"]) if side == "consumer"), default=1)


def _groups(graph: Graph, node: Node) -> int:
    """Groups whose rows one of these workers keeps, at most."""
    groups = {one.name: getattr(one.loaded, "groups", 1) for one in graph.nodes}
    return max(
        sum(groups[actor] for actor, _ in _origins(graph, node.ports["source"], (node.name, index)))
        for index in range(node.count)
    )


def _origins(graph: Graph, stream: str, consumer: tuple[str, int]) -> set[tuple[str, int]]:
    """The workers whose slabs reach this one: its producers, or what is behind those that pass slabs on."""
    found: set[tuple[str, int]] = set()
    for producer in feeds(graph, stream).get(consumer, ()):
        node = graph.node(producer[0])
        ports = {joined: node.port(port) for port, joined in node.ports.items()}
        sources = [joined for joined, port in ports.items() if (port.kind, port.side) == ("sample", "consumer")]
        found |= set().union(*(_origins(graph, one, producer) for one in sources)) if sources else {producer}
    return found


def _shards(graph: Graph, policy: str) -> int:
    """Replays that share the rows of this policy."""
    return sum(one.count for one in graph.nodes if one.worker == "replay" and one.args.get("policy", "main") == policy)


def _slab_steps(node: Node) -> int:
    """Env steps in a slab of these actors."""
    args = node.loaded
    return int(getattr(args, "envs", 1)) * int(getattr(args, "steps", 1))
