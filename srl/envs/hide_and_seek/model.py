"""The one compiled model that all worlds of a config share, sized by its capacities."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from srl.core.tree import Array
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.layout import ARM_RADIUS, ARMS

BURIED = -20.0
"""Height at which things wait that are not in this world."""
RADIUS = 0.15
HALF = 0.25
FORCE = 0.9
"""The largest control; times a gear of 100 newtons."""
SEEN_GROUPS = (1, 1, 0, 0, 0, 0)
"""Geom groups that rays hit: objects and walls, but neither decorative arms nor feet."""
THINGS, FLOOR, FEET = 1, 2, 4
"""Collision bits: objects and walls collide with each other, agents and feet with the floor."""
GRAVITY = 50.0
FRICTION = 0.2
"""Friction between the floor and objects."""
HIDER = (0.26, 0.92, 0.96)
SEEKER = (1.0, 0.0, 0.0)
BOX = (0.95, 0.8, 0.3)
RAMP = (0.9, 0.55, 0.25)


@dataclass(frozen=True, slots=True)
class Model:
    """The compiled model and where things are in it. A agents, then B boxes and R ramps, each with 4 joints."""

    mj: mujoco.MjModel
    walls: Array
    """[W] geoms."""
    cylinder: int
    """Its geom; -1 without."""
    agents: Array
    """[A] bodies."""
    objects: Array
    """[O] bodies."""
    agent_geoms: Array
    """[A, 1] geoms, [A, 3] with colliding arms."""
    object_geoms: Array
    """[O]."""
    feet: Array
    """[O] geoms; empty if objects rest on their corners."""
    turns: Array
    """[O] the degrees of freedom in which objects turn."""
    boxes: int
    body_of_geom: Array
    """[geoms + 1]; the last entry, reached by geom -1, is -1."""


def compile_model(config: Config) -> Model:
    mj = mujoco.MjModel.from_xml_string(mjcf(config))
    objects = [f"box{i}" for i in range(config.boxes)] + [f"ramp{i}" for i in range(config.ramps)]
    agents = [f"agent{i}" for i in range(config.agents)]
    arms = ["", "_left", "_right"] if config.physics.arms else [""]
    return Model(
        mj=mj,
        walls=np.array([mj.geom(f"wall{i}").id for i in range(config.arena.wall_slots)]),
        cylinder=int(mj.geom("cylinder").id) if config.arena.cylinder else -1,
        agents=np.array([mj.body(name).id for name in agents]),
        objects=np.array([mj.body(name).id for name in objects], np.int64),
        agent_geoms=np.array([[mj.geom(name + arm).id for arm in arms] for name in agents]),
        object_geoms=np.array([mj.geom(name).id for name in objects], np.int64),
        feet=np.array([] if config.physics.corners else [mj.geom(f"{name}_foot").id for name in objects], np.int64),
        turns=np.array([mj.joint(f"{name}_w").dofadr[0] for name in objects], np.int64),
        boxes=config.boxes,
        body_of_geom=np.append(mj.geom_bodyid, -1).astype(np.int32),
    )


def mjcf(config: Config) -> str:
    """The MJCF text. Unused walls and absent objects are below the floor."""
    side = config.arena.side
    agents, objects = range(config.agents), config.boxes + config.ramps
    names = [f"box{i}" for i in range(config.boxes)] + [f"ramp{i}" for i in range(config.ramps)]
    parts = [
        # The walls' bounds differ between worlds, and mid-phase trees are compiled for one.
        f'<mujoco><option timestep="{config.physics.timestep!r}" gravity="0 0 {-GRAVITY}" jacobian="dense">',
        f'<flag midphase="disable"/></option><statistic center="{side / 2} {side / 2} 0" extent="{side}"/>',
        '<visual><quality shadowsize="0" offsamples="4"/><global offwidth="1280" offheight="960"/>',
        '<headlight ambient="0.45 0.45 0.45" diffuse="0.45 0.45 0.45"/></visual><default><geom condim="3"/></default>',
        f'<asset><mesh name="wedge" vertex="{_wedge()}"/></asset><worldbody>',
        f'<light pos="{side / 2} {side / 2} {side}" dir="0 0 -1" castshadow="false"/>{_camera(side)}',
        f'<geom name="floor" type="plane" size="0 0 1" friction="{FRICTION}" contype="{FLOOR}" '
        f'conaffinity="{FEET}" rgba="0.55 0.6 0.62 1"/>',
        *(_wall(index, config.arena.wall_friction) for index in range(config.arena.wall_slots)),
    ]
    if config.arena.cylinder:
        parts.append(f'<geom name="cylinder" type="cylinder" size="0.5 {HALF}" pos="0 0 {BURIED}" rgba="0.3 0.3 0.3 1"/>')
    parts += [_agent(index, index < config.hiders, config.physics.arms) for index in agents]
    parts += [_object(name, config.physics.corners) for name in names]
    parts.append("</worldbody><actuator>")
    parts += [
        f'<motor joint="agent{i}_{axis}" gear="100" ctrllimited="true" ctrlrange="{-FORCE} {FORCE}"/>'
        for i in agents
        for axis in "xyw"
    ]
    parts.append("</actuator><equality>")
    parts += [f'<weld body1="agent{i}" body2="{names[0]}" active="false"/>' for i in agents if objects]
    parts += [f'<joint joint1="{name}_{axis}" active="false"/>' for name in names for axis in "xyzw"]
    return "".join([*parts, "</equality></mujoco>"])


def _wedge() -> str:
    corners = [(x, y, -HALF) for x in (-HALF, HALF) for y in (-HALF, HALF)] + [(x, -HALF, HALF) for x in (-HALF, HALF)]
    return " ".join(str(number) for corner in corners for number in corner)


def _camera(side: float) -> str:
    tilt = 0.5  # radians away from straight down
    away = side * 1.35
    y, z = side / 2 - away * np.sin(tilt), away * np.cos(tilt)
    axes = f"1 0 0 0 {np.cos(tilt):.4f} {np.sin(tilt):.4f}"
    return f'<camera name="main" pos="{side / 2} {y:.4f} {z:.4f}" xyaxes="{axes}" fovy="45"/>'


def _wall(index: int, friction: float) -> str:
    return (
        f'<geom name="wall{index}" group="1" type="box" size="0.05 0.05 {HALF}" pos="{index} 0 {BURIED}" '
        f'friction="{friction}" rgba="0.35 0.7 0.4 1"/>'
    )


def _joints(name: str, damping: tuple[float, float, float], loss: float = 0.0) -> str:
    """Slides along world axes first, then the turn about z."""
    plane, height, turn = damping
    slides = "".join(
        f'<joint name="{name}_{axis}" type="slide" axis="{vector}" damping="{value}"/>'
        for axis, vector, value in (("x", "1 0 0", plane), ("y", "0 1 0", plane), ("z", "0 0 1", height))
    )
    return f'{slides}<joint name="{name}_w" type="hinge" axis="0 0 1" damping="{turn}" frictionloss="{loss}"/>'


def _agent(index: int, hider: bool, colliding: bool) -> str:
    colour = " ".join(str(value) for value in (HIDER if hider else SEEKER))
    meets = f'contype="{THINGS}" conaffinity="{THINGS | FLOOR}"'
    kind = f'group="0" {meets}' if colliding else 'group="2" contype="0" conaffinity="0"'
    arms = "".join(
        f'<geom name="agent{index}_{side}" {kind} type="sphere" size="{ARM_RADIUS}" pos="{x} {y} {z}" mass="0" '
        f'friction="0.01" rgba="{colour} 1"/>'
        for side, (x, y, z) in zip(("left", "right"), ARMS, strict=True)
    )
    return (
        f'<body name="agent{index}" gravcomp="1" pos="0 0 0">{_joints(f"agent{index}", (10, 1, 10))}'
        f'<geom name="agent{index}" {meets} type="sphere" size="{RADIUS}" mass="1" friction="0.01" rgba="{colour} 1"/>'
        f"{arms}</body>"
    )


def _object(name: str, corners: bool) -> str:
    """A box or a ramp of mass 1. The foot is a small ball below its center; it does not resist rotation."""
    box = name.startswith("box")
    damping, friction, colour = (0.01, FRICTION, BOX) if box else (0.1, 0.01, RAMP)
    shape = f'type="box" size="{HALF} {HALF} {HALF}"' if box else 'type="mesh" mesh="wedge"'
    meets = f'contype="{THINGS}" conaffinity="{THINGS | FLOOR if corners else THINGS}"'
    foot = (
        f'<geom name="{name}_foot" group="3" type="sphere" size="0.01" pos="0 0 {0.01 - HALF}" mass="0" '
        f'friction="{FRICTION}" contype="{FEET}" conaffinity="0"/>'
    )
    loss = 0.0 if corners else float(turning_friction(HALF, HALF))
    return (
        f'<body name="{name}" gravcomp="1">{_joints(name, (damping, damping, damping), loss)}<geom name="{name}" {shape} '
        f'mass="1" friction="{friction}" {meets} rgba="{" ".join(map(str, colour))} 1"/>{"" if corners else foot}</body>'
    )


def turning_friction(half_x: Array | float, half_y: Array | float) -> Array:
    """Newton meters: about the resistance of four corners at these places to a turn. (Theirs depends on yaw and speed.)"""
    return np.asarray(0.9 * FRICTION * GRAVITY * np.hypot(half_x, half_y))
