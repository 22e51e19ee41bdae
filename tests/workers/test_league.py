"""A league: which versions it keeps, which one plays, and what it makes of results."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from srl.core.spec import Leaf, zeros
from srl.core.tree import leaves, map_tree
from srl.streams.base import epoch_of, updates_of, version
from srl.workers.episodes import SEVERAL
from srl.workers.league import HISTORY, next_to_drop
from tests.workers.stage import Stage

STEPS, ENVS = 8, 4
POLICY = {"policy": {"use": "actor_critic", "hidden": [4]}, "algorithm": "ppo"}
GAME: dict[str, Any] = {
    "env": {"use": "fake", "teams": {"red": 2, "blue": 1}, "length": [5, 9]},
    "policies": {"red": POLICY, "blue": POLICY},
    "agents": {"red*": "red", "blue*": "blue"},
    "sampling": {"envs": ENVS, "steps": STEPS, "workers": 1},
    "layout": "inline",
    "evaluation": None,
}
PAST = "past:blue/red"
"""Blue's past in the match in which red learns."""


def stage(**opponents: Any) -> Stage:
    return Stage("league", GAME | {"opponents": {"groups": 1, "keep_every": 10, "hold": 1, **opponents}})


def publish(on: Stage, updates: int, policy: str = "blue", epoch: int = 0) -> None:
    tree = map_tree(lambda leaf: np.full(leaf.shape, updates, leaf.dtype), zeros(on.derived.policies[policy].published))
    on.ends[f"params:{policy}"].publish(version(epoch, updates), tree)
    on.poll()


def playing(on: Stage, port: str = PAST) -> tuple[int, int]:
    """(number of the choice, updates of the version) that a policy worker reads now; its weights are those."""
    number, tree = on.ends[port].latest(-1)
    assert all((leaf == updates_of(number)).all() for _, leaf in leaves(tree))
    return epoch_of(number), updates_of(number)


def episodes(
    on: Stage, match: str = "red", *, by: int | None = None, red: float = 0.0, blue: float = 0.0, ended: int = 1
) -> None:
    """One slab of the match: `ended` episodes, played by one version, with these returns."""
    end = on.ends[f"episodes:{match}"]
    slab = end.alloc()
    assert slab is not None, "the league gives credits"
    slab.tree["ended"][...] = False
    slab.tree["ended"][STEPS - 1, :ended] = True
    number = on.ends[PAST].latest(-1)[0] if by is None else by
    for name, value in (("red", red), ("blue", blue)):
        slab.tree["version"][name][...] = number
        slab.tree["return"][name][...] = value
    end.put(slab)
    on.poll()


def test_the_first_weights_play_as_soon_as_they_are_there() -> None:
    with stage() as on:
        assert on.ends[PAST].latest(-1) is None
        publish(on, 0)
        assert playing(on) == (1, 0)
        assert on.ends["past:red/blue"].latest(-1) is None, "nothing is known of red yet"


def test_one_version_in_keep_every_updates_is_kept_and_the_first_always() -> None:
    with stage() as on:
        for updates in (0, 1, 9, 10, 12, 19, 31, 32, 40):
            publish(on, updates)
        assert [updates_of(number) for number in on.worker.kept("blue")] == [0, 10, 31, 40]
        publish(on, 35, epoch=1)
        assert on.worker.kept("blue")[-1] == version(1, 35), "a trainer that was restarted"


