"""Atari: the standard preprocessing, lives as episodes, clipped rewards, and whole games where a policy is judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.api.env import BatchEnv, Block, Discrete, new_block, renew
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.envs.resolve import make_env

pytest.importorskip("ale_py")


def _made(env: Any, count: int = 2, role: str = "env") -> tuple[BatchEnv, Block]:
    made = make_env(env, count, Seeds(0, role))
    block = new_block(made.spec, count)
    made.reset(block)
    return made, block


def _played(env: BatchEnv, block: Block, steps: int) -> list[dict[str, Any]]:
    """Copies of what random play gives."""
    rng = np.random.default_rng(0)
    action = env.spec.teams["agent"].action
    assert isinstance(action, Discrete)
    rows = []
    for _ in range(steps):
        renew(block)
        env.step({"agent": rng.integers(0, action.n, (env.count, 1))}, block)
        team = block.teams["agent"]
        ended = (team.terminated | team.truncated)[:, 0]
        rows.append(
            {"obs": np.array(team.obs)[:, 0], "reward": team.reward[:, 0].copy(), "ended": ended, "stats": block.stats.copy()}
        )
    return rows


def test_the_id_decides_about_sticky_actions_and_the_env_says_so() -> None:
    env, _ = _made("ALE/Pong-v5")
    assert env.spec.teams["agent"].obs == Leaf((4, 84, 84), "uint8")
    assert "sticky actions 0.25" in env.spec.about
    assert "sticky actions 0," in _made({"use": "ALE/Pong-v5", "sticky": 0})[0].spec.about


def test_a_stack_moves_by_one_picture_and_begins_empty() -> None:
    env, block = _made("ALE/Breakout-v5")
    obs, ended, begun = np.array(block.teams["agent"].obs)[:, 0], np.zeros(2, bool), 0
    assert not obs[:, :-1].any()
    assert obs[:, -1].any()
    for row in _played(env, block, 150):
        assert not row["obs"][ended, :-1].any()
        assert (row["obs"][~ended, :-1] == obs[~ended, 1:]).all()
        begun += int(ended.sum())
        obs, ended = row["obs"], row["ended"]
    assert begun


def test_a_lost_life_ends_an_episode_and_the_game_goes_on() -> None:
    env, block = _made("ALE/Breakout-v5")
    rows = _played(env, block, 700)
    ended = np.array([row["ended"] for row in rows])
    scores = np.array([row["stats"][:, 0] for row in rows])
    games = ~np.isnan(scores)
    assert (games <= ended).all()
    assert ended.sum() >= 5 * games.sum() > 0, "five lives are one game"
    assert not (ended[1:] & ended[:-1]).any(), "the row after an end begins an episode"


def test_an_evaluation_plays_whole_games() -> None:
    env, block = _made("ALE/Breakout-v5", role="evaluator")
    rows = _played(env, block, 700)
    ended = np.array([row["ended"] for row in rows])
    scores = np.array([row["stats"][:, 0] for row in rows])
    assert ended.any()
    assert (~np.isnan(scores) == ended).all()


def test_rewards_are_clipped_and_the_score_is_not() -> None:
    settings = {"use": "ALE/MsPacman-v5", "lives": False}
    clipped, whole = (_played(*_made({**settings, "clip": clip}), 700) for clip in (True, False))
    rewards, raw = (np.array([row["reward"] for row in rows]) for rows in (clipped, whole))
    assert raw.max() >= 10
    assert (rewards == np.sign(raw)).all()
    scores = np.array([row["stats"][:, 0] for row in clipped])
    first = int(np.flatnonzero(~np.isnan(scores[:, 0]))[0])
    assert scores[first, 0] == raw[: first + 1, 0].sum()
