"""The environment as a whole: specs, seeds, replay, saving, presence, statistics, and the PettingZoo view."""

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hide_stage import EAST, GRAB, LOCK, NORTH, STAY, Stage, random_actions

from srl.api.env import Block, new_block, renew
from srl.core.seeds import Seeds
from srl.core.tree import leaves
from srl.envs.hide_and_seek import HideAndSeek, HideAndSeekVec

with warnings.catch_warnings():
    # its package imports a deprecated way to make its own games
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import parallel_api_test


def run(env: HideAndSeekVec, block: Block, actions: list[dict[str, Any]]) -> list[Any]:
    """Every leaf of every block after each step."""
    rows = []
    for action in actions:
        renew(block)
        env.step(action, block)
        rows.append({path: leaf.copy() for path, leaf in leaves(as_tree(block))})
    return rows


def as_tree(block: Block) -> dict[str, Any]:
    parts = ("obs", "mask", "active", "reward", "terminated", "truncated")
    return {name: {part: getattr(team, part) for part in parts} for name, team in block.teams.items()}


def same(first: list[Any], second: list[Any]) -> bool:
    return all(np.array_equal(a[path], b[path]) for a, b in zip(first, second, strict=True) for path in a)


def started(count: int = 2, seed: int = 0, **args: Any) -> tuple[HideAndSeekVec, Block]:
    env = HideAndSeekVec(count, Seeds(seed), **args)
    block = new_block(env.spec, count)
    env.reset(block)
    return env, block


TABLE = {
    "original_quadrant": {"self": (10,), "lidar": (30,), "agents": (3, 10), "boxes": (2, 12), "ramps": (1, 9)},
    "original": {"self": (10,), "lidar": (30,), "agents": (5, 10), "boxes": (9, 15), "ramps": (2, 15)},
    "quadrant": {"self": (11,), "lidar": (30,), "agents": (3, 11), "boxes": (2, 12), "ramps": (1, 9)},
    "full": {"self": (11,), "lidar": (30,), "agents": (5, 11), "boxes": (9, 15), "ramps": (2, 15)},
    "mini": {"self": (11,), "lidar": (30,), "agents": (1, 11), "boxes": (1, 12)},
}


@pytest.mark.parametrize("preset", sorted(TABLE))
def test_observations_have_the_published_shapes_and_teams_share_them(preset: str) -> None:
    env, _ = started(1, preset=preset)
    hider, seeker = env.spec.teams["hider"], env.spec.teams["seeker"]
    assert hider.obs == seeker.obs and hider.action == seeker.action
    assert isinstance(hider.obs, dict)
    shapes = {key: leaf.shape for key, leaf in hider.obs.items()}
    for kind in ("agents", "boxes", "ramps"):
        if kind in TABLE[preset]:
            assert shapes.pop(f"mask_{kind}") == shapes.pop(f"exist_{kind}") == TABLE[preset][kind][:1]
    assert shapes == TABLE[preset]
    assert {leaf.dtype for leaf in hider.obs.values()} == {"float32"}


def test_an_agents_own_row_reads_as_the_table_says() -> None:
    stage = Stage(preparation=0.5, horizon=8).build(agents=[(1.0, 2.0), None, (3.0, 4.0), None])
    stage.step(EAST, times=2)
    row = stage.block.teams["hider"].obs["self"][0, 0]
    x, y, z, yaw = stage.agents[0]
    speeds = stage.poses.agent_speeds[0, 0]
    assert row == pytest.approx([x, y, z, np.cos(yaw), np.sin(yaw), *speeds, 1.0, 0.5], abs=1e-6)
    assert stage.block.teams["seeker"].obs["self"][0, 0, -2] == 0.0
    other = stage.block.teams["seeker"].obs
    order = [agent % 4 for agent in (1, 0, -1)]
    assert other["exist_agents"][0, 0].tolist() == [float(agent in (0, 2)) for agent in order]
    assert other["agents"][0, 0, 1] == pytest.approx(row, abs=1e-6)
    assert not other["agents"][0, 0, 0].any()


