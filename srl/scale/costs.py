"""Unit costs of an experiment on this machine, in processor time, so that other programs do not count; and waits of its env."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from srl.control.processes import environment
from srl.core.errors import UserError
from srl.core.spec import TreeSpec, zeros
from srl.core.text import size
from srl.plan.acting import ready_policy
from srl.plan.prepare import Prepared, prepare
from srl.plan.specs import Derived
from srl.scale.model import Costs
from srl.session import Session
from srl.streams.base import StreamSpec
from srl.streams.open import open_end
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup

_WARM = 2
_OF_ACTORS = "srl.workers.process, srl.workers.actor, srl.workers.policy, srl.streams.zmq, srl.nets.numpy_mlp"
_ROWS = 4096
"""Env steps of the batch with which training is timed, at most."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Unit costs, and the sizes of what travels."""

    costs: Costs
    slab_bytes: float
    param_bytes: float
    rows: int
    """Of one env step: the agents of the policy."""
    resident: float
    """Bytes of an actor's process, without its envs."""


def measure(experiment: str | None, overrides: list[str], seconds: float, *, envs: int, encrypt: bool) -> Measured:
    """`envs`: those of one actor."""
    inline = [*overrides, "mode=inline", "evaluation=null", "launcher=local", "sampling.workers=1", "sampling.groups=1"]
    inline += [f"stop.{name}=null" for name in ("env_steps", "updates", "return", "seconds")]
    alone = prepare(experiment, [*inline, f"sampling.envs={envs}"])
    act, train, idle = _timed(alone, seconds)
    steps = int(alone.experiment.sampling.steps)
    if train * _ROWS < seconds:  # a batch as large as that of several actors costs less for each step
        whole = prepare(experiment, [*inline, f"sampling.envs={max(envs, _ROWS // steps // envs * envs)}"])
        _, train, _ = _timed(whole, seconds)
    assert alone.derived is not None
    slab, params = (_record(alone.derived, kind) for kind in ("sample", "param"))
    put, take = _handed_over(slab, seconds / 6, encrypt=encrypt)
    publish, fetch = _fetched(params, seconds / 6, encrypt=encrypt)
    costs = Costs(act=act, train=train, put=put, take=take, publish=publish, adopt=fetch + _loaded(alone, params), idle=idle)
    return Measured(costs, _size(slab), _size(params), _agents(alone), _resident())


def _timed(prepared: Prepared, seconds: float) -> tuple[float, float, float]:
    """Seconds of an env step: outside and inside the trainer, and those in which its env waits."""
    nodes = tuple(replace(node, threads=1) for node in prepared.graph.nodes)
    with closing(Session(replace(prepared.graph, nodes=nodes), prepared.derived)) as session:
        session.step(_WARM)
        (trainer,) = (worker for worker in session.workers.values() if hasattr(worker, "learner"))
        training = 0.0
        poll = trainer.poll

        def timed() -> int:
            nonlocal training
            before = time.thread_time()
            done = poll()
            training += time.thread_time() - before
            return done

        trainer.poll = timed  # type: ignore[method-assign]
        env_steps, begun, (waited, waits) = session.totals["env_steps"], time.process_time(), _waits()
        end, updates = time.perf_counter() + seconds, 0
        while time.perf_counter() < end or updates < 2:
            session.step(1)
            updates += 1
        spent, done = time.process_time() - begun, session.totals["env_steps"] - env_steps
        waited, waits = _waits()[0] - waited, _waits()[1] - waits
    often = waits > 0.5 * done / prepared.graph.node("actor").loaded.envs
    return (spent - training) / done, training / done, max(0.0, waited) / done if often else 0.0


def _waits() -> tuple[float, int]:
    """Seconds in which this process wanted no core, and how often it began to wait."""
    turns = Path("/proc/self/schedstat")
    queued = 1e-9 * float(turns.read_text().split()[1]) if turns.exists() else 0.0
    return time.perf_counter() - time.process_time() - queued, resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _handed_over(record: TreeSpec, seconds: float, *, encrypt: bool) -> tuple[float, float]:
    """A slab from one end to the other over a socket: the producer's part and the consumer's."""
    with _Pair("sample", "producer", "consumer", record, encrypt=encrypt, slots=4) as pair:
        producer, consumer = pair.ends
        for number in range(2):
            consumer.credit(number, 0)
        number, begun = 2, pair.begin()
        while time.perf_counter() < begun + seconds or number < 5:
            pair.timed(0, producer.put, pair.until(producer.alloc))
            pair.timed(1, pair.until(consumer.get).release)
            pair.timed(1, consumer.credit, number, 0)
            number += 1
        return pair.costs(number - 2)


