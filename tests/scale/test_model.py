"""The simulation against what follows by hand where one thing alone is the limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srl.cli.scale import bottleneck
from srl.scale.model import Costs, Setup, Simulation

FREE = Costs(act=1e-9, train=1e-9, put=0.0, take=0.0, publish=0.0, adopt=0.0)
SETUP = Setup(hosts=4, actors=2, cores=2, envs=8, steps=32, slab_bytes=1e3, param_bytes=1e3, latency=0.0)


def outcome(costs: dict[str, Any], **changes: Any) -> Any:
    return Simulation(replace(FREE, **costs), replace(SETUP, **changes)).run(20)


@pytest.mark.parametrize(
    ("costs", "changes", "rate", "words"),
    [
        ({"act": 1e-5}, {}, 8 / 1e-5, "the actors"),
        ({"idle": 1e-5}, {}, 8 / 1e-5, "the actors"),
        ({"idle": 1e-5}, {"together": True}, 8 / 1e-5, "the actors"),
        ({"train": 1e-5}, {}, 1 / 1e-5, "the trainers"),
        ({"train": 1e-5}, {"trainers": 4}, 4 / 1e-5, "the trainers"),
        ({}, {"slab_bytes": 1e6}, 1.25e9 / 1e6 * 256, "the network cards"),
        ({}, {"slab_bytes": 1e6, "trainers": 2}, 2 * 1.25e9 / 1e6 * 256, "the network cards"),
        ({"act": 1e-5}, {"together": True}, 2 / 1e-5, "the cores of this machine"),
        ({"take": 0.01}, {}, 256 / 0.01, "the trainers"),
    ],
    ids=[
        "actors",
        "envs that wait",
        "the same on shared cores",
        "trainer",
        "4 trainers",
        "network",
        "2 networks",
        "shared cores",
        "hand-over",
    ],
)
def test_where_one_thing_is_the_limit_the_rate_is_its_rate(costs: Any, changes: Any, rate: float, words: str) -> None:
    found = outcome(costs, **changes)
    assert found.rate == pytest.approx(rate, rel=0.06)
    assert bottleneck(replace(SETUP, **changes), found).startswith(words)


def test_without_staleness_actors_and_trainer_take_turns() -> None:
    costs = {"act": 1e-5, "train": 1e-5 / 8, "spread": 0.0}
    apart, at_once = (outcome(costs, staleness=staleness) for staleness in (0, 1))
    assert apart.rate == pytest.approx(0.5 * at_once.rate, rel=0.06)
    assert apart.staleness == 0 and at_once.staleness == pytest.approx(1, abs=0.05)
    assert apart.trainers_wait == pytest.approx(0.5, abs=0.05)
    assert apart.actors_wait_credit == pytest.approx(0.5, abs=0.05)


def test_versions_reach_many_hosts_sooner_by_a_tree_and_one_fetch_for_each_host() -> None:
    wide = replace(SETUP, hosts=480, actors=32, cores=32, param_bytes=6e6)
    direct, hosts, tree = (
        replace(wide, pullers=pullers, fan_out=fan_out).delay(479) for pullers, fan_out in ((False, 0), (True, 0), (True, 8))
    )
    assert direct == pytest.approx(15_360 * 6e6 / 1.25e9, rel=0.01)
    assert hosts == pytest.approx(480 * 6e6 / 1.25e9, rel=0.01)
    assert tree == pytest.approx(3 * 8 * 6e6 / 1.25e9, rel=0.01)
    delays = [replace(wide, fan_out=8).delay(host) for host in range(480)]
    assert delays == sorted(delays) and len(set(delays)) == 3


def test_late_versions_hold_actors_up_and_are_named() -> None:
    found = outcome({}, hosts=400, actors=2, param_bytes=1e7, staleness=0)
    assert found.actors_wait_version > 0.3
    assert bottleneck(SETUP, found).startswith("parameters")


def test_on_cores_that_are_shared_the_trainer_comes_first_and_nobody_is_left_out() -> None:
    costs = {"act": 1e-5, "train": 1e-5, "spread": 0.0}
    one, two = (outcome(costs, hosts=3, actors=1, together=True, cores=cores) for cores in (1, 2))
    assert one.rate == pytest.approx(0.5 / 1e-5, rel=0.02) and one.cpu == pytest.approx(1)
    assert 0.9 / 1e-5 < two.rate <= 1.001 / 1e-5 and two.trainers_wait < 0.1


def test_half_of_the_cores_are_half_of_the_rate() -> None:
    costs = {"act": 1e-4, "train": 1e-4}
    whole, half = (outcome(costs, hosts=2, actors=1, together=True, cores=cores) for cores in (2, 1))
    assert half.rate == pytest.approx(0.5 * whole.rate, rel=0.06)
