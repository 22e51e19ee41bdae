"""N worlds of one model: the only file that steps, welds, fixes objects and casts rays with batched MuJoCo."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from srl.core.tree import Array, Tree
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.layout import Layout
from srl.envs.hide_and_seek.model import BURIED, HALF, RADIUS, SEEN_GROUPS, compile_model, turning_friction

_PER_WORLD = (
    "geom_pos",
    "geom_size",
    "geom_rbound",
    "geom_aabb",
    "geom_contype",
    "geom_conaffinity",
    "dof_frictionloss",
    "body_gravcomp",
    "body_inertia",
    "eq_data",
    "eq_obj2id",
)


class Worlds:
    """Poses are live views `[N, A or O, 4]` of x, y, z and yaw: writing them moves things."""

    def __init__(self, config: Config, count: int) -> None:
        self.model = compile_model(config)
        self.count, self.hiders = count, config.hiders
        self._substeps = config.physics.substeps
        self._batch = batch = Batch(self.model.mj, count, config.physics.threads)
        self._fields = {name: batch.expand(name) for name in _PER_WORLD}
        agents, objects = len(self.model.agents), len(self.model.objects)
        positions = batch.bind("qpos").reshape(count, agents + objects, 4)
        speeds = batch.bind("qvel").reshape(count, agents + objects, 4)
        self.agents, self.objects = positions[:, :agents], positions[:, agents:]
        self.agent_speeds, self.object_speeds = speeds[:, :agents], speeds[:, agents:]
        self.controls = batch.bind("ctrl").reshape(count, agents, 3)
        active = batch.bind("eq_active")
        self._welded = active[:, :agents] if objects else active[:, :0]
        self._held = active[:, agents:].reshape(count, objects, 4)
        self._holds = self._fields["eq_data"][:, agents:, 0].reshape(count, objects, 4)
        self._speeds = speeds
        self._good = batch.state.copy()
        """The last valid state of each world after a step or a reset."""
        self._groups = np.array(SEEN_GROUPS, np.uint8)

    def write(self, ids: Array, layouts: Sequence[Layout]) -> None:
        """New worlds in place of those, everything at rest."""
        self._batch.reset(ids, stage=0)
        for world, layout in zip(ids.tolist(), layouts, strict=True):
            self._write_walls(world, layout)
            self._write_things(world, layout)
        self._batch.set_const(ids)
        self._batch.warning[ids] = 0
        self._good[ids] = self._batch.state[ids]

    def weld(self, worlds: Array, agents: Array, objects: Array) -> None:
        """Tie these agents to these objects in their present relative poses."""
        agent, thing = self.agents[worlds, agents], self.objects[worlds, objects]
        offset, turn = thing - agent, (thing[:, 3] - agent[:, 3]) / 2
        cos, sin = np.cos(agent[:, 3]), np.sin(agent[:, 3])
        data = self._fields["eq_data"]
        data[worlds, agents, 3] = cos * offset[:, 0] + sin * offset[:, 1]
        data[worlds, agents, 4] = cos * offset[:, 1] - sin * offset[:, 0]
        data[worlds, agents, 5] = offset[:, 2]
        data[worlds, agents, 6] = np.cos(turn)
        data[worlds, agents, 9] = np.sin(turn)
        self._fields["eq_obj2id"][worlds, agents] = self.model.objects[objects]

    def set_welds(self, active: Array) -> None:
        """`[N, A]`: whose welds hold. A model without objects has none."""
        self._welded[...] = active[:, : self._welded.shape[1]]

    def hold(self, worlds: Array, objects: Array) -> None:
        """Remember where these objects are: the place that `set_holds` keeps them at."""
        self._holds[worlds, objects] = self.objects[worlds, objects]

    def set_holds(self, active: Array) -> None:
        """`[N, O]`: which objects cannot move."""
        self._held[...] = active[:, :, None]

    def step(self, ids: Array | None) -> Array:
        """One env step. Returns the worlds that failed, which are reset to their last valid state.

        A step that ends in numbers beyond all measure has failed as well: the simulator itself looks at the next step only.
        """
        batch = self._batch
        try:
            batch.step(ids, nstep=self._substeps)
            failed = batch.warning[:, :, 1].any(1)
        except SimulationError as error:
            failed = batch.warning[:, :, 1].any(1)
            failed[error.ids] = True
        if not np.abs(self._speeds).max() < mujoco.mjMAXVAL:  # nor is nan
            failed |= ~(np.abs(self._speeds).max((1, 2)) < mujoco.mjMAXVAL)
        worlds = np.flatnonzero(failed)
        if len(worlds):
            batch.state[worlds] = self._good[worlds]
            batch.warning[worlds] = 0
        np.copyto(self._good, batch.state)
        return worlds

    def cast(self, origins: Array, directions: Array, exclude: Array | int = -1) -> tuple[Array, Array]:
        """Distance (in lengths of the direction, -1: nothing) and geom that each ray hits, `[N, rays]`."""
        distance, geom = self._batch.ray(origins, directions, self._groups, bodyexclude=exclude)
        return distance, geom

    def copy_to(self, world: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """One world into a model and data of the caller's, to draw it."""
        for name, values in self._fields.items():
            field = getattr(model, name)
            field[...] = values[world].reshape(field.shape)
        self._batch.get_data(world, data)

    def save(self) -> Tree:
        """States and per-world fields, copied."""
        saved: dict[str, Tree] = {name: field.copy() for name, field in self._fields.items()}
        return {**saved, "state": self._batch.state.copy()}

    def load(self, saved: Tree) -> None:
        for name, field in self._fields.items():
            field[...] = saved[name]
        # before the state: the constants are computed at the model's reference pose
        self._batch.set_const()
        # they also make welds anew
        self._fields["eq_data"][...] = saved["eq_data"]
        self._batch.state[...] = self._good[...] = saved["state"]
        self._batch.warning[...] = 0

    def _write_walls(self, world: int, layout: Layout) -> None:
        walls, fields = self.model.walls, self._fields
        position, size = fields["geom_pos"][world], fields["geom_size"][world]
        rows = walls[: len(layout.walls)]
        position[walls, 2] = BURIED
        position[rows, :2] = layout.walls[:, :2]
        position[rows, 2] = layout.walls[:, 4] / 2
        size[rows] = layout.walls[:, 2:] / 2
        fields["geom_rbound"][world, rows] = np.sqrt(np.square(size[rows]).sum(1))
        fields["geom_aabb"][world].reshape(-1, 6)[rows, 3:] = size[rows]
        if layout.cylinder is not None:
            x, y, width = layout.cylinder
            geom = self.model.cylinder
            position[geom] = x, y, HALF
            size[geom, 0] = width / 2
            fields["geom_rbound"][world, geom] = np.hypot(width / 2, HALF)
            fields["geom_aabb"][world].reshape(-1, 6)[geom, 3:] = width / 2, width / 2, HALF

    def _write_things(self, world: int, layout: Layout) -> None:
        model, fields = self.model, self._fields
        self._put(self.agents[world], layout.agents, layout.agent_there, RADIUS, 0.2)
        self._put(self.objects[world], layout.objects, layout.object_there, HALF, 0.5)
        parts = [(model.agent_geoms, layout.agent_there[:, None]), (model.object_geoms, layout.object_there)]
        parts += [(model.feet, layout.object_there)] if len(model.feet) else []
        for geoms, there in parts:
            fields["geom_contype"][world, geoms] = model.mj.geom_contype[geoms] * there
            fields["geom_conaffinity"][world, geoms] = model.mj.geom_conaffinity[geoms] * there
        fields["body_gravcomp"][world, model.agents] = ~layout.agent_there
        fields["body_gravcomp"][world, model.objects] = ~layout.object_there
        boxes = model.boxes
        geoms, half = model.object_geoms[:boxes], layout.sizes[:boxes] / 2
        fields["geom_size"][world, geoms] = half
        fields["geom_rbound"][world, geoms] = np.sqrt(np.square(half).sum(1))
        fields["geom_aabb"][world].reshape(-1, 6)[geoms, 3:] = half
        if len(model.feet):
            fields["dof_frictionloss"][world, model.turns[:boxes]] = turning_friction(half[:, 0], half[:, 1])
        square = np.square(half)
        # of a solid box of mass 1
        fields["body_inertia"][world, model.objects[:boxes]] = (square.sum(1, keepdims=True) - square) / 3

    @staticmethod
    def _put(poses: Array, places: Array, there: Array, height: float, row: float) -> None:
        """Absent objects are below the floor at different places, since a ray needs a direction."""
        poses[:, :2] = places
        poses[:, 2] = height
        if not there.all():
            absent = np.flatnonzero(~there)
            poses[absent, 0] = 0.2 + 0.3 * absent
            poses[absent, 1:3] = row, BURIED
