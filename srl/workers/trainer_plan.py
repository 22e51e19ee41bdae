"""What is known of a trainer before it starts: its settings, its ports and streams, and whether they fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from srl.api.slab import Replayed
from srl.core.errors import SettingError, UserError
from srl.core.learner import check_learner, split_config
from srl.core.load import option
from srl.core.registry import REGISTRIES
from srl.core.spec import Leaf, TreeSpec, lead
from srl.core.text import count
from srl.core.types import Component
from srl.graph.spec import Graph, Node
from srl.plan.specs import Derived
from srl.workers.base import Port, Resumable, Worker


@dataclass(frozen=True, kw_only=True)
class TrainerArgs:
    policy: str = "main"
    slabs: int = option(1, "slabs in a batch, of all trainers together; 0: whole batches, from a replay", low=0)
    staleness: int = option(0, "maximum age of row 0 of a slab, in updates; 0: strictly on-policy", low=0)
    publish_every: int = option(1, "updates between publications", low=1)
    learner: Component = option(Component("single"), "runs the algorithm on its devices: a name, or my_pkg.mod:Learner")

    def __post_init__(self) -> None:
        if self.slabs and self.publish_every > self.staleness + 1:
            raise SettingError(
                "publish_every",
                f"must be at most staleness + 1 = {self.staleness + 1}, not {self.publish_every}",
                ("because", "credits would wait for a version that is never published"),
            )


def knows_ranks(args: TrainerArgs) -> bool:
    """Several trainers with this learner may train one policy together."""
    return bool(getattr(REGISTRIES["learner"].resolve(args.learner.use), "knows_ranks", False))


class TrainerPlan(Resumable, Worker):
    """The part of a trainer that plans and checks read."""

    ports = {
        "samples": Port("sample", "consumer", divided=True),
        "params": Port("param", "publisher", first=True),
        "feedback": Port("sample", "producer", optional=True),
        "sums": Port("sum", "rank", optional=True),
    }
    Args = TrainerArgs
    writes = True
    nice = 0
    noun = "trainer"
    advice = ("more threads for the trainer", "fewer epochs or larger minibatches")
    slow = True
    gang = True
    args: TrainerArgs

    @classmethod
    def about(cls, args: TrainerArgs) -> str:
        split = split_config(args.learner)
        runs = f"; {split.runs}" if split is not None else ""
        if not args.slabs:
            return f"batches drawn by a replay{runs}"
        return f"batches of {count(args.slabs, 'slab')}, staleness at most {args.staleness}{runs}"

    @classmethod
    def sizes(cls, args: TrainerArgs, port: str, graph: Graph) -> Mapping[str, int]:
        return {"slots": 2} if port.startswith("feedback") else {}

    @classmethod
    def declares(cls, args: TrainerArgs, port: str, derived: Derived, known: Mapping[str, TreeSpec]) -> TreeSpec | None:
        """What its algorithm hands back of the windows in a batch."""
        if not port.startswith("feedback") or "samples" not in known:
            return None
        batch = cast("dict[str, Leaf]", known["samples"])["ids"].shape
        info = derived.policies[args.policy]
        wanted = info.replay or Replayed()
        priority = {"priority": Leaf(batch, "float32")} if wanted.prioritised else {}
        memory = {"memory": lead(info.memory, *batch)} if wanted.refreshed and info.memory != {} else {}
        return {"ids": Leaf(batch, "int64"), **priority, **memory}

    @classmethod
    def check(cls, args: TrainerArgs, node: Node, graph: Graph) -> None:
        """On-policy, a batch takes whole rounds of the groups that feed it; several trainers have equal parts of it."""
        from srl.graph.placement import members
        from srl.graph.ranks import check_ranks

        entry = graph.policies.get(args.policy)
        if entry is not None and entry.algorithm is not None:
            path = ("workers", node.name, "learner")
            check_learner(args.learner, algorithm=entry.algorithm.use, threads=node.threads, path=path)
        if node.count > 1:
            check_ranks(node, graph, knows_ranks(args))
        groups = 0
        for one, _, side in members(graph, node.ports["samples"]):
            if side == "producer":
                groups += one.count * getattr(one.loaded, "groups", 0)
        if args.staleness or not groups or not args.slabs or args.slabs % groups == 0:
            return
        below, above = args.slabs // groups * groups, -(-args.slabs // groups) * groups
        raise UserError(
            f"a batch of {args.slabs} slabs is not a multiple of the {groups} groups that feed '{node.name}'",
            ("because", "staleness is 0: the groups left over would wait with rows of an older version"),
            ("try", " or ".join(f"slabs: {size}" for size in (below, above) if size) + ", or staleness: 1"),
            code="E04",
            path=("graph", "nodes", node.name, "args", "slabs"),
        )
