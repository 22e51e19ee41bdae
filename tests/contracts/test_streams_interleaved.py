"""Any order of events, deaths and restarts included, against a model that remembers everything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srl.streams.base import updates_of, version
from srl.streams.credits import Credits
from tests.contracts.rig import Rig, fill, read


class Run:
    """Actors, one trainer by the credit rule, and the truth about every slab."""

    def __init__(self, via: str, actors: int, slots: int, batch: int, staleness: int) -> None:
        self.rig = Rig(via)
        self.slots, self.batch, self.staleness = slots, batch, staleness
        self.trainer = self.rig.consumer()
        self.actors: list[Any] = []
        self.opened: list[list[Any]] = []
        self.next = [0] * actors
        self.last = [-1] * actors
        self.epoch, self.updates = 1, 0
        self.rules = Credits(batch, staleness)
        self.loans: list[Any] = []
        self.put = self.gone = 0
        for index in range(actors):
            self.actors.append(self.rig.producer(f"actor/{index}", slots=slots))
            self.opened.append([])
        self.rig.join(self.actors, [self.trainer])
        self.credit()

    def credit(self) -> None:
        for number, min_updates in self.rules.issue(self.updates):
            self.trainer.credit(number, version(self.epoch, min_updates))

    def open(self, who: int, group: int = 0) -> None:
        slab = self.actors[who].alloc(group)
        if slab is not None:
            assert updates_of(slab.min_version) <= self.updates, "a version is asked for that nobody has"
            assert len(self.opened[who]) < self.slots
            assert slab.slot not in [other.slot for _, other in self.opened[who]], "one slot was given twice"
            self.opened[who].append((self.updates, slab))

    def finish(self, who: int) -> None:
        if self.opened[who]:
            started, slab = self.opened[who].pop(0)
            fill(slab.tree, who, self.next[who])
            slab.tree["who"][:] = who + 1000 * started
            self.next[who] += 1
            self.actors[who].put(slab)
            self.put += 1

    def discard(self, who: int) -> None:
        if self.opened[who]:
            self.actors[who].discard(self.opened[who].pop()[1], "barrier")
            self.put += 1
            self.gone += 1

    def take(self) -> None:
        loan = self.trainer.get()
        if loan is None:
            return
        mark, number = read(loan.tree)
        who, started = mark % 1000, mark // 1000
        assert number > self.last[who], "out of order, or twice"
        self.last[who] = number
        assert self.rules.arrived(loan.credit), "a void credit was used"
        assert loan.credit // self.batch - started <= self.staleness, "staler than allowed"
        self.loans.append(loan)

    def release(self, index: int) -> None:
        if self.loans:
            self.loans.pop(index % len(self.loans)).release()

    def train(self) -> None:
        if self.rules.ready(self.updates):
            self.updates += 1
            self.credit()

    def restart_actor(self, who: int) -> None:
        """It dies with what it had open; the next incarnation starts from nothing."""
        dead = self.actors[who]
        self.trainer.detach(dead.name, "died")
        self.rig.close_end(dead)
        self.opened[who].clear()
        self.actors[who] = self.rig.producer(f"actor/{who}", slots=self.slots)
        self.rig.join([self.actors[who]], [self.trainer])

    def restart_trainer(self) -> None:
        """It dies and resumes: a new epoch, new credits; slabs under the old ones are dropped."""
        for actor in self.actors:
            actor.detach(self.trainer.name, "trainer_restart")
        self.rig.close_end(self.trainer)
        self.loans.clear()
        self.trainer = self.rig.consumer()
        self.epoch += 1
        self.rules.restart(self.updates)
        self.rig.join(self.actors, [self.trainer])
        self.credit()

    def run_on(self, updates: int) -> None:
        """From any state, the run goes on: nothing is stuck."""
        goal = self.updates + updates

        def sweep() -> bool:
            for who in range(len(self.actors)):
                self.open(who)
                self.finish(who)
            self.take()
            while self.loans:
                self.release(0)
            self.train()
            return self.updates >= goal

        self.rig.until(sweep)


EVENTS = ["open", "open", "finish", "finish", "take", "take", "release", "train", "pump", "pump", "discard", "actor", "trainer"]


def interleave(via: str, data: st.DataObject, steps: int) -> None:
    actors, slots = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    batch, staleness = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2))
    run = Run(via, actors, slots, batch, staleness)
    try:
        for event in data.draw(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5)), max_size=steps)):
            play(run, *event)
        run.run_on(staleness + 3)
    finally:
        run.rig.close()


def play(run: Run, event: str, choice: int) -> None:
    who = choice % len(run.actors)
    match event:
        case "open":
            run.open(who, choice % 2)
        case "finish":
            run.finish(who)
        case "discard":
            run.discard(who)
        case "take":
            run.take()
        case "release":
            run.release(choice)
        case "train":
            run.train()
        case "actor":
            run.restart_actor(who)
        case "trainer":
            run.restart_trainer()
        case "pump":
            run.rig.wakeups[choice % len(run.rig.wakeups)].deliver()


@pytest.mark.parametrize("via", ["inproc", "shm"])
def test_no_order_of_events_breaks_the_rules_or_stops_the_run(via: str) -> None:
    @settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        interleave(via, data, 60)

    check()


def test_no_order_of_events_breaks_the_rules_over_zmq() -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        interleave("ipc", data, 40)

    check()


@pytest.mark.parametrize("via", ["inproc", "shm"])
@pytest.mark.parametrize("batches", [[1, 1, 1], [1, 2, 3], [4, 1]])
def test_trainers_that_wait_for_each_other_are_all_fed(via: str, batches: list[int]) -> None:
    """None goes on before all have their batch; the one slot of the one actor must not stand in the wrong queue."""
    rig = Rig(via)
    actor = rig.producer(slots=1)
    gang = [rig.consumer(f"trainer/{index}") for index in range(len(batches))]
    rig.join([actor], gang)
    rules = [Credits(batch, 0) for batch in batches]
    updates = 0

    def credit() -> None:
        for trainer, rule in zip(gang, rules, strict=True):
            for number, min_updates in rule.issue(updates):
                trainer.credit(number, min_updates)

    def sweep() -> bool:
        nonlocal updates
        slab = actor.alloc()
        if slab is not None:
            actor.put(slab)
        for trainer, rule in zip(gang, rules, strict=True):
            loan = trainer.get()
            if loan is not None:
                assert rule.arrived(loan.credit)
                loan.release()
        if all(rule.ready(updates) for rule in rules):
            updates += 1
            credit()
        return updates == 20

    credit()
    rig.until(sweep)
    rig.close()
