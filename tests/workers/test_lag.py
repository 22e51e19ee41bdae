"""How old the recording policy was, against a slow reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import srl
from srl.api.batch import Batch
from srl.core.readings import Reading
from srl.streams.base import version
from srl.workers import lag as module
from srl.workers.lag import Lag


class Time:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.floats(0.001, 2.0), st.lists(st.integers(0, 50), max_size=9)), min_size=1, max_size=60))
def test_mean_and_p99_are_those_of_all_rows(steps: list[tuple[float, list[int]]]) -> None:
    clock = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        lag, reading, published = Lag(2), Reading(), [0.0]
        lag.published(version(2, 0))
        behind, ages = [], []
        for update, (pause, rows) in enumerate(steps):
            clock.now += pause
            recorded_by = [max(update - one, 0) for one in rows]
            lag.trained(version(2, 0) + np.array(recorded_by, np.int64), update)
            behind += [update - one for one in recorded_by]
            ages += [1000 * (clock.now - published[one]) for one in recorded_by]
            published.append(clock.now)
            lag.published(version(2, update + 1))
        lag.report(reading)
    if not behind:
        assert not reading.metrics
        return
    assert reading["lag/updates"] == pytest.approx(np.mean(behind))
    assert reading["lag/updates_p99"] == pytest.approx(np.percentile(behind, 99))
    assert reading["lag/ms"] == pytest.approx(np.mean(ages))
    assert reading["lag/ms_p99"] == pytest.approx(np.percentile(ages, 99))


def test_times_of_old_versions_are_kept_coarsely(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    lag = Lag(0)
    for update in range(100_000):
        clock.now = 0.5 * update
        lag.published(update)
    for age in (0, 1, 1000, 1500, 5000, 50_000, 99_999):
        reading = Reading()
        lag.trained(np.array([99_999 - age]), 99_999)
        lag.report(reading)
        assert reading["lag/updates"] == age
        assert reading["lag/ms"] == pytest.approx(500 * age)


def test_rows_of_an_earlier_process_are_left_out() -> None:
    lag, reading = Lag(3), Reading()
    lag.published(version(3, 7))
    lag.trained(np.array([version(2, 5), version(3, 7)]), 7)
    lag.report(reading)
    assert reading["lag/updates"] == 0
    lag.trained(np.array([version(2, 5)]), 8)
    lag.report(second := Reading())
    assert not second.metrics


def test_more_rows_than_are_kept_are_no_error() -> None:
    lag, reading = Lag(0), Reading()
    lag.published(0)
    for _ in range(3):
        lag.trained(np.zeros(5000, np.int64), 1)
        lag.trained(np.zeros(3000, np.int64), 1)
    lag.report(reading)
    assert reading["lag/updates"] == 1


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_a_run_counts_optimizer_steps_frames_and_lag(mode: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "env": "CartPole-v1",
        "algorithm": {"use": "ppo", "epochs": 3, "minibatch": 64},
        "sampling": {"envs": 8, "steps": 32, "workers": 1},
        "stop": {"updates": 12},
    }
    run = srl.launch(**settings, mode=mode, runs=tmp_path, quiet=True)
    last = run.metrics()[-1]
    assert last["total/updates"] == 12
    assert last["total/frames"] == 3 * last["total/trained_rows"]
    assert last["total/optimizer_steps"] == 12 * 3 * 4  # 8 x 32 rows, some of them not valid, at most 64 a minibatch
    lags = [row for row in run.metrics() if "lag/ms" in row]
    assert lags and all(0 <= row["lag/updates"] <= row["lag/updates_p99"] <= (mode == "local") for row in lags)
    assert all(0 < row["lag/ms"] <= row["lag/ms_p99"] < 60_000 for row in lags)
    assert run.result is not None
    told = dict(run.result.summary)
    assert "updates (p99" in told["lag"] and "trainer" in told["busy"]
    if mode == "inline":  # in two reports or more
        assert "frames/s, replay ratio" in told["rates"]


def test_rows_of_a_replay_are_counted_once_for_each_batch(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "env": "Pendulum-v1",
        "algorithm": "sac",
        "replay": {"batch": 32, "warmup": 64, "updates_per_step": 0.5},
        "stop": {"env_steps": 200},
    }
    rows = srl.launch(**settings, mode="inline", runs=tmp_path, quiet=True).metrics()
    last = rows[-1]
    assert last["total/optimizer_steps"] == last["total/updates"] > 10
    assert last["total/frames"] == 32 * last["total/updates"]
    lags = [row["lag/updates"] for row in rows if "lag/updates" in row]
    assert lags and all(0 < lag <= last["total/updates"] for lag in lags)


def test_epochs_that_end_early_count_as_far_as_they_went() -> None:
    batch = Batch.of(reward=np.zeros((4, 6), np.float32), obs=np.zeros((5, 6, 2), np.float32))
    batch.origin.memory_every = 4
    for number, mini in enumerate(batch.minibatches(10, epochs=5)):
        assert mini.lead.numel() == 8
        if number == 3:
            break
    assert batch.passed == 32
