"""Recorded episodes become a store of the same transitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.api.actions import action_map, recorded_action
from srl.api.env import Box, Discrete
from srl.api.slab import Window
from srl.core.spec import Leaf, zeros
from srl.core.tree import leaves
from srl.replay import saved
from srl.replay.dataset import load_dataset
from srl.replay.store import Store, batch_record
from tests.errors import raises
from tests.replay.slow import Episodes, slab_record

SINGLE = Window(length=1)


def record_of(every=None, mask=False):
    record = {
        "obs": Leaf((5, 2, 1, 2), "float32"),
        "action": Leaf((4, 2, 1, 1), "float32"),
        "reward": Leaf((4, 2, 1), "float32"),
        "terminated": Leaf((4, 2, 1), "bool"),
        "truncated": Leaf((4, 2, 1), "bool"),
        "first": Leaf((5, 2, 1), "bool"),
        "valid": Leaf((4, 2, 1), "bool"),
        "version": Leaf((1,), "int64"),
        "reused": Leaf((1,), "bool"),
        "origin": Leaf((2,), "int64"),
    }
    if mask:
        record |= {"mask": Leaf((5, 2, 1, 3), "bool"), "choice": Leaf((4, 2, 1), "bool")}
    if every:
        record["memory"] = {"h": Leaf((2, 2, 1, 2), "float32")}
    return record


def episodes(seed, count, *, end=True):
    """Rows of several episodes, one after another; every observation is another number."""
    rng = np.random.default_rng(seed)
    rows = {name: [] for name in ("obs", "next_obs", "action", "reward", "terminated", "truncated")}
    number = 0.0
    for episode in range(count):
        length = int(rng.integers(1, 8))
        for step in range(length):
            last = step == length - 1 and (end or episode < count - 1)
            terminated = last and bool(rng.random() < 0.5)
            rows["obs"].append([number, -number])
            rows["next_obs"].append([number + 1, -number - 1])
            rows["action"].append([number / 2])
            rows["reward"].append(rng.normal())
            rows["terminated"].append(terminated)
            rows["truncated"].append(last and not terminated)
            number += 1
        number += 1
    return {name: np.array(column) for name, column in rows.items()}


def transitions(store, record, window=SINGLE, count=400):
    out = zeros(batch_record(record, count, window))
    store.sample(count, np.random.default_rng(0), out)
    return out


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12), end=st.booleans())
def test_every_row_is_drawn_with_its_next_observation(tmp_path_factory, seed, count, end):
    folder = tmp_path_factory.mktemp("data")
    expected = {}
    for file in range(2):
        rows = episodes(seed + file, count, end=end)
        rows["obs"] += 1000 * file
        rows["next_obs"] += 1000 * file
        np.savez(folder / f"{file}.npz", **rows)
        for index, obs in enumerate(rows["obs"]):
            expected[np.float32(obs[0])] = {name: column[index] for name, column in rows.items()}
    record = record_of()
    store = load_dataset(folder, record, window=SINGLE, gamma=0.5)
    assert len(store) == len(expected)
    out = transitions(store, record)
    for b in range(400):
        row = expected[out["obs"][0, b, 0, 0]]
        assert np.allclose(out["obs"][1, b, 0], row["next_obs"])
        assert out["action"][0, b, 0, 0] == np.float32(row["action"][0])
        assert out["reward"][0, b, 0] == np.float32(row["reward"])
        assert out["terminated"][0, b, 0] == row["terminated"] and out["truncated"][0, b, 0] == row["truncated"]
        assert out["discount"][0, b, 0] == (0.0 if row["terminated"] else 0.5)


def test_without_next_observations_a_row_that_was_truncated_is_left_out(tmp_path):
    rows = episodes(3, 10)
    del rows["next_obs"]
    np.savez(tmp_path / "rows.npz", **rows)
    record = record_of()
    store = load_dataset(tmp_path / "rows.npz", record, window=SINGLE)
    assert len(store) == len(rows["reward"]) - rows["truncated"].sum() < len(rows["reward"])
    out = transitions(store, record)
    alive = ~out["terminated"][0, :, 0]
    assert (out["obs"][1, alive, 0, 0] == out["obs"][0, alive, 0, 0] + 1).all()


def test_observations_may_have_one_row_more(tmp_path):
    rows = episodes(4, 1, end=False)
    rows["obs"] = np.concatenate([rows["obs"], rows.pop("next_obs")[-1:]])
    np.savez(tmp_path / "rows.npz", **rows)
    assert len(load_dataset(tmp_path, record_of(), window=SINGLE)) == len(rows["reward"])


def test_names_of_known_data_sets_are_understood(tmp_path):
    rows = episodes(5, 6)
    names = {"obs": "observations", "next_obs": "next_observations", "action": "actions", "reward": "rewards"}
    names |= {"terminated": "terminals", "truncated": "timeouts"}
    np.savez(tmp_path / "rows.npz", **{names[name]: column for name, column in rows.items()})
    assert len(load_dataset(tmp_path, record_of(), window=SINGLE)) == len(rows["reward"])


def test_sequences_stay_within_one_episode_and_begin_with_a_memory_of_zeros(tmp_path):
    rows = episodes(6, 40)
    np.savez(tmp_path / "rows.npz", **rows)
    record, window = record_of(every=2), Window(2, 2, 0)
    out = transitions(load_dataset(tmp_path, record, window=window), record, window)
    assert (np.diff(out["obs"][..., 0, 0], axis=0) == 1).all()
    assert not out["memory"]["h"].any() and out["valid"].all()


@pytest.mark.parametrize(("agents", "size", "slabs"), [(1, 60, 4), (1, 60, 30), (2, 200, 25)])
def test_a_replay_that_another_run_has_saved_is_a_data_set(tmp_path, agents, size, slabs):
    """With gaps, several envs and agents, before and after the rings are full: the same transitions, once each."""
    record = slab_record(5, 2, agents, full=True)
    kept = Store(record, columns=2 * agents, size=size, window=SINGLE, n_step=3, gamma=0.9)
    source, rng = Episodes(record, np.random.default_rng(0), 0), np.random.default_rng(1)
    for index in range(slabs):
        slab = source.slab()
        kept.insert(slab, 0, index > 0 and rng.random() < 0.8)
    saved.write(tmp_path / "replays" / "replay_0", {f"store/{name}": array for name, array in kept.state().items()})
    store = load_dataset(tmp_path / "replays", record, window=SINGLE, n_step=3, gamma=0.9)
    assert len(store) == len(kept)
    found = []
    for one in (store, kept):
        out = dict(leaves(transitions(one, record, count=40 * len(kept))))
        rows = {
            name: leaf
            for name, leaf in out.items()
            if name not in ("ids", "version", "weight", "env_steps", "truncated", "choice")
        }
        found.append(
            {float(rows["obs/a"][0, b, 0, 0]): {name: leaf[:, b] for name, leaf in rows.items()} for b in range(len(out["ids"]))}
        )
    assert found[0].keys() == found[1].keys() and len(found[0]) == len(kept)
    for number, row in found[0].items():
        for name, leaf in row.items():
            assert np.allclose(leaf, found[1][number][name]), name


def test_masks_allow_everything_if_a_data_set_has_none(tmp_path):
    np.savez(tmp_path / "rows.npz", **episodes(7, 4))
    record = record_of(mask=True)
    out = transitions(load_dataset(tmp_path, record, window=SINGLE), record)
    assert out["mask"].all() and out["choice"].all()


@pytest.mark.parametrize("bounds", ["affine", "clip", "none"])
def test_actions_are_those_that_the_policy_would_have_recorded(bounds):
    box = Box((2,), low=np.array([-2.0, 0.0]), high=np.array([2.0, 1.0]))
    action = {"a": box, "b": Discrete(3)}
    given = {"a": np.array([[-2.0, 0.25], [1.0, 1.0]], np.float32), "b": np.array([0, 2])}
    recorded = recorded_action(action, bounds)(given)
    again = action_map(action, bounds)(recorded)
    assert np.allclose(again["a"], given["a"]) and (again["b"] == given["b"]).all()
    if bounds == "affine":
        assert np.allclose(recorded["a"], [[-1.0, -0.5], [0.5, 1.0]])


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.pop("reward"),
        lambda rows: rows.pop("obs"),
        lambda rows: rows.update(obs=rows["obs"][:, :1]),
        lambda rows: rows.update(action=rows["action"][:-1]),
        lambda rows: rows.update(action=rows["action"].astype(complex)),
        lambda rows: rows["reward"].__setitem__(3, np.nan),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, change):
    rows = episodes(8, 5)
    change(rows)
    np.savez(tmp_path / "rows.npz", **rows)
    with raises("E11"):
        load_dataset(tmp_path, record_of(), window=SINGLE)


def test_a_folder_without_files_and_a_file_of_another_kind_are_refused(tmp_path):
    with raises("E11"):
        load_dataset(tmp_path, record_of(), window=SINGLE)
    (tmp_path / "rows.npz").write_text("no arrays")
    with raises("E11"):
        load_dataset(tmp_path, record_of(), window=SINGLE)
