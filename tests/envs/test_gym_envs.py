"""The hand loop and the vectorised envs against gymnasium itself, and what they say when an env is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import srl
from srl.api.env import TEAM, Box, Discrete, MultiBinary, MultiDiscrete, new_block, renew
from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.envs.check import check_env
from srl.envs.gym import GymEnv
from srl.envs.gym_vector import GymVectorEnv
from srl.envs.spaces import actions_of, obs_of
from tests.errors import raises


class Odd(gymnasium.Env[Any, Any]):
    """An env with spaces, observations and ends as a test wants them."""

    def __init__(
        self, obs: Any = None, action: Any = None, row: Any = None, length: int = 3, render_mode: str | None = None
    ) -> None:
        self.observation_space = obs if obs is not None else spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = action if action is not None else spaces.Discrete(2)
        self.row = row
        self.length = length
        self.render_mode = render_mode
        self.taken: list[Any] = []
        self.info: dict[str, Any] = {}
        self.after_step: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self._row(), dict(self.info)

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        self.steps += 1
        row = self._row() if self.after_step is None else self.after_step
        return row, 1.0, self.steps >= self.length, False, {**self.info, "steps": self.steps, "is_success": True}

    def render(self) -> Any:
        return np.full((4, 5, 3), self.steps, np.uint8)

    def _row(self) -> Any:
        return self.row if self.row is not None else self.observation_space.sample()


def env_of(one: Odd, count: int = 1, **args: Any) -> GymEnv:
    """A GymEnv whose first copy is that object."""
    made = [one]

    def make(**more: Any) -> Odd:
        return made.pop() if made else Odd(one.observation_space, one.action_space, one.row, one.length)

    return GymEnv(count, Seeds(0), id=make, **args)


def played(env: GymEnv, *actions: Any) -> Any:
    block = new_block(env.spec, env.count)
    env.reset(block)
    for action in actions:
        renew(block)
        env.step({TEAM: action}, block)
    return block


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_rows_equal_those_of_gymnasium_made_with_its_wrappers(name: str) -> None:
    seeds = Seeds(7, first=2)
    env = GymEnv(2, seeds, id=name, args={"max_episode_steps": 30})
    peers = [gymnasium.make(name, max_episode_steps=30) for _ in range(2)]
    block = new_block(env.spec, 2)
    env.reset(block)
    episode, ended = [0, 0], [False, False]
    rows = [peer.reset(seed=seeds.seed(i, 0))[0] for i, peer in enumerate(peers)]
    rng = np.random.default_rng(0)
    for _ in range(100):
        for i, row in enumerate(rows):
            np.testing.assert_array_equal(block.teams[TEAM].obs[i, 0], row)
        discrete = isinstance(peers[0].action_space, spaces.Discrete)
        actions = rng.integers(0, 2, (2, 1)) if discrete else rng.uniform(-2, 2, (2, 1, 1)).astype(np.float32)
        renew(block)
        env.step({TEAM: actions}, block)
        team = block.teams[TEAM]
        for i, peer in enumerate(peers):
            if ended[i]:
                episode[i] += 1
                rows[i], ended[i] = peer.reset(seed=seeds.seed(i, episode[i]))[0], False
                continue
            rows[i], reward, terminated, truncated, _ = peer.step(int(actions[i, 0]) if discrete else actions[i, 0])
            assert (team.terminated[i, 0], team.truncated[i, 0]) == (terminated, truncated)
            assert team.reward[i, 0] == np.float32(reward)
            ended[i] = terminated or truncated
    assert sum(episode) >= 4


def test_a_vectorised_cartpole_equals_gymnasiums() -> None:
    seeds = Seeds(7)
    env = GymVectorEnv(8, seeds, id="CartPole-v1")
    peer = gymnasium.make_vec("CartPole-v1", 8, vectorization_mode="vector_entry_point")
    block = new_block(env.spec, 8)
    env.reset(block)
    row, _ = peer.reset(seed=seeds.seed(0, 0))
    rng = np.random.default_rng(0)
    for _ in range(80):
        np.testing.assert_array_equal(block.teams[TEAM].obs[:, 0], row)
        actions = rng.integers(0, 2, (8, 1))
        renew(block)
        env.step({TEAM: actions}, block)
        row, reward, terminated, truncated, _ = peer.step(actions[:, 0])
        np.testing.assert_array_equal(block.teams[TEAM].reward[:, 0], reward)
        np.testing.assert_array_equal(block.teams[TEAM].terminated[:, 0], terminated)
        np.testing.assert_array_equal(block.teams[TEAM].truncated[:, 0], truncated)


@pytest.mark.parametrize(
    ("space", "value", "leaf", "row"),
    [
        (spaces.Box(-1, 1, (2,), np.float64), np.array([0.25, 1.0]), Leaf((2,), "float32"), [0.25, 1.0]),
        (spaces.Box(-1, 1, (), np.float32), np.float32(0.5), Leaf((1,), "float32"), [0.5]),
        (spaces.Box(0, 255, (2, 1), np.uint8), np.array([[7], [255]], np.uint8), Leaf((2, 1), "uint8"), [[7], [255]]),
        (spaces.Box(0, 9, (2,), np.int64), np.array([3, 9]), Leaf((2,), "float32"), [3, 9]),
        (spaces.Discrete(3, start=5), 6, Leaf((3,), "float32"), [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), Leaf((5,), "float32"), [0, 1, 0, 0, 1]),
        (spaces.MultiBinary([2, 2]), np.array([[1, 0], [0, 1]], np.int8), Leaf((4,), "float32"), [1, 0, 0, 1]),
    ],
)
def test_observations_become_rows(space: Any, value: Any, leaf: Leaf, row: Any) -> None:
    env = env_of(Odd(space, row=value))
    assert env.spec.teams[TEAM].obs == leaf
    block = played(env, np.zeros((1, 1), np.int64))
    np.testing.assert_array_equal(block.teams[TEAM].obs[0, 0], np.array(row, leaf.dtype))


def test_dict_and_tuple_observations_become_trees() -> None:
    space = spaces.Dict({"a/b": spaces.Discrete(2), "t": spaces.Tuple([spaces.Box(0, 1, (1,)), spaces.MultiBinary(2)])})
    value = {"a/b": 1, "t": (np.array([0.5], np.float32), np.array([0, 1], np.int8))}
    env = env_of(Odd(space, row=value))
    parts = {"0": Leaf((1,), "float32"), "1": Leaf((2,), "float32")}
    assert env.spec.teams[TEAM].obs == {"a.b": Leaf((2,), "float32"), "t": parts}
    obs = played(env).teams[TEAM].obs
    assert obs["a.b"][0, 0].tolist() == [0, 1] and obs["t"]["0"][0, 0] == 0.5 and obs["t"]["1"][0, 0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("space", "spec", "rows", "taken"),
    [
        (spaces.Discrete(3, start=-1), Discrete(3), np.array([[0]]), np.int64(-1)),
        (
            spaces.MultiDiscrete([[2, 3], [4, 5]]),
            MultiDiscrete((2, 3, 4, 5)),
            np.array([[[1, 2, 3, 4]]]),
            np.array([[1, 2], [3, 4]]),
        ),
        (spaces.MultiBinary(2), MultiBinary(2), np.array([[[1, 0]]], np.int8), np.array([1, 0], np.int8)),
        (spaces.Box(-2, 2, (), np.float32), Box((1,), (-2.0,), (2.0,)), np.array([[[0.5]]], np.float32), np.float32(0.5)),
        (
            spaces.Box(0, 9, (2,), np.int64),
            Box((2,), (0.0, 0.0), (9.0, 9.0)),
            np.array([[[1.6, 3.2]]], np.float32),
            np.array([2, 3]),
        ),
    ],
)
def test_rows_become_actions_of_the_space(space: Any, spec: Any, rows: Any, taken: Any) -> None:
    one = Odd(action=space)
    env = env_of(one)
    assert env.spec.teams[TEAM].action == spec
    played(env, rows)
    np.testing.assert_array_equal(one.taken[0], taken)
    assert space.contains(one.taken[0])
    assert hasattr(one.taken[0], "item")


def test_dict_and_tuple_actions_come_back_as_the_env_wants_them() -> None:
    space = spaces.Dict({"go": spaces.Discrete(2, start=1), "at": spaces.Tuple([spaces.Box(0, 1, (2,)), spaces.Discrete(2)])})
    one = Odd(action=space)
    env = env_of(one)
    rows = {"go": np.array([[1]]), "at": {"0": np.full((1, 1, 2), 0.5, np.float32), "1": np.array([[0]])}}
    played(env, rows)
    assert one.taken[0]["go"] == 2 and isinstance(one.taken[0]["at"], tuple) and space.contains(one.taken[0])


def test_an_action_kept_by_the_env_is_not_the_recorded_row() -> None:
    one = Odd(action=spaces.Box(-1, 1, (2,)))
    rows = np.zeros((1, 1, 2), np.float32)
    played(env_of(one), rows)
    one.taken[0][:] = 5
    assert not rows.any()


def test_masks_come_from_info_or_from_the_observation() -> None:
    from_info = Odd(action=spaces.Discrete(3))
    from_info.info = {"action_mask": np.array([1, 0, 1], np.int8)}
    inner = spaces.Dict({"observation": spaces.Box(0, 1, (2,)), "action_mask": spaces.MultiBinary(3)})
    from_obs = Odd(
        inner, spaces.Discrete(3), {"observation": np.ones(2, np.float32), "action_mask": np.array([1, 0, 1], np.int8)}
    )
    for one in (from_info, from_obs):
        env = env_of(one)
        assert env.spec.teams[TEAM].mask and env.spec.teams[TEAM].obs == Leaf((2,), "float32")
        block = played(env, np.array([[2]]))
        assert block.teams[TEAM].mask.tolist() == [[[True, False, True]]]
    assert not env_of(from_info, mask=False).spec.teams[TEAM].mask
    with pytest.raises(UserError, match="gives no action masks"):
        env_of(Odd(), mask=True)


def test_stats_and_signals_are_info_keys() -> None:
    env = env_of(Odd(length=2), stats=["is_success", "steps"], signals=["steps"])
    block = new_block(env.spec, 1)
    env.reset(block)
    for step in (1, 2):
        renew(block)
        env.step({TEAM: np.zeros((1, 1), np.int64)}, block)
        assert block.teams[TEAM].signals["steps"][0, 0] == step
    assert block.stats.tolist() == [[1.0, 2.0]]
    with raises("E05", match=r"has no info\['is_succes'\][^$]*did you mean 'is_success'"):
        played(env_of(Odd(length=1), stats=["is_succes"]), np.zeros((1, 1), np.int64))


def test_a_float_image_in_a_uint8_space_is_refused_word_for_word() -> None:
    camera = spaces.Dict({"camera": spaces.Box(0, 255, (64, 64, 3), np.uint8)})
    image = np.zeros((64, 64, 3))
    image[0, 0, 0], image[0, 0, 1] = -0.12, 1.03
    one = Odd(camera, length=99)
    one.after_step = {"camera": image}
    env = GymEnv(1, Seeds(0, first=5), id=lambda: one)
    env.name, env._srl_place = "MyEnv-v0", "actor/3"
    with raises("E05") as caught:
        played(env, np.zeros((1, 1), np.int64))
    seed = env.seeds.seed(0, 0)
    assert caught.value.format() == (
        f"error[E05]: env 'MyEnv-v0' (actor/3, env 5, seed {seed}, step 1) returned an observation outside its space\n"
        "  key: ['camera']   expected uint8 (64,64,3) in 0..255   got float64 (64,64,3) min -0.12 max 1.03\n"
        "  likely: image scaled to floats; declare Box(0,1,...,float32) or return uint8"
        f"     check it alone: srl check env MyEnv-v0 --seed {seed}"
    )


@pytest.mark.parametrize(
    ("row", "likely"),
    [
        (np.zeros(3, np.float32), r"declare shape \(3\), or return \(2\)"),
        (np.float32(0), r"or return \(2\)"),
        (np.zeros((1, 2), np.float32), "an axis too many"),
        (np.array([0.0, np.nan]), "blew up"),
    ],
)
def test_rows_that_numpy_would_take_silently_are_refused(row: Any, likely: str) -> None:
    one = Odd(length=99)
    one.after_step = row
    with raises("E05", match=likely):
        played(env_of(one), np.zeros((1, 1), np.int64))


def test_a_late_fault_is_found_by_the_rows_that_are_still_looked_at() -> None:
    one = Odd(length=999)
    env = env_of(one, checked=2)
    action = np.zeros((1, 1), np.int64)
    played(env, *[action] * 5)
    one.after_step = np.zeros(1, np.float32)
    with raises("E05", match="step 9"):
        for _ in range(8):
            env.step({TEAM: action}, new_block(env.spec, 1))


def test_cartpole_is_trusted_with_its_actions_only_after_the_checked_rows() -> None:
    env = GymEnv(1, Seeds(0), id="CartPole-v1", checked=3)
    wrong = {TEAM: np.full((1, 1), 2)}
    block = new_block(env.spec, 1)
    env.reset(block)
    with pytest.raises(AssertionError):
        env.step(wrong, block)
    for _ in range(4):
        env.step({TEAM: np.zeros((1, 1), np.int64)}, block)
    assert env._envs[0].action_space.contains(2)


def test_an_env_that_resets_within_the_last_step_is_refused() -> None:
    one = Odd(length=1)
    one.info = {"final_observation": np.zeros(2)}
    with raises("E05", match="an autoreset wrapper inside; take it away"):
        played(env_of(one), np.zeros((1, 1), np.int64))


def test_both_ends_of_an_episode_are_told() -> None:
    block = played(env_of(Odd(length=1), args={}), np.zeros((1, 1), np.int64))
    assert block.teams[TEAM].terminated[0, 0] and not block.teams[TEAM].truncated[0, 0]

    class Limited(Odd):
        pass

    env = GymEnv(1, Seeds(0), id=lambda: gymnasium.wrappers.TimeLimit(Limited(length=1), 1))
    block = played(env, np.zeros((1, 1), np.int64))
    assert block.teams[TEAM].terminated[0, 0] and block.teams[TEAM].truncated[0, 0]


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_an_exception_says_which_copy_raised(kind: type[BaseException]) -> None:
    class Broken(Odd):
        def step(self, action: Any) -> Any:
            raise kind("boom")

    with pytest.raises(kind, match="boom") as caught:
        played(GymEnv(1, Seeds(0), id=Broken), np.zeros((1, 1), np.int64))
    assert "env 0, seed" in caught.value.__notes__[0]


def test_old_style_steps_are_refused() -> None:
    class Old(Odd):
        def step(self, action: Any) -> Any:
            return np.zeros(2, np.float32), 1.0, False, {}

    with raises("E05", match=r"step 0\) returned 4 values from step\(\)") as caught:
        played(GymEnv(1, Seeds(0), id=Old), np.zeros((1, 1), np.int64))
    assert "return (observation, reward, terminated, truncated, info)" in caught.value.format()


def test_a_shape_that_changes_after_the_checked_rows_is_refused_as_an_observation() -> None:
    one = Odd(length=999)
    env = env_of(one, count=3, checked=3)
    actions = np.zeros((3, 1), np.int64)
    played(env, actions, actions)
    one.after_step = np.zeros(3, np.float32)
    with raises("E05", match=r"env 0, seed \d+, step 3\) returned an observation outside its space"):
        env.step({TEAM: actions}, new_block(env.spec, 3))


def test_old_style_resets_are_refused() -> None:
    class Old(Odd):
        def reset(self, **_: Any) -> Any:
            self.steps = 0
            return np.zeros(2, np.float32)

    with raises("E05", match=r"return \(observation, info\)"):
        played(GymEnv(1, Seeds(0), id=Old))


def test_pictures_are_made_on_demand() -> None:
    env = GymEnv(1, Seeds(0), id=Odd, render=True)
    played(env, np.zeros((1, 1), np.int64))
    assert env.render(0).shape == (4, 5, 3) and env.render(0)[0, 0, 0] == 1
    with pytest.raises(UserError, match="without rendering"):
        env_of(Odd()).render(0)


class Counting(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector env whose copies count to 3, in a mode of the test's choice."""

    def __init__(self, num_envs: int, mode: AutoresetMode) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = spaces.Box(0, 99, (1,), np.float32)
        self.single_action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if options is None:
            self.counts = np.arange(self.num_envs, dtype=np.float32) % 2
        self.counts[mask] = 0 if options else self.counts[mask]
        return self.counts[:, None].copy(), {}

    def step(self, actions: Any) -> Any:
        self.counts += 1
        over = self.counts >= 3
        return self.counts[:, None].copy(), np.ones(self.num_envs), over, np.zeros(self.num_envs, bool), {}