def test_the_others_are_the_agents_before_in_falling_order() -> None:
    stage = Stage().build(agents=[(3, 3), (4, 3), (1, 5), (1, 1)]).turn(0, (9, 3)).turn(1, (9, 3)).look().step()
    for agent, others in enumerate([(3, 2, 1), (0, 3, 2), (1, 0, 3), (2, 1, 0)]):
        team, row = (("hider", agent), ("seeker", agent - 2))[agent >= 2]
        obs = stage.block.teams[team].obs
        assert obs["agents"][0, row, :, :2] == pytest.approx(stage.agents[list(others), :2], abs=1e-6)
        assert obs["agents"][0, row, :, -2].tolist() == [other < 2 for other in others]
        assert obs["mask_agents"][0, row].tolist() == stage.scene.sees_agent[0, agent, list(others)].tolist()
    assert stage.block.teams["hider"].obs["mask_agents"][0].tolist() == [[0, 0, 1], [0, 0, 0]]


def test_exist_tells_what_is_there_and_mask_what_is_seen() -> None:
    stage = Stage().build(agents=[(3, 3), None, (1, 5), (1, 1)], objects=[(2, 5), None, (2, 1)])
    stage.turn(0, (9, 3)).turn(2, (-9, 5)).turn(3, (-9, 1)).look().step()
    assert not stage.scene.sees_agent.any() and not stage.scene.sees_object.any()
    rows = {"hider": [0], "seeker": [0, 1]}
    for name, here in rows.items():
        obs = stage.block.teams[name].obs
        assert not any(obs[f"mask_{kind}"].any() for kind in ("agents", "boxes", "ramps"))
        assert (obs["exist_boxes"][0, here] == (1, 0)).all() and (obs["exist_ramps"][0, here] == 1).all()
        assert (obs["exist_agents"][0, here].sum(1) == 2).all(), "all but oneself and the one who is not there"
    assert stage.block.teams["hider"].obs["exist_agents"][0, 0].tolist() == [1, 1, 0]


def test_the_original_measures_from_the_corner_of_the_initial_box() -> None:
    stage = Stage(preset="original_quadrant", horizon=80).build(agents=[(1.0, 2.0), None, (3.0, 4.0)], objects=[(5.0, 1.0)])
    obs = stage.block.teams["hider"].obs
    assert obs["self"][0, 0, :4] == pytest.approx([0.85, 1.85, 0.0, 0.0], abs=1e-6)
    assert obs["boxes"][0, 0, 0, :3] == pytest.approx([4.75, 0.75, 0.0], abs=1e-6)


def test_locks_are_told_as_mine_my_teams_and_at_all() -> None:
    stage = Stage().build(agents=[(2.0, 3.0), (5.0, 5.0), (5.5, 5.5)], objects=[(2.45, 3.0)])
    stage.turn(0, (2.45, 3.0)).look().step(LOCK)
    teams = stage.block.teams
    assert teams["hider"].obs["boxes"][0, :, 0, -3:].tolist() == [[1, 1, 1], [0, 1, 1]]
    assert teams["seeker"].obs["boxes"][0, 0, 0, -3:].tolist() == [0, 0, 1]


def test_sizes_of_long_boxes_are_told() -> None:
    stage = Stage(preset="full", lidar=30).build(
        agents=[(1, 1), None, None, (2, 2)], objects=[(3, 3)], sizes=[(1.65, 0.15, 0.5), *[(0.5,) * 3] * 10]
    )
    boxes = stage.block.teams["hider"].obs["boxes"][0, 0]
    assert boxes[0, 9:12] == pytest.approx([1.65, 0.15, 0.5]) and not boxes[1:].any()


def test_absent_agents_are_inactive_rows_of_zeros_without_a_choice() -> None:
    env, block = started(16, preset="full")
    rng = np.random.default_rng(0)
    renew(block)
    env.step(random_actions(env, rng), block)
    absent = 0
    for team in block.teams.values():
        gone = ~team.active
        absent += gone.sum()
        assert all(not leaf[gone].any() for leaf in team.obs.values())
        assert not team.reward[gone].any()
        assert team.mask is not None and (team.mask[gone].sum(-1) == 5).all()
    assert absent > 10


def test_equal_seeds_give_equal_episodes_and_others_do_not() -> None:
    rng = np.random.default_rng(0)
    (first, a), (again, b), (other, c) = started(3), started(3), started(3, seed=1)
    actions = [random_actions(first, rng) for _ in range(90)]
    rows = run(first, a, actions)
    assert same(rows, run(again, b, actions))
    assert not same(rows, run(other, c, actions))


