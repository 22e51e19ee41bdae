"""Past versions as opponents, in the engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.control.controller import Controller
from tests.errors import raises
from srl.plan.derive import derive
from srl.plan.prepare import prepare
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder
from srl.streams.base import updates_of

GAME: dict[str, Any] = {
    "env": {"use": "fake", "teams": {"red": 2, "blue": 1}, "length": [5, 9]},
    "policies": {"red": {"policy": "actor_critic", "algorithm": "ppo"}, "blue": {"policy": "actor_critic", "algorithm": "ppo"}},
    "agents": {"red*": "red", "blue*": "blue"},
    "sampling": {"envs": 4, "steps": 8, "workers": 1},
    "layout": "inline",
    "checkpoint": {"every": 0},
}
AGES = Path(__file__).with_name("ages.py")
PENNIES: dict[str, Any] = {
    "env": f"{Path(__file__).parents[2] / 'docs' / 'examples' / 'pennies.py'}:Pennies",
    "policies": {
        "even": {"policy": f"{AGES}:Ages", "algorithm": f"{AGES}:Aging"},
        "odd": {"policy": {"use": f"{AGES}:Ages", "guards": 10}, "algorithm": f"{AGES}:Aging"},
    },
    "agents": {"even": "even", "odd": "odd"},
    "sampling": {"envs": 4, "steps": 17, "workers": 1},
    "evaluation": None,
    "checkpoint": {"every": 0},
}
"""`even` always shows 0, so it never beats an `odd` of less than ten updates and always an older one."""


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
        assert trainer.reading.metrics["stream/samples.blue/staleness"].high == 0


def test_no_two_envs_of_a_run_have_one_seed_and_no_two_rows_of_a_policy_one_noise() -> None:
    """Else the games against past versions were those among the newest once more."""
    sampling = {**GAME["sampling"], "workers": 2, "groups": 2, "envs": 8}
    with srl.build(**{**GAME, "sampling": sampling}, opponents={"groups": 2, "keep_every": 3}) as session:
        actors: list[Any] = [worker for worker in session.workers.values() if worker.context.node.worker == "actor"]
        groups = [group for actor in actors for group in actor.groups]
        assert {actor.context.name for actor in actors} >= {"actor/0", "actor/1", "actor.red/0", "actor.blue/0"}
        seeds = [group.env.seeds.seed(env, 0) for group in groups for env in range(group.env.count)]
        assert len(seeds) == len(set(seeds)) > 8
        for policy in ("red", "blue"):
            ids = [each for group in groups if policy in group.players for each in group.players[policy].ids.ravel()]
            assert len(ids) == len(set(ids)) > 8


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
    with raises("E10", match="a policy for each team"):
        srl.build(env="CartPole-v1", algorithm="ppo", opponents={"groups": 1}, layout="inline")


def met(choose: str, updates: int, initial: float = 0.0) -> tuple[Counter[int], Any]:
    """How often each past `odd` answered, and the rule that chose them."""
    opponents = {"groups": 1, "keep_every": 5, "hold": 2, "choose": choose, "initial": initial}
    seen: Counter[int] = Counter()
    with srl.build(**PENNIES, opponents=opponents, stop={"updates": updates}, layout="inline") as session:
        past: Any = session.workers["policy.odd.past.actor.even/0"]
        league: Any = session.workers["league/0"]
        while not session.finished:
            session.step()
            seen[updates_of(past.version)] += 1
    return seen, league.rules["odd", "even"]


def test_by_win_rate_the_harder_opponents_are_met_more_often() -> None:
    seen, rule = met("win_rate", 240)
    uniform, _ = met("uniform", 240)
    hard = (seen[0] + seen[5]) / seen.total()
    assert len(seen) > 10, "the others are met as well"
    assert hard > 0.35
    assert hard > 2 * (uniform[0] + uniform[5]) / uniform.total()
    assert rule.rate(0) == rule.rate(5) == 0.0
    assert rule.rate(50) > 0.5


def test_a_rule_of_your_own_is_named_by_its_path() -> None:
    seen, _ = met(f"{AGES}:Oldest", 20)
    assert set(seen) == {0}


def test_an_unknown_rule_is_an_error_of_its_setting() -> None:
    with raises("E07", "opponents.choose", match="no rule is called 'win_ratio'"):
        srl.build(**GAME, opponents={"choose": "win_ratio"})


@pytest.mark.parametrize("choose", ["uniform", "latest-1", "win_rate"])
def test_the_initial_opponent_keeps_its_share(choose: str) -> None:
    seen, _ = met(choose, 120, initial=0.5)
    assert 0.35 < seen[0] / seen.total() < (0.8 if choose == "win_rate" else 0.65)
    assert len(seen) > 8, "the others are met as well"


def test_a_version_stays_until_an_episode_against_it_has_ended() -> None:
    opponents = {"groups": 1, "keep_every": 2, "hold": 1, "choose": "win_rate"}
    short = PENNIES | {"sampling": {"envs": 4, "steps": 5, "workers": 1}}
    with srl.build(**short, opponents=opponents, stop={"updates": 100}, layout="inline") as session:
        league: Any = session.workers["league/0"]
        while not session.finished:
            session.step()
        choices = [seat.chosen for seat in league._seats]
        assert min(choices) > 5
        assert league.reading["past_episodes"] >= 4 * (sum(choices) - 2), "4 envs have met each choice but the last"


@pytest.mark.long
def test_the_harder_are_met_more_often_in_processes_of_their_own(tmp_path: Path) -> None:
    opponents = {"groups": 1, "keep_every": 30, "hold": 2, "choose": "win_rate"}
    run = srl.launch(**PENNIES, opponents=opponents, layout="impala", stop={"updates": 150}, runs=tmp_path, quiet=True, seed=4)
    assert run.result is not None and run.result.exit_code == 0
    won = [row["beaten/odd.past"] for row in run.metrics() if row["update"] >= 60 and "beaten/odd.past" in row]
    # of the three to five that are kept by then, even beats all but the first: drawn evenly it would win most episodes
    assert sum(won) / len(won) < 0.5


def test_results_of_several_actors_reach_a_past_policy_in_another_process(tmp_path: Path) -> None:
    opponents = {"groups": 1, "keep_every": 4, "hold": 1, "choose": "win_rate"}
    settings = PENNIES | {"opponents": opponents, "layout": "impala", "stop": {"updates": 16}, "seed": 4}
    planned = prepare(settings=settings, inspect=False).graph
    ask, past, params = "ask.odd.past.actor.even", "policy.odd.past.actor.even", "params.odd.past.actor.even"
    nodes = {node.name: node for node in planned.nodes}
    nodes |= {past: replace(nodes[past], inside=None), "actor.even": replace(nodes["actor.even"], count=2)}
    streams = [replace(stream, via="zmq") if stream.name in (ask, params, "episodes.even") else stream for stream in planned.streams]
    graph = replace(planned, nodes=tuple(nodes.values()), streams=tuple(streams))
    folder = RunFolder.create(tmp_path, "pennies", 1)
    assert Controller(graph, folder=folder, derived=derive(graph)).run().exit_code == 0
    rows = list(read_numbers(folder.path / "metrics.jsonl"))
    assert rows[-1]["total/past_episodes"] >= 16
    won = [row["beaten/odd.past"] for row in rows if "beaten/odd.past" in row]
    assert won and won[0] < 0.5, "an odd of less than ten updates wins"


def test_each_policy_has_its_own_figures_and_games_against_the_past_are_told_apart(tmp_path: Path) -> None:
    opponents = {"groups": 1, "keep_every": 4, "hold": 1}
    run = srl.launch(**GAME, opponents=opponents, stop={"updates": 12}, runs=tmp_path, quiet=True)
    rows = run.metrics()
    seen = set().union(*rows)
    assert {"episode/return/red", "vs_past/red/return/red", "vs_past/blue/return/blue"} <= seen
    assert {"rate/train/red", "rate/train/blue"} <= seen
    assert {f"train/{name}/entropy" for name in ("red", "blue")} <= seen
    assert all(name.split("/")[1] in ("red", "blue") for name in seen if name.startswith("train/"))
    last = rows[-1]
    assert last["total/trained_rows/red"] + last["total/trained_rows/blue"] == last["total/trained_rows"]


def test_an_env_may_say_itself_who_won(tmp_path: Path) -> None:
    opponents = {"groups": 1, "keep_every": 5, "hold": 2, "choose": "win_rate"}
    declared = PENNIES | {"env": f"{Path(__file__).with_name('ages.py')}:Declared"}
    with srl.build(**declared, opponents=opponents, stop={"updates": 30}, layout="inline") as session:
        shown = [session.step().get("beaten/odd.past") for _ in range(50)]
    assert {share for share in shown if share is not None} == {0.25}
