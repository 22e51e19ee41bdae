"""A replay on a stage: whatever comes in which order, batches are right, updates are held, and something can always go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs.witness import ENV, STEP
from tests.workers.stage import Stage

WITNESS = f"{Path(__file__).parents[1] / 'runs/witness.py'}:Witness"
ENVS, STEPS, N, GAMMA, WARMUP, BATCH = 2, 3, 2, 0.9, 9, 8


def stage(rate: float = 1.0, ahead: int = 2 * ENVS * STEPS, size: int = 60) -> Stage:
    replay = {"size": size, "batch": BATCH, "warmup": WARMUP, "updates_per_step": rate, "ahead": ahead}
    algorithm = {"use": WITNESS, "n_step": N, "gamma": GAMMA, "prioritised": True}
    sampling = {"envs": ENVS, "steps": STEPS, "workers": 1}
    return Stage("replay", {"env": "fake", "algorithm": algorithm, "replay": replay, "sampling": sampling})


class Actor:
    """Steps are numbered, so that every sum of rewards can be checked."""

    def __init__(self, end: Any) -> None:
        self.end, self.step, self.number = end, 0, 0

    def put(self) -> bool:
        """The next slab, if a credit is there."""
        slab = self.end.alloc()
        if slab is None:
            return False
        tree, times = slab.tree, self.step + np.arange(STEPS + 1, dtype=np.float32)
        tree["obs"][..., STEP] = times[:, None, None]
        tree["obs"][..., ENV] = np.arange(ENVS)[:, None]
        tree["reward"][...] = times[:-1, None, None]
        tree["valid"][...] = True
        tree["terminated"][...] = tree["truncated"][...] = False
        tree["first"][...] = False
        tree["origin"][:] = 0, self.number
        self.end.put(slab)
        self.step, self.number = self.step + STEPS, self.number + 1
        return True

    def lose(self) -> None:
        """A slab that never arrives."""
        self.step, self.number = self.step + STEPS, self.number + 2


def check(rows: Any) -> None:
    """Rows that follow each other, and the sum of the rewards between them."""
    now, later = rows["obs"][0, :, 0], rows["obs"][1, :, 0]
    count = later[:, STEP] - now[:, STEP]
    assert ((count >= 1) & (count <= N)).all() and (now[:, ENV] == later[:, ENV]).all()
    expected = now[:, STEP] + np.where(count == 2, GAMMA * (now[:, STEP] + 1), 0)
    np.testing.assert_allclose(rows["reward"][0, :, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(rows["discount"][0, :, 0], GAMMA**count, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(rate=st.sampled_from([0.1, 0.5, 1.0, 3.0]), slabs=st.integers(1, 4), moves=st.lists(st.integers(0, 5), max_size=80))
def test_batches_are_right_and_updates_held_in_any_order(rate: float, slabs: int, moves: list[int]) -> None:
    with stage(rate, ahead=slabs * ENVS * STEPS) as on:
        actor, trainer = Actor(on.ends["source"]), on.ends["sink"]
        inserted = drawn = asked = 0
        for move in [*moves, *[0, 3] * 8]:
            on.poll()
            if move <= 2:
                inserted += ENVS * STEPS * actor.put()
            elif move == 5:
                actor.lose()
            else:
                if asked == drawn:
                    trainer.credit(asked, 0)
                    asked += 1
                    on.poll()
                if (loan := trainer.get()) is not None:
                    check(loan.tree)
                    loan.release()
                    drawn += 1
            on.poll()
            out = on.worker.limiter.drawn
            owed = rate * (inserted - WARMUP) - out
            assert drawn <= out <= drawn + 1 and (owed >= -1e-6 or out == 0)
            assert owed <= rate * slabs * ENVS * STEPS + 1 + 1e-6
        assert actor.put() or on.worker.limiter.may_draw, "something can always go on"


def test_priorities_reach_rows_and_those_of_overwritten_rows_are_counted() -> None:
    with stage(rate=0.1, ahead=400) as on:
        actor, trainer, feedback = Actor(on.ends["source"]), on.ends["sink"], on.ends["feedback"]
        while not on.worker.limiter.may_draw:
            actor.put()
            on.poll()
        trainer.credit(0, 0)
        on.poll()
        loan = trainer.get()
        ids = loan.tree["ids"].copy()
        loan.release()

        def give_back() -> None:
            slab = feedback.alloc()
            assert slab is not None
            slab.tree["ids"][...], slab.tree["priority"][...] = ids, 1e-3
            feedback.put(slab)
            on.poll()

        def weights() -> float:
            return float(on.worker.store.state()["drawn/weights"].sum())

        before = weights()
        give_back()
        assert weights() < before
        assert on.worker.reading["replay/overwritten"] == 0
        for _ in range(40):
            actor.put()
            on.poll()
        give_back()
        assert on.worker.reading["replay/overwritten"] == BATCH


def test_nothing_is_drawn_for_a_run_that_drains() -> None:
    with stage() as on:
        actor, trainer = Actor(on.ends["source"]), on.ends["sink"]
        while not on.worker.limiter.may_draw:
            actor.put()
            on.poll()
        on.worker.drain()
        trainer.credit(0, 0)
        on.poll()
        assert trainer.get() is None


@pytest.mark.parametrize("slabs", [3, 12])
def test_a_replay_goes_on_from_its_state(slabs: int) -> None:
    with stage(rate=0.5) as on, stage(rate=0.5) as again:
        first, second = Actor(on.ends["source"]), Actor(again.ends["source"])
        for _ in range(slabs):
            first.put()
            on.poll()
            on.ends["sink"].credit(first.number, 0)
            on.poll()
            while (loan := on.ends["sink"].get()) is not None:
                loan.release()
        again.worker.restore(on.worker.state())
        second.step, second.number = first.step, first.number
        drawn = []
        for actor, one in ((first, on), (second, again)):
            actor.put()
            one.poll()
            one.ends["sink"].credit(100, 0)
            one.poll()
            loan = one.ends["sink"].get()
            drawn.append({name: np.copy(loan.tree[name]) for name in ("ids", "reward", "weight")})
        for name, rows in drawn[0].items():
            np.testing.assert_array_equal(rows, drawn[1][name])
