"""Rows of a group, slab after slab, against what the fake env says of every row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from srl.api.env import action_leaves
from srl.api.slab import SlabShape, Window, slab_spec
from srl.core.errors import UserError
from srl.core.readings import Reading
from srl.core.seeds import Rng
from srl.core.spec import Leaf, lead, zeros
from srl.core.types import Component, PolicyEntry
from srl.envs.fake import FakeEnv, fields_of
from srl.graph.spec import Graph
from srl.plan.inspect import inspect_env, policy_spec, teams_of
from srl.plan.specs import Derived, PolicyInfo
from srl.streams.sample import Slab
from srl.workers.group import Group
from srl.workers.snapshots import restore, snapshot

STEPS, ENVS, SLABS = 7, 3, 30


def graph_of(agents: dict[str, str], **env: Any) -> Graph:
    policies = {name: PolicyEntry(policy=Component(use="scripted")) for name in dict.fromkeys(agents.values())}
    return Graph(env=Component(use="fake", args=env), policies=policies, agents=agents, nodes=(), streams=(), seed=5)


def derived_of(graph: Graph, memory_every: int | None = None) -> Derived:
    env = inspect_env(graph)
    infos = {}
    for name, teams in teams_of(graph, env).items():
        spec = policy_spec(env, teams)
        infos[name] = PolicyInfo(
            name=name, use="scripted", config={}, spec=spec, teams=teams, memory={"steps": Leaf((1,), "float32")},
            reads=("obs", "mask"), bounds="clip", extra={"value": Leaf((), "float32")}, signals={}, params={}, twin=None,
            window=Window(length=memory_every), needs_torch=False,
        )  # fmt: skip
    return Derived(env=env, policies=infos)


def answer_of(question: dict[str, Any], info: PolicyInfo) -> dict[str, Any]:
    """A random allowed choice; memory counts the rows of the episode; value is the first column of the row's noise."""
    uniform = Rng(question["keys"].reshape(-1)).uniform(1).reshape(question["keys"].shape)
    if "mask" in question:
        weights = question["mask"] * (0.5 + np.random.default_rng(0).random(question["mask"].shape))
        action = weights.argmax(-1)
    else:
        action = (uniform * info.spec.action.n).astype(np.int64)  # type: ignore[union-attr]
    return {
        "action": action,
        "memory": {"steps": question["memory"]["steps"] + 1},
        "extra": {"value": uniform.astype(np.float32)},
    }


def play(group: Group, derived: Derived, slot: int) -> dict[str, Slab]:
    """One slab of every policy."""
    slabs = {}
    for name, info in derived.policies.items():
        shape = SlabShape(steps=STEPS, envs=ENVS, agents=info.spec.agents, memory_every=info.window.memory_every)
        tree = zeros(slab_spec(shape, info.spec, memory=info.memory, extra=info.extra, signals={}))
        slabs[name] = Slab(tree=tree, slot=slot, credit=0, min_version=0)
    group.open(slabs)
    for row in range(STEPS + 1):
        for name, question, _ in group.questions():
            group.answer(name, answer_of(question, derived.policies[name]), version=3)
        if row < STEPS:
            group.step()
    assert not group.waiting
    return group.finish()


def record(graph: Graph, derived: Derived, slabs: int = SLABS) -> tuple[Group, dict[str, list[Any]]]:
    group = Group(graph, derived, envs=ENVS, steps=STEPS, first_env=10, reading=Reading())
    group.reset()
    done: dict[str, list[Any]] = {name: [] for name in derived.policies}
    for _ in range(slabs):
        for name, slab in play(group, derived, slot=len(done[next(iter(done))])).items():
            done[name].append(slab.tree)
    return group, done


CASES = [
    {"length": (5, 9), "end": "random"},
    {"length": (1, 3), "end": "truncated"},
    {"length": (6, 12), "teams": {"red": 3}, "dying": True, "late": True, "end": "random"},
    {"length": (4, 9), "action": 5, "mask": True, "state": 5},
]


