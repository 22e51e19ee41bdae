"""Catch against a ball that is followed one step at a time, and a player that always catches it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.api.env import TEAM, new_block, renew
from srl.core.seeds import Seeds
from srl.envs.resolve import make_env


def played(told: bool, pick: Any) -> tuple[list[float], list[Any]]:
    """Rewards of the episodes of 8 envs, and all observations, by a rule from one observation and the one before."""
    env = make_env({"use": "catch", "height": 7, "width": 6, "told": told}, 8, Seeds(3))
    block = new_block(env.spec, 8)
    env.reset(block)
    rewards, seen, ended = [], [], np.zeros(8, bool)
    for _ in range(200):
        team: Any = block.teams[TEAM]
        seen.append({key: leaf.copy() for key, leaf in team.obs.items()} if told else team.obs.copy())
        actions = np.array([[pick({k: v[e, 0] for k, v in team.obs.items()} if told else team.obs[e, 0])] for e in range(8)])
        renew(block)
        env.step({TEAM: actions}, block)
        assert (team.reward[ended] == 0).all() and not team.terminated[ended].any()
        rewards += team.reward[team.terminated].tolist()
        assert (team.reward[~team.terminated] == 0).all()
        ended = team.terminated[:, 0].copy()
    return rewards, seen


def place_of(picture: Any, value: int, rows: slice) -> tuple[int, int] | None:
    found = np.argwhere(picture[rows, :, 0] == value)
    return (int(found[0][0]), int(found[0][1])) if len(found) else None


def landing(row: int, ball: int, drift: int) -> int:
    for _ in range(6 - row):
        if not 0 <= ball + drift < 6:
            drift = -drift
        ball += drift
    return ball


def toward(picture: Any, drift: int | None) -> int:
    ball = place_of(picture, 255, slice(0, -1))
    paddle = int(np.argwhere(picture[-1, :, 0] == 255)[0][0])
    if ball is None:
        return 1
    trail = place_of(picture, 128, slice(0, -1))
    if drift is None:
        drift = ball[1] - trail[1] if trail is not None else 0
    return int(np.sign(landing(*ball, drift) - paddle)) + 1


@pytest.mark.parametrize("told", [False, True])
def test_one_who_reads_the_drift_catches_every_ball(told: bool) -> None:
    rewards, seen = played(
        told, (lambda obs: toward(obs["picture"], int(obs["drift"][0]))) if told else (lambda obs: toward(obs, None))
    )
    assert len(rewards) > 200 and min(rewards) == 1.0
    pictures = np.array([one["picture"] if told else one for one in seen])
    assert pictures.dtype == np.uint8 and pictures.shape[1:] == (8, 1, 7, 6, 1)
    assert set(np.unique(pictures)) == ({0, 255} if told else {0, 128, 255})


def test_one_who_does_not_look_misses_most() -> None:
    rewards, _ = played(False, lambda obs: 1)
    assert -1.0 < np.mean(rewards) < -0.4