def test_a_vector_env_without_autoreset_is_reset_in_the_step_after_the_end() -> None:
    env = GymVectorEnv(2, Seeds(0), id=Counting, args={"mode": AutoresetMode.DISABLED})
    block = new_block(env.spec, 2)
    env.reset(block)
    seen = []
    for _ in range(5):
        renew(block)
        env.step({TEAM: np.zeros((2, 1), np.int64)}, block)
        team = block.teams[TEAM]
        seen.append((team.obs[:, 0, 0].tolist(), team.reward[:, 0].tolist(), team.terminated[:, 0].tolist()))
    assert seen == [
        ([1, 2], [1, 1], [False, False]),
        ([2, 3], [1, 1], [False, True]),
        ([3, 0], [1, 0], [True, False]),
        ([0, 1], [0, 1], [False, False]),
        ([1, 2], [1, 1], [False, False]),
    ]


def test_a_vector_env_that_resets_in_the_same_step_is_refused_with_the_fix() -> None:
    with pytest.raises(UserError, match="autoreset_mode: NextStep"):
        GymVectorEnv(2, Seeds(0), id=Counting, args={"mode": AutoresetMode.SAME_STEP})


NESTED = spaces.Dict(
    {
        "pair": spaces.Tuple(
            [spaces.Discrete(3, start=1), spaces.Dict({"bits": spaces.MultiBinary([2, 2]), "at": spaces.Box(-1, 1, (2,))})]
        ),
        "parts": spaces.MultiDiscrete([2, 3]),
    }
)


