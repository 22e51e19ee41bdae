"""Specs are remembered only where nothing can have changed."""

from dataclasses import replace

import msgpack
import numpy as np
import pytest

from srl.api.env import Box, Discrete, MultiDiscrete
from srl.config.experiment import read_experiment
from srl.core.machine import Machine
from srl.core.spec import from_plain, to_plain
from srl.core.types import Component
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.env import env_spec
from srl.graph.decide import decide
from srl.plan import child as specs
from srl.plan.specs import Derived

MACHINE = Machine(cores=2, gpus=0, shared_free=1 << 34)


def wired(**settings):
    base = {"env": "CartPole-v1", "algorithm": "ppo", "sampling": {"envs": 8, "steps": 16}}
    return decide(read_experiment(base | settings), machine=MACHINE).graph


def test_a_second_look_is_from_memory_and_equal(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = specs.derived_specs(wired(layout="impala"))

    def look(graph):
        raise AssertionError("looked again")

    monkeypatch.setattr(specs, "derive_in_child", look)
    assert specs.derived_specs(wired(layout="impala", seed=2)) == first
    inline = specs.derived_specs(wired(mode="inline"))
    assert {spec.via for spec in inline.streams.values()} == {"inproc"}
    with pytest.raises(AssertionError, match="looked again"):
        specs.derived_specs(wired(policy={"use": "actor_critic", "hidden": [8]}))


def test_a_damaged_memory_is_looked_up_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graph = wired()
    file = specs.cache_file(graph)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\x81")
    assert specs.derived_specs(graph).policies["main"].spec.agents == 1


def test_code_of_the_user_is_never_remembered():
    graph = wired()
    assert specs.cache_file(graph) is not None
    assert specs.cache_file(replace(graph, env=Component(use="mine.py:Env"))) is None
    assert specs.cache_file(replace(graph, plugins=("my_pkg",))) is None


def test_specs_survive_the_cache():
    env = env_spec(Config())
    assert env.headline[0] == "seen" and set(env.headline) <= set(env.stats)
    derived = Derived(env=env, policies={})
    assert Derived.from_plain(msgpack.unpackb(msgpack.packb(derived.to_plain()))) == derived
    action = {"kind": Discrete(3), "where": Box((2,), (0.0, -np.inf), (1.0, np.inf)), "more": {"counts": MultiDiscrete((2, 3))}}
    assert from_plain(msgpack.unpackb(msgpack.packb(to_plain(action))), (Discrete, Box, MultiDiscrete)) == action