@pytest.mark.parametrize("env", CASES)
def test_every_row_is_the_envs_row_and_flags_are_derived(env: dict[str, Any]) -> None:
    graph = graph_of({"*": "main"}, **env)
    derived = derived_of(graph)
    _, slabs = record(graph, derived)
    trees = slabs["main"]
    obs = np.concatenate([tree["obs"][:-1] for tree in trees])  # [rows, E, A, 8]
    flags = {
        key: np.concatenate([tree[key][:STEPS] for tree in trees])
        for key in ("valid", "first", "terminated", "truncated", "reward")
    }
    actions = np.concatenate([tree["action"] for tree in trees])
    fields = {key: array.astype(int) for key, array in fields_of(obs).items()}
    valid, first = flags["valid"], flags["first"]
    for tree, after in pairwise(trees):
        np.testing.assert_array_equal(tree["obs"][-1], after["obs"][0])
        np.testing.assert_array_equal(tree["first"][-1], after["first"][0])
    # a valid row is followed by the same agent's next row, which its action led to, and its reward is the env's
    now, later = valid[:-1], obs[1:]
    step = fields["step"]
    assert (step[1:] == step[:-1] + 1)[now].all()
    assert (fields["episode"][1:] == fields["episode"][:-1])[now].all()
    np.testing.assert_array_equal(later[..., 4][now], actions[:-1][now])
    expected = FakeEnv.reward_of(fields["env"], fields["episode"], step, fields["agent"], actions)
    np.testing.assert_allclose(flags["reward"][valid], expected[valid], rtol=1e-6)
    # only valid rows end or are rewarded; after an end comes one row that is not valid
    ended = flags["terminated"] | flags["truncated"]
    assert not (ended & ~valid).any() and not flags["reward"][~valid].any()
    assert not valid[1:][ended[:-1]].any()
    # `first` where a run of valid rows begins, and nowhere else; terminated wins
    begins = valid & ~np.concatenate([np.zeros((1, *valid.shape[1:]), bool), valid[:-1]])
    np.testing.assert_array_equal(first, begins)
    assert not (flags["terminated"] & flags["truncated"]).any()
    assert ended.sum() > 20