@pytest.mark.parametrize(
    "odd",
    [
        spaces.Text(8),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1)]),
        spaces.Dict({}),
        spaces.Tuple([]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_without_a_fixed_shape_are_refused_with_their_place(odd: Any) -> None:
    inside = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Discrete(2), odd])})
    for space in (odd, inside):
        place = r", \['b', '1'\]" if space is inside else ""
        with raises("E00", match=rf"an observation space that has no fixed shape{place}: {type(odd).__name__}"):
            obs_of(space)
        with raises("E00", match=rf"an action space that has no fixed shape{place}: {type(odd).__name__}"):
            actions_of(space)


def test_a_policy_learns_on_nested_observations_and_actions(tmp_path: Path) -> None:
    class Nested(Odd):
        def __init__(self) -> None:
            super().__init__(NESTED, NESTED)

    run = srl.launch(
        env=Nested, algorithm={"use": "ppo", "epochs": 1}, policy={"hidden": [8]}, sampling={"envs": 2, "steps": 8},
        mode="inline", stop={"updates": 3}, evaluation=None, runs=tmp_path, quiet=True,
    )  # fmt: skip
    assert run.result is not None and run.result.exit_code == 0


@pytest.mark.parametrize("name", ["Blackjack-v1", "CliffWalking-v1", "Taxi-v4", "FrozenLake-v1"])
def test_gymnasiums_envs_with_other_spaces_pass_the_checker(name: str) -> None:
    assert check_env(name, ticks=40).steps == 40