def test_worlds_do_not_depend_on_how_many_there_are() -> None:
    rng = np.random.default_rng(0)
    (three, a), (one, b) = started(3), started(1)
    actions = [random_actions(three, rng) for _ in range(100)]
    rows = run(three, a, actions)
    alone = run(one, b, [{name: action[:1] for name, action in step.items()} for step in actions])
    assert all(np.array_equal(row[path][:1], other[path]) for row, other in zip(rows, alone, strict=True) for path in row)


def test_an_episode_happens_again_from_its_seed_and_its_actions() -> None:
    env, block = started(1, preset="full", horizon=30)
    rng = np.random.default_rng(1)
    run(env, block, [random_actions(env, rng) for _ in range(31)])
    first = {path: leaf.copy() for path, leaf in leaves(as_tree(block))}
    actions = [random_actions(env, rng) for _ in range(30)]
    rows = run(env, block, actions)
    seed = int(block.stats[0, env.spec.stats.index("seed")])
    other, again = started(1, seed=99, preset="full", horizon=30)
    other.replay([seed], again)
    assert all(np.array_equal(leaf, first[path]) for path, leaf in leaves(as_tree(again)) if "obs" in path)
    assert same(rows, run(other, again, actions))


@pytest.mark.parametrize("preset", ["mini", "full", "sequential_lock", "shelter"])
def test_saved_worlds_go_on_exactly(preset: str) -> None:
    args: dict[str, Any] = {"preset": preset, "horizon": 24}
    env, block = started(3, **args)
    rng = np.random.default_rng(2)
    run(env, block, [random_actions(env, rng) for _ in range(17)])
    saved = env.save()
    assert dict(leaves(saved))
    kept = {path: leaf.copy() for path, leaf in leaves(saved)}
    actions = [random_actions(env, rng) for _ in range(40)]
    rows = run(env, block, actions)
    stats = block.stats.copy()
    assert all(np.array_equal(leaf, kept[path], equal_nan=True) for path, leaf in leaves(saved)), "a save is a copy"
    other = HideAndSeekVec(3, Seeds(0), **args)
    again = new_block(other.spec, 3)
    other.load(saved)
    assert same(rows, run(other, again, actions))
    assert np.array_equal(stats, again.stats)


def test_held_and_locked_objects_survive_a_save() -> None:
    stage = Stage().build(agents=[(2.0, 3.0), (4.0, 4.45), (5.5, 5.5)], objects=[(2.45, 3.0), (4.0, 4.0)])
    stage.turn(0, (2.45, 3.0)).look().step(GRAB, LOCK)
    assert stage.scene.grabbed[0, 0] == 0 and stage.scene.locked[0, 1]
    saved = stage.env.save()
    moves = ((0, 8, 5, 1, 0), (5, 0, 5, 0, 1))
    expected = stage.step(*moves, times=10).poses.objects.copy()
    other = Stage()
    other.env.load(saved)
    assert np.array_equal(other.step(*moves, times=10).poses.objects, expected)
    assert np.abs(expected[0, 1, :2] - (4.0, 4.0)).max() < 0.005


def test_copies_end_on_their_own_and_start_anew_on_the_next_step() -> None:
    env, block = started(3, preset="mini", horizon=10)
    rng = np.random.default_rng(0)
    env.scene.tick[1] = 4
    ends = [row["hider/truncated"][:, 0].tolist() for row in run(env, block, [random_actions(env, rng) for _ in range(12)])]
    assert [tick for tick, row in enumerate(ends, 1) if row[1]] == [6]
    assert [tick for tick, row in enumerate(ends, 1) if row[0]] == [10]
    assert env.scene.tick.tolist() == [1, 5, 1]


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e300])
def test_a_step_whose_simulator_fails_did_not_happen_and_cuts_the_episode(
    broken: float, capfd: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)  # the simulator writes a log where it is
    env, block = started(2, preset="mini", preparation=0.0)
    rng = np.random.default_rng(0)
    last = run(env, block, [random_actions(env, rng) for _ in range(3)])[-1]
    before = env.poses.agents[1].copy()
    env.poses.agent_speeds[1, 0, 0] = broken
    row = run(env, block, [random_actions(env, rng)])[0]
    assert np.array_equal(env.poses.agents[1], before)
    assert env.scene.tick.tolist() == [4, 3]
    for team in ("hider", "seeker"):
        assert row[f"{team}/truncated"][:, 0].tolist() == [False, True] and not row[f"{team}/terminated"].any()
        assert row[f"{team}/reward"][0, 0] in (-1, 1) and row[f"{team}/reward"][1, 0] == 0
        sound = [key for key in row if key.startswith(f"{team}/obs/") and "boxes" not in key]
        assert len(sound) > 3 and all(np.array_equal(row[key][1], last[key][1]) for key in sound), "seen before the step"
    numbers = dict(zip(env.spec.stats, block.stats[1], strict=True))
    assert (
        numbers["warned"] == 1 and numbers["hider_return"] == -numbers["seeker_return"] and abs(numbers["hider_return"]) in (1, 3)
    )
    row = run(env, block, [random_actions(env, rng)])[0]
    assert all(np.isfinite(leaf).all() for leaf in row.values()) and row["hider/active"].all()
    assert env.scene.tick.tolist() == [5, 0]