def test_an_all_truncated_env_never_terminates_and_counts_its_episodes() -> None:
    graph = graph_of({"*": "main"}, length=(5, 5), end="truncated")
    group, slabs = record(graph, derived_of(graph))
    tree = {key: np.concatenate([slab[key] for slab in slabs["main"]]) for key in ("truncated", "terminated", "valid")}
    assert not tree["terminated"].any()
    # 5 valid rows, then the last observation as a row of its own
    np.testing.assert_array_equal(tree["valid"][:12, 0, 0], [1, 1, 1, 1, 1, 0] * 2)
    np.testing.assert_array_equal(tree["truncated"][:12, 0, 0], [0, 0, 0, 0, 1, 0] * 2)
    reading = group.reading
    assert reading["episodes"] == ENVS * (SLABS * STEPS // 6)
    length, score = reading.metrics["episode/length"], reading.metrics["episode/score"]
    assert (length.shown, length.number) == (5.0, reading["episodes"])
    assert reading.metrics["episode/return"].value == pytest.approx(score.value)


def test_memory_is_zero_where_first_and_recorded_every_k_rows() -> None:
    graph = graph_of({"*": "main"}, length=(3, 11), end="random")
    derived = derived_of(graph, memory_every=3)
    _, slabs = record(graph, derived)
    for tree in slabs["main"]:
        steps = fields_of(tree["obs"])["step"]
        for place, row in enumerate(range(0, STEPS, 3)):
            # the scripted memory counts the rows of the episode so far
            np.testing.assert_array_equal(tree["memory"]["steps"][place, ..., 0], steps[row])


def test_two_policies_in_one_env_get_their_own_teams() -> None:
    graph = graph_of(
        {"red*": "one", "blue*": "two"}, teams={"red": 2, "blue": 3}, length=(4, 8), dying=True, state=4, end="random"
    )
    derived = derived_of(graph)
    assert derived.policies["one"].teams == ("red",) and derived.policies["two"].spec.agents == 3
    group, slabs = record(graph, derived)
    one, two = slabs["one"], slabs["two"]
    for left, right in zip(one, two, strict=True):
        assert left["obs"].shape[2] == 2 and right["obs"].shape[2] == 3
        np.testing.assert_array_equal(left["state"], right["state"])
        here = right["valid"]
        np.testing.assert_array_equal(fields_of(right["obs"][:-1])["agent"][here], np.broadcast_to([2, 3, 4], here.shape)[here])
    assert all(group.reading.metrics[f"episode/return/{team}"].number > 0 for team in ("red", "blue"))


def test_one_policy_may_act_for_two_teams() -> None:
    graph = graph_of({"*": "main"}, teams={"red": 2, "blue": 1}, length=(4, 8))
    derived = derived_of(graph)
    _, slabs = record(graph, derived, slabs=5)
    agents = fields_of(slabs["main"][0]["obs"][:-1])["agent"]
    np.testing.assert_array_equal(agents[0], np.broadcast_to([0, 1, 2], (ENVS, 3)))


def test_saved_rows_go_on_as_if_nothing_had_been() -> None:
    graph = graph_of({"*": "main"}, length=(3, 11), end="random")
    derived = derived_of(graph)
    group, _ = record(graph, derived, slabs=4)
    saved = snapshot(group, barrier=1)
    other = Group(graph, derived, envs=ENVS, steps=STEPS, first_env=10, reading=Reading())
    other.reset()
    restore(other, saved, barrier=1)
    trees: list[Any] = [play(one, derived, slot=77)["main"].tree for one in (group, other)]
    for key in ("obs", "action", "reward", "valid", "first"):
        np.testing.assert_array_equal(trees[0][key], trees[1][key])


def test_action_shapes_follow_the_spec() -> None:
    graph = graph_of({"*": "main"}, action=[3, 2])
    spec = derived_of(graph).policies["main"].spec
    assert zeros(lead(action_leaves(spec.action), 4)).shape == (4, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("key", "what"), [("reward", "reward"), ("obs", "observation"), ("state", "observation")])
def test_a_slab_with_a_number_that_is_not_finite_is_not_handed_on(key: str, what: str, value: float) -> None:
    graph = graph_of({"*": "main"}, state=4)
    derived = derived_of(graph)
    group = Group(graph, derived, envs=ENVS, steps=STEPS, first_env=10, reading=Reading())
    group.reset()
    play(group, derived, slot=0)
    step, env = group.env.step, 1

    def broken(actions: Any, out: Any) -> None:
        step(actions, out)
        if group.tick == STEPS + 2:
            written = {"reward": out.teams["agent"].reward, "obs": out.teams["agent"].obs[..., 3:], "state": out.state}
            written[key][env, 0] = value

    group.env.step = broken  # type: ignore[method-assign]
    with pytest.raises(UserError) as caught:
        play(group, derived, slot=1)
    assert caught.value.code == "E05"
    assert f"env 11 wrote the {what} {value}" in str(caught.value)
    row = 2 if key == "reward" else 3  # what the env writes after its step is the next row's observation
    facts = dict(caught.value.facts)
    assert facts["key"] == key and facts["step"] == f"{STEPS + row} of this env, seed 5"


def test_large_numbers_that_are_finite_are_handed_on() -> None:
    graph = graph_of({"*": "main"})
    derived = derived_of(graph)
    group = Group(graph, derived, envs=ENVS, steps=STEPS, first_env=10, reading=Reading())
    group.reset()
    step = group.env.step

    def large(actions: Any, out: Any) -> None:
        step(actions, out)
        out.teams["agent"].obs[..., 5:] = 3e38

    group.env.step = large  # type: ignore[method-assign]
    assert play(group, derived, slot=0)