def test_a_version_plays_for_hold_slabs_and_an_older_one_may_follow() -> None:
    with stage(hold=2, choose="uniform") as on:
        for updates in range(0, 60, 10):
            publish(on, updates)
        seen = [playing(on)]
        for _ in range(40):
            episodes(on)
            seen.append(playing(on))
        assert [choice for choice, _ in seen] == [1 + slabs // 2 for slabs in range(41)]
        played = [updates for _, updates in seen]
        assert any(after < before for before, after in pairwise(played)) and len(set(played)) > 3


def test_matches_choose_by_themselves() -> None:
    with stage() as on:
        publish(on, 0, "red")
        publish(on, 0, "blue")
        episodes(on, "red")
        assert playing(on)[0] == 2 and playing(on, "past:red/blue")[0] == 1


def test_the_initial_version_keeps_its_share() -> None:
    with stage(initial=1.0, choose="latest-0") as on:
        for updates in range(0, 60, 10):
            publish(on, updates)
        episodes(on)
        assert playing(on) == (2, 0)


def test_by_win_rate_a_version_stays_until_an_episode_against_it_has_ended() -> None:
    with stage(choose="win_rate") as on:
        publish(on, 0)
        episodes(on, ended=0)
        episodes(on, ended=2, by=SEVERAL)
        assert playing(on)[0] == 1
        episodes(on, ended=2)
        assert playing(on)[0] == 2
        for _ in range(16):
            episodes(on, ended=0)
        assert playing(on)[0] == 3, "unless none ever ends"


def test_results_count_for_the_version_that_played_and_equal_returns_are_half_a_win() -> None:
    with stage(choose="win_rate") as on:
        publish(on, 0)
        publish(on, 10)
        rule = on.worker.rules["blue", "red"]
        first = on.worker.kept("blue")[0]
        assert playing(on) == (1, 0)
        episodes(on, red=1.0, ended=3)
        assert rule.rate(first) == pytest.approx(0.98 * 3 / (0.98 * 3 + 1)), "three wins, a little faded by the next choice"
        episodes(on, by=version(1, 0), red=0.5, blue=0.5)
        report = on.loop.reports()["league/0"].reading
        assert report["past_episodes"] == 4
        assert report["beaten/blue.past"] == 3.5 / 4
        episodes(on, by=SEVERAL, ended=4)
        assert on.worker.reading["past_episodes"] == 4


def test_a_restored_league_goes_on_with_the_same_choices() -> None:
    with stage(choose="win_rate", initial=0.2) as straight, stage(choose="win_rate", initial=0.2) as resumed:
        for updates in range(0, 50, 10):
            publish(straight, updates)
        for won in (1.0, -1.0, 1.0, 1.0):
            episodes(straight, red=won, ended=2)
        resumed.worker.restore(map_tree(np.copy, straight.worker.state()))
        assert playing(resumed) == playing(straight)
        assert resumed.worker.kept("blue") == straight.worker.kept("blue")
        for won in (1.0, -1.0, 1.0, 1.0, -1.0):
            for on in (straight, resumed):
                episodes(on, red=won, ended=2)
            assert playing(resumed) == playing(straight)


def test_drained_it_gives_no_more_credits() -> None:
    with stage() as on:
        publish(on, 0)
        end = on.ends["episodes:red"]
        slabs = [end.alloc(), end.alloc()]
        assert on.worker.drain()
        for slab in slabs:
            end.put(slab)
        on.poll()
        assert on.worker.drain() and end.alloc() is None


def test_the_oldest_and_the_newest_stay_and_the_others_are_spread_over_all_time() -> None:
    for count in (HISTORY + 1, 3 * HISTORY, 1000, 4321):
        kept: list[int] = []
        for number in range(count):
            kept.append(number)
            if len(kept) > HISTORY:
                kept.remove(next_to_drop(kept))
        assert len(kept) == HISTORY and kept[0] == 0 and kept[-1] == count - 1
        gaps = [after - before for before, after in pairwise(kept)]
        assert max(gaps) <= 4 * count / HISTORY, "no time is forgotten"


def test_the_record_of_episodes_has_a_leaf_for_each_policy() -> None:
    with stage() as on:
        record: Any = on.derived.streams["episodes.red"].record
        assert record["version"].keys() == record["return"].keys() == {"red", "blue"}
        assert record["ended"] == Leaf((STEPS, ENVS), "bool")
