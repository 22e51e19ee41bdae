from __future__ import annotations

import numpy as np

import srl


def test_a_session_is_stepped_by_hand() -> None:
    with srl.build("cartpole", seed=3) as session:
        assert session.batch is None
        means = session.step()
        assert session.totals["updates"] == 1
        assert {"train/policy_loss", "episode/return"} <= set(means)
        assert type(session.algorithm).__name__ == "PPO"
        assert session.batch.reward.numpy().shape[0] == 64
        session.step(2)
        assert session.totals["updates"] == 3
        assert not session.finished


def test_a_session_repeats_itself() -> None:
    runs = []
    for _ in range(2):
        with srl.build("cartpole", seed=3) as session:
            runs.append(dict(session.step(3)))
    assert {k: v for k, v in runs[0].items() if "time" not in k} == {k: v for k, v in runs[1].items() if "time" not in k}
    assert all(np.isfinite(value) for value in runs[0].values())