def test_a_step_that_ends_broken_fails_at_once(monkeypatch: Any) -> None:
    env, block = started(2, preset="mini")
    rng = np.random.default_rng(0)
    run(env, block, [random_actions(env, rng) for _ in range(3)])
    before, batch = env.poses.agents.copy(), env._worlds._batch

    class Breaking:
        """The simulator finds out at its next step only."""

        def __getattr__(self, name: str) -> Any:
            return getattr(batch, name)

        def step(self, *args: Any, **settings: Any) -> None:
            batch.step(*args, **settings)
            env.poses.agent_speeds[0, 1, 2] = np.inf

    monkeypatch.setattr(env._worlds, "_batch", Breaking())
    row = run(env, block, [random_actions(env, rng)])[0]
    assert row["hider/truncated"][:, 0].tolist() == [True, False]
    assert np.array_equal(env.poses.agents[0], before[0]) and not np.array_equal(env.poses.agents[1], before[1])
    assert all(np.isfinite(leaf).all() for leaf in row.values())


def stat(stage: Stage, name: str) -> float:
    return float(stage.block.stats[0, stage.env.spec.stats.index(name)])


def test_statistics_of_boxes_locks_and_grabs() -> None:
    stage = Stage(horizon=20, preparation=0.4).build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[(2.45, 3.0)])
    stage.turn(0, (2.45, 3.0)).look()
    stage.step((0, 5, 5, 1, 0), times=6).step(LOCK, times=3)
    moved = 2.45 - stage.objects[0, 0]
    stage.step(LOCK, times=11)
    assert stat(stage, "box_move") == pytest.approx(moved, abs=0.01) and moved > 1
    assert stat(stage, "box_move_prep") == pytest.approx(moved, abs=0.3)
    assert stat(stage, "box_move_main") < 0.3
    assert stat(stage, "box_lock") == 1
    assert stat(stage, "hider_grab") == pytest.approx(6 / 20) and stat(stage, "seeker_grab") == 0
    assert stat(stage, "ramp_move") == stat(stage, "launched") == stat(stage, "fast") == 0


def test_statistics_of_sight_distance_room_and_return() -> None:
    stage = Stage(horizon=10, preparation=0.4)
    stage.build(agents=[(4, 1), (1, 5), (4, 2), None], room=(3.1, 5.9, 0.1, 3.1)).step(times=6)
    # from here on the seeker looks away, and stands high; the hider 1 leaves
    stage.turn(2, (4, 9)).agents[2, 2] = 0.9
    stage.agents[1, :2] = -1, 1
    stage.step(times=4)
    assert stat(stage, "seen") == pytest.approx(2 / 6)
    assert stat(stage, "hider_return") == -stat(stage, "seeker_return") == -2 + 4
    assert stat(stage, "hider_in_room_prep") == 0.5 and stat(stage, "hider_in_room") == 0.5
    assert stat(stage, "seeker_in_room") == 1
    assert 0 < stat(stage, "seeker_high") <= 4 / 6
    assert stat(stage, "outside") == 4
    assert 1 < stat(stage, "distance") < 5


def test_launched_and_fast_agents_are_counted() -> None:
    stage = Stage(horizon=4).build(agents=[(1, 1), None, (5, 5)])
    stage.agents[0, 2] = 30.0
    stage.poses.agent_speeds[0, 2, 0] = 300.0
    stage.step(times=4)
    assert stat(stage, "launched") == 4 and stat(stage, "fast") >= 1


