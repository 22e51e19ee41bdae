"""The MuJoCo tasks by gymnasium id."""

from __future__ import annotations

from srl.envs.mujoco_arms import InvertedDoublePendulum, InvertedPendulum, Pusher, Reacher
from srl.envs.mujoco_task import Task
from srl.envs.mujoco_walkers import Ant, HalfCheetah, Hopper, Humanoid, HumanoidStandup, Swimmer, Walker2d

TASKS: dict[str, type[Task]] = {
    f"{task.__name__}-v5": task
    for task in (
        HalfCheetah, Hopper, Walker2d, Swimmer, Ant, Humanoid, HumanoidStandup,
        InvertedPendulum, InvertedDoublePendulum, Reacher, Pusher,
    )
}  # fmt: skip