def _fetched(record: TreeSpec, seconds: float, *, encrypt: bool) -> tuple[float, float]:
    """A version from the publisher to one subscriber."""
    with _Pair("param", "publisher", "subscriber", record, encrypt=encrypt) as pair:
        publisher, subscriber = pair.ends
        tree = zeros(record)
        number, begun = 0, pair.begin()
        while time.perf_counter() < begun + seconds or number < 3:
            number += 1
            pair.timed(0, publisher.publish, number, tree)
            pair.until(partial(subscriber.latest, number - 1))
        return pair.costs(number)


class _Pair:
    """Two ends in this process, joined by a socket. Time is that of what they do, not of looking whether anything came."""

    def __init__(self, kind: Any, near: Any, far: Any, record: TreeSpec, *, encrypt: bool, **sizes: int) -> None:
        from srl.streams.zmq import new_curve_keys

        self._wakeups = [Wakeup(), Wakeup()]
        spec = StreamSpec(name="cost", kind=kind, via="zmq", record=record)
        networks = [Network(curve=new_curve_keys() if encrypt else None) for _ in range(2)]
        self.ends: list[Any] = [
            open_end(spec, near, name="cost:near/0", wakeup=self._wakeups[0], network=networks[0], **sizes),
            open_end(spec, far, name="cost:far/0", wakeup=self._wakeups[1], network=networks[1]),
        ]
        for one, other in (self.ends, self.ends[::-1]):
            one.attach(other.name, other.address())
        self._spent = [0.0, 0.0]
        self._others = 0.0

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self.ends:
            end.close()
        for wakeup in self._wakeups:
            wakeup.close()

    def begin(self) -> float:
        self._others = time.process_time() - time.thread_time()
        return time.perf_counter()

    def timed(self, side: int, what: Callable[..., Any], *given: Any) -> Any:
        before = time.thread_time()
        done = what(*given)
        self._spent[side] += time.thread_time() - before
        return done

    def until(self, what: Callable[[], Any]) -> Any:
        end = time.perf_counter() + 20
        while time.perf_counter() < end:
            for side, wakeup in enumerate(self._wakeups):
                before = time.thread_time()
                if wakeup.deliver():
                    self._spent[side] += time.thread_time() - before
            if (done := what()) is not None:
                return done
        raise UserError("two ends of a stream did not meet on this machine", ("try", "srl doctor"))

    def costs(self, number: int) -> tuple[float, float]:
        """Of one record; what the threads of ZeroMQ took is halved between both."""
        others = (time.process_time() - time.thread_time() - self._others) / 2
        return (self._spent[0] + others) / number, (self._spent[1] + others) / number


def _loaded(prepared: Prepared, record: TreeSpec) -> float:
    """Parameters into the policy of an actor."""
    assert prepared.derived is not None
    name = prepared.experiment.learning[0]
    policy = ready_policy(prepared.derived.policies[name], prepared.graph.policies[name])
    tree = cast(Any, zeros(record))["params"]
    before = time.thread_time()
    for number in range(5):
        policy.load(tree, number + 1)
    return (time.thread_time() - before) / 5


def _agents(prepared: Prepared) -> int:
    assert prepared.derived is not None
    return prepared.derived.policies[prepared.experiment.learning[0]].spec.agents


def _record(derived: Derived, kind: str) -> TreeSpec:
    return next(spec.record for spec in derived.streams.values() if spec.kind == kind)


def _size(record: TreeSpec) -> float:
    from srl.streams.codec import Layout

    return float(Layout(record).size)


def _resident() -> float:
    """A process with all that an actor imports, without its envs."""
    code = f"import {_OF_ACTORS}; print(open('/proc/self/statm').read().split()[1])"
    said = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True).stdout
    return float(said) * os.sysconf("SC_PAGE_SIZE")


def words(measured: Measured) -> list[tuple[str, str]]:
    """The unit costs as lines of a table."""
    costs = measured.costs
    return [
        (
            "env step and action",
            f"{1e6 * costs.act:.2f} us" + (f", and {1e6 * costs.idle:.0f} us of waiting" if costs.idle else ""),
        ),
        ("training of an env step", f"{1e6 * costs.train:.2f} us"),
        (f"slab of {size(measured.slab_bytes)}", f"{1e6 * costs.put:.0f} us at the actor, {1e6 * costs.take:.0f} at the trainer"),
        (
            f"version of {size(measured.param_bytes)}",
            f"{1e6 * costs.publish:.0f} us at the trainer, {1e6 * costs.adopt:.0f} at the actor",
        ),
    ]