def test_numbers_drawn_per_process_stay() -> None:
    env, _ = started(8, preset="original", horizon=4)
    there = env.scene.agent_there.copy()
    assert (there == there[0]).all()
    counts = {tuple(started(1, seed=seed, preset="original")[0].scene.agent_there[0]) for seed in range(12)}
    assert len(counts) > 2


@pytest.mark.parametrize("preset", ["mini", "quadrant", "blueprint"])
def test_the_pettingzoo_view_passes_the_api_test(preset: str) -> None:
    parallel_api_test(HideAndSeek(preset, horizon=20), num_cycles=45)


def test_the_pettingzoo_view_has_only_the_agents_of_this_episode_and_gives_masks_and_statistics() -> None:
    env = HideAndSeek("full", horizon=5, preparation=0.4)
    sizes = set()
    for seed in range(12):
        observations, infos = env.reset(seed=seed)
        sizes.add(len(env.agents))
        assert set(observations) == set(env.agents) <= set(env.possible_agents)
        assert infos["seeker_0"]["action_mask"].sum() == 5 and infos["hider_0"]["action_mask"].all()
        assert env.observation_space("hider_0").contains(observations["hider_0"])
    while env.agents:
        *_, infos = env.step({agent: np.array(STAY) for agent in env.agents})
    assert infos["hider_0"]["episode_stats"]["seed"] == 11
    assert len(sizes) > 2


def test_the_pettingzoo_view_repeats_an_episode_from_its_seed() -> None:
    env = HideAndSeek("full", horizon=10, preparation=0.0)
    ends = []
    for _ in range(2):
        env.reset(seed=7)
        for tick in range(10):
            observations, *_ = env.step({agent: np.array((EAST, NORTH)[tick % 2]) for agent in env.agents})
        ends.append(np.concatenate([obs["self"] for obs in observations.values()]))
    assert np.array_equal(*ends)


def test_the_environment_needs_no_torch() -> None:
    code = "import sys, srl.envs.hide_and_seek.env, srl.envs.hide_and_seek.worlds; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_only_three_files_know_mujoco() -> None:
    code = "import sys, srl.envs.hide_and_seek.env, srl.envs.hide_and_seek.transfer; print('mujoco' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("grabbing", [False, True], ids=["random", "grabbing"])
@pytest.mark.parametrize("preset", ["quadrant", "full", "mini", "mini_2v2"])
def test_nobody_is_launched_in_two_hundred_episodes(preset: str, grabbing: bool) -> None:
    env, block = started(40, preset=preset, horizon=80, outer_walls=1.0)
    rng, totals = np.random.default_rng(0), {"launched": 0.0, "fast": 0.0, "warned": 0.0}
    held = 0.0
    for tick in range(5 * 81):
        if tick % 4 == 0:
            actions = random_actions(env, rng)
        if grabbing:
            grab_the_nearest(env, actions)
        renew(block)
        env.step(actions, block)
        held += float((env.scene.grabbed[env.scene.agent_there] >= 0).mean()) / (5 * 81)
        if block.teams["hider"].truncated.any():
            for name in totals:
                totals[name] += block.stats[:, env.spec.stats.index(name)].sum()
    assert totals == {"launched": 0.0, "fast": 0.0, "warned": 0.0}
    assert held > 0.1 or not grabbing


def grab_the_nearest(env: HideAndSeekVec, actions: dict[str, Any]) -> None:
    """Everybody pulls all the time; who holds nothing runs to the nearest object, and turns as before."""
    away = env.poses.objects[:, None, :, :3] - env.poses.agents[:, :, None, :3]
    nearest = np.square(away).sum(3).argmin(2)[:, :, None, None]
    flat = np.take_along_axis(away, nearest, 2)[:, :, 0, :2]
    steer = np.rint(5 + 5 * flat / np.abs(flat).max(2, keepdims=True)).astype(int)
    free = env.scene.grabbed < 0
    for name, part in (("hider", slice(0, env.config.hiders)), ("seeker", slice(env.config.hiders, None))):
        actions[name][..., 3] = 1
        actions[name][free[:, part], :2] = steer[:, part][free[:, part]]
