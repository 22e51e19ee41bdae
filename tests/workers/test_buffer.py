"""Buffers between actors and trainer: what they ask for, what they give on, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.core.errors import SrlError
from srl.core.spec import Leaf
from srl.workers.fifo import Fifo

ROOT = Path(__file__).parents[2]
STEPS, ENVS, SLABS = 16, 4, 2


def buffered(**args: Any) -> dict[str, Any]:
    """CartPole with a buffer; `staleness` is the trainer's."""
    staleness = args.pop("staleness", 0)
    ports = {"source": "raw", "sink": "out"}
    return {
        "env": "CartPole-v1",
        "algorithm": {"use": "ppo", "minibatch": 64, "epochs": 1},
        "graph": {
            "nodes": {
                "actor": {
                    "worker": "actor",
                    "count": 2,
                    "args": {"envs": ENVS, "steps": STEPS},
                    "ports": {"infer": "ask", "samples": "raw"},
                },
                "policy": {"worker": "policy", "count": 2, "inside": "actor", "ports": {"asks": "ask", "params": "params"}},
                "buffer": {"worker": "buffer", "args": args, "ports": ports},
                "trainer": {
                    "worker": "trainer",
                    "args": {"slabs": SLABS, "staleness": staleness},
                    "ports": {"samples": "out", "params": "params"},
                },
            },
            "streams": {
                "ask": {"kind": "infer"},
                "raw": {"kind": "sample"},
                "out": {"kind": "sample"},
                "params": {"kind": "param"},
            },
        },
    }


def run(settings: dict[str, Any], updates: int) -> tuple[Any, list[Any]]:
    """The trainer after so many updates, and every batch it trained on."""
    with srl.build(**settings, stop={"updates": updates}) as session:
        trainer: Any = session.workers["trainer/0"]
        train, batches = trainer.learner.update, []

        def keep(rows: Any) -> Any:
            batches.append({"reward": rows["reward"].copy(), "obs": rows["obs"].copy()})
            return train(rows)

        trainer.learner.update = keep
        while not session.finished:
            session.step()
        reading = {worker: session.workers[worker].reading for worker in session.workers}
    return reading, batches


@pytest.mark.parametrize("reuse", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_the_bound_of_the_staleness_holds_through_a_buffer(staleness: int, size: int, reuse: int) -> None:
    reading, batches = run(buffered(size=size, reuse=reuse, staleness=staleness), 12)
    assert len(batches) == 12
    assert reading["trainer/0"].metrics["stream/out/staleness"].high <= staleness


@pytest.mark.parametrize(("staleness", "times"), [(1, 1.7), (3, 1.3)])
def test_a_slab_goes_on_again_while_it_is_young_enough_and_its_steps_count_once(staleness: int, times: float) -> None:
    reading, batches = run(buffered(size=8, reuse=2, staleness=staleness), 20)
    rows = np.concatenate([batch["obs"].reshape(STEPS + 1, SLABS, -1).transpose(1, 0, 2).reshape(SLABS, -1) for batch in batches])
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert counts.max() == 2 and counts.mean() > times
    trained, sampled = reading["trainer/0"]["trained_steps"], sum(reading[f"actor/{i}"]["env_steps"] for i in (0, 1))
    assert trained == pytest.approx(len(counts) * STEPS * ENVS, rel=0.1), "resets are rows that are not steps"
    assert trained <= sampled


def test_on_policy_nothing_is_old_enough_to_be_reused_but_within_its_batch() -> None:
    reading, _ = run(buffered(size=8, reuse=5, staleness=0), 10)
    assert reading["trainer/0"].metrics["stream/out/staleness"].high == 0


class Counted(srl.Transform):
    """Knows how often it was applied."""

    calls = 0

    def apply(self, slab: Any) -> Any:
        type(self).calls += 1
        return {"reward": slab["reward"] * 0.25}


def test_a_transform_is_applied_once_to_each_slab_however_often_it_goes_on() -> None:
    srl.register_transform("counted_here")(Counted)
    Counted.calls = 0
    _, batches = run(buffered(size=8, reuse=2, staleness=1, transform="counted_here"), 10)
    assert {float(value) for batch in batches for value in np.unique(batch["reward"])} <= {0.0, 0.25}
    assert Counted.calls <= len(batches) * SLABS * 0.7, "half of the slabs that were trained on went on again"


def test_wrong_settings_of_a_transform_are_found_before_the_start() -> None:
    srl.register_transform("counted_here")(Counted)
    with pytest.raises(SrlError, match="bye"):
        srl.build(**buffered(transform="counted_here", transform_args={"bye": 1}))


def test_the_example_runs_in_processes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = srl.launch("docs/examples/buffered.yaml", stop={"env_steps": 20_000}, runs=tmp_path, quiet=True)
    last = done.metrics()[-1]
    assert done.result is not None and done.result.exit_code == 0
    assert last["env_steps"] <= last["total/env_steps"]
    assert last["total/trained_rows"] > 1.3 * last["env_steps"]


def test_a_fifo_gives_its_slabs_in_turn_as_often_as_they_may_be_used() -> None:
    fifo = Fifo({"x": Leaf((3,), "float32")}, 2, 2)
    for number in (1.0, 2.0):
        fifo.put({"x": np.full(3, number, np.float32)})
    assert (fifo.room, fifo.left, len(fifo)) == (0, 4, 2)
    taken = [float(fifo.take()["x"][0]) for _ in range(3)]  # type: ignore[index, call-overload]
    assert taken == [1.0, 2.0, 1.0] and fifo.room == 1
    fifo.drop()
    assert (fifo.room, fifo.left) == (2, 0)
