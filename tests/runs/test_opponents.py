"""Past versions as opponents, in the engine."""

from __future__ import annotations

from typing import Any

import pytest

import srl
from srl.core.errors import WiringError
from srl.streams.base import updates_of

GAME: dict[str, Any] = {
    "env": {"use": "fake", "teams": {"red": 2, "blue": 1}, "length": [5, 9]},
    "policies": {"red": {"policy": "actor_critic", "algorithm": "ppo"}, "blue": {"policy": "actor_critic", "algorithm": "ppo"}},
    "agents": {"red*": "red", "blue*": "blue"},
    "sampling": {"envs": 4, "steps": 8, "workers": 1},
    "layout": "inline",
    "checkpoint": {"every": 0},
}


@pytest.mark.parametrize(("choose", "expected"), [("latest-1", 15), ("latest-3", 9)])
def test_opponents_act_with_kept_versions_while_the_newest_act_beside_them(choose: str, expected: int) -> None:
    opponents = {"groups": 1, "keep_every": 3, "choose": choose, "hold": 1}
    with srl.build(**GAME, opponents=opponents, stop={"updates": 20}) as session:
        session.step(2 * 19)  # updates of both trainers
        past: Any = session.workers["policy.blue.past.actor.red/0"]
        newest: Any = session.workers["policy.blue.actor.blue/0"]
        trainer: Any = session.workers["trainer.blue/0"]
        assert trainer.args.slabs == 2
        assert updates_of(newest.version) == trainer.updates >= 18
        # kept are 0, 3, ..., 18; `latest-n` counts back from the newest of them
        assert updates_of(past.version) == expected
        assert trainer.reading.totals["staleness_max"] == 0


def test_uniform_opponents_are_drawn_from_all_that_was_kept() -> None:
    with srl.build(**GAME, opponents={"groups": 1, "keep_every": 2, "hold": 1}, stop={"updates": 40}) as session:
        past: Any = session.workers["policy.red.past.actor.blue/0"]
        met = set()
        while not session.finished:
            session.step()
            met.add(updates_of(past.version))
        assert len(met) > 8 and all(version % 2 == 0 for version in met)
        assert max(met) - min(met) > 15


def test_one_policy_for_all_teams_cannot_play_its_past() -> None:
    with pytest.raises(WiringError, match="a policy for each team"):
        srl.build(env="CartPole-v1", algorithm="ppo", opponents={"groups": 1}, layout="inline")
