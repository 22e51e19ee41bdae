"""One new world as plain arrays in meters: walls, present agents, and initial positions. Knows no MuJoCo."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from srl.core.errors import UserError
from srl.core.seeds import generator
from srl.core.tree import Array
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.draws import Draws
from srl.envs.hide_and_seek.walls import Plan, Room, plan

AGENT = (0.3, 0.3, 0.3)
ARMS = ((0.13, -0.075, -0.05), (-0.13, -0.075, -0.05))
"""Their middles, from the agent's: they mark its front, which is -y."""
ARM_RADIUS = 0.05
CUBE = (0.5, 0.5, 0.5)
LONG_X = (1.65, 0.15, 0.5)
LONG_Y = (0.15, 1.65, 0.5)
_SITE = (0.5, 0.5)

Place = tuple[float, float]
Size = tuple[float, float, float]
Area = tuple[int, int, int, int]
"""Lower-left cells that a thing may take: x from, x to, y from, y to; the last ones excluded."""


class NoRoom(Exception):
    """This attempt failed; build the world anew."""


@dataclass(slots=True)
class Layout:
    """Capacities: A agents (hiders first), O objects (boxes, then ramps), S sites."""

    walls: Array
    """[W, 5] centre x, y and full size x, y, z."""
    agents: Array
    """[A, 2] centres."""
    agent_there: Array
    """[A] bool."""
    objects: Array
    """[O, 2] centres."""
    object_there: Array
    """[O] bool."""
    sizes: Array
    """[O, 3] full sizes."""
    sites: Array
    """[S, 2] centres; NaN where there is none."""
    cylinder: tuple[float, float, float] | None
    """x, y and diameter."""
    room: tuple[float, float, float, float]
    """x from, x to, y from, y to of the quadrant's room; empty elsewhere."""


def layout(config: Config, rng: np.random.Generator, counts: tuple[int, int] | None = None) -> Layout:
    """A new world. `counts` fixes the numbers of hiders and seekers."""
    draws = Draws(rng)
    hiders, seekers = counts or team_sizes(config, draws)
    for _ in range(1000):
        try:
            return _attempt(config, draws, hiders, seekers)
        except NoRoom:
            continue
    raise UserError(
        "hide_and_seek: no world with these numbers was found in 1000 attempts",
        (
            "found",
            f"{config.agents} agents, {config.boxes} boxes, {config.ramps} ramps in {config.arena.scenario} "
            f"of {config.arena.side:g} m with up to {config.arena.rooms[1]} rooms",
        ),
        ("try", "smaller upper ends of env.boxes, env.ramps or env.rooms, or a larger env.scale"),
        code="E03",
    )


def check(config: Config) -> None:
    """The fullest worlds of this config find a place for everything, or an error says so now instead of in mid-run."""
    arena, objects = config.arena, config.objects
    ranges = {"boxes": objects.boxes, "ramps": objects.ramps, "rooms": arena.rooms, "sites": objects.sites}
    fullest = config.override(**{name: (most, most) for name, (_, most) in ranges.items()})
    layout(fullest, generator(0, "hide_and_seek"), (config.hiders, config.seekers))


def team_sizes(config: Config, draws: Draws) -> tuple[int, int]:
    return draws.within(config.teams.hiders), draws.within(config.teams.seekers)


class Floor:
    """The occupancy grid."""

    def __init__(self, config: Config, plan: Plan, draws: Draws) -> None:
        arena = config.arena
        self.cell, self.grid, self._draws = arena.cell, arena.grid, draws
        self._taken = np.zeros((self.grid, self.grid), bool)
        for wall in plan.walls:
            (x, y), (right, top) = wall.start, wall.end
            self._taken[x : right + 1, y : top + 1] = True

    def cells(self, size: tuple[float, ...]) -> tuple[int, int]:
        return math.ceil(size[0] / self.cell - 1e-9), math.ceil(size[1] / self.cell - 1e-9)

    def place(self, size: tuple[float, ...], areas: list[Area], tries: int = 10) -> tuple[Place, tuple[int, int]]:
        """A free centre whose lower-left cell lies in one of the areas, and that cell; NoRoom after `tries` refusals."""
        draws, (wide, deep) = self._draws, self.cells(size)
        for _ in range(tries):
            left, right, low, high = areas[0] if len(areas) == 1 else draws.choice(areas)
            x, y = draws.integer(left, right), draws.integer(low, high)
            spot = self._taken[x : x + wide, y : y + deep]
            if spot.any():
                continue
            spot[...] = True
            slack_x, slack_y = wide * self.cell - size[0], deep * self.cell - size[1]
            centre_x = x * self.cell + size[0] / 2 + slack_x * draws.unit()
            return (centre_x, y * self.cell + size[1] / 2 + slack_y * draws.unit()), (x, y)
        raise NoRoom

    def anywhere(self, size: tuple[float, ...]) -> list[Area]:
        wide, deep = self.cells(size)
        return [(1, self.grid - wide - 1, 1, self.grid - deep - 1)]

    def inside(self, size: tuple[float, ...], room: Room) -> list[Area]:
        wide, deep = self.cells(size)
        return [(room[0], max(room[1] - wide, room[0] + 1), room[2], max(room[3] - deep, room[2] + 1))]

    def outside(self, size: tuple[float, ...], room: Room) -> list[Area]:
        """The three quadrants around the lower-right room, each as probable as the others."""
        wide, deep = self.cells(size)
        split_x, split_y = room[0], room[3] + 1
        left, right = (1, split_x - wide - 1), (split_x, self.grid - wide - 1)
        low, high = (1, split_y - deep - 1), (split_y, self.grid - deep - 1)
        return [(*left, *low), (*left, *high), (*right, *high)]

    def near(self, size: tuple[float, ...], anchor: tuple[int, int], radius: int) -> list[Area]:
        wide, deep = self.cells(size)
        limits = (self.grid - wide, self.grid - deep)
        x, y = ((max(1, at - radius), min(limit, at + radius + 1)) for at, limit in zip(anchor, limits, strict=True))
        return [(*x, *y)]

    def middle(self, size: tuple[float, ...], fraction: float) -> list[Area]:
        wide, deep = self.cells(size)
        rim = round(self.grid * (1 - fraction) / 2)
        return [(rim, max(self.grid - rim - wide, rim + 1), rim, max(self.grid - rim - deep, rim + 1))]


def box_sizes(config: Config, draws: Draws) -> list[Size]:
    """Sizes of this world's boxes: long ones first, and those along x before those along y."""
    number = draws.within(config.objects.boxes)
    elongated = config.objects.elongated
    least, most = (config.objects.boxes[0], number) if elongated == "random" else elongated
    long = draws.within((min(least, number), min(most, number)))
    along_x = draws.within((0, long))
    return [LONG_X] * along_x + [LONG_Y] * (long - along_x) + [CUBE] * (number - long)


def _attempt(config: Config, draws: Draws, hiders: int, seekers: int) -> Layout:
    walls = plan(config.arena, draws)
    if walls is None:
        raise NoRoom
    floor = Floor(config, walls, draws)
    world = _empty(config)
    world.walls = np.array([wall.box(config.arena.cell) for wall in walls.walls]).reshape(-1, 5)
    world.cylinder = _place_cylinder(config, floor, draws)
    for first, number, agents in (
        (0, hiders, _place_team(config, floor, walls, hiders, config.teams.hider_placement)),
        (config.hiders, seekers, _place_team(config, floor, walls, seekers, config.teams.seeker_placement)),
    ):
        world.agents[first : first + number] = agents
        world.agent_there[first : first + number] = True
    sizes = box_sizes(config, draws)
    boxes = _place_boxes(config, floor, walls, sizes)
    ramps = _place_ramps(config, floor, walls, draws.within(config.objects.ramps))
    for first, places in ((0, boxes), (config.boxes, ramps)):
        world.objects[first : first + len(places)] = places
        world.object_there[first : first + len(places)] = True
    world.sizes[: len(sizes)] = np.reshape(sizes, (-1, 3))
    sites = [floor.place(_SITE, floor.middle(_SITE, 0.85))[0] for _ in range(draws.within(config.objects.sites))]
    world.sites[: len(sites)] = np.reshape(sites, (-1, 2))
    if walls.rooms and config.arena.scenario != "var_tri":
        left, right, low, high = (edge * config.arena.cell for edge in walls.rooms[0])
        world.room = (left + 0.1, right + 0.1, low - 0.1, high + 0.3)
    return world


def _empty(config: Config) -> Layout:
    objects = config.boxes + config.ramps
    return Layout(
        walls=np.zeros((0, 5)),
        agents=np.zeros((config.agents, 2)),
        agent_there=np.zeros(config.agents, bool),
        objects=np.zeros((objects, 2)),
        object_there=np.zeros(objects, bool),
        sizes=np.tile(CUBE, (objects, 1)),
        sites=np.full((config.objects.sites[1], 2), np.nan),
        cylinder=None,
        room=(0.0, 0.0, 0.0, 0.0),
    )


def _place_team(config: Config, floor: Floor, plan: Plan, number: int, placement: str) -> Array:
    places: list[Place] = []
    anchor: tuple[int, int] | None = None
    for _ in range(number):
        if anchor is not None and config.teams.together is not None:
            areas = floor.near(AGENT, anchor, config.teams.together)
        elif placement == "room":
            areas = floor.inside(AGENT, plan.rooms[0])
        elif placement == "outside":
            areas = floor.outside(AGENT, plan.rooms[0])
        else:
            areas = floor.anywhere(AGENT)
        place, cell = floor.place(AGENT, areas)
        places.append(place)
        anchor = anchor or cell
    return np.reshape(places, (-1, 2))


def _place_boxes(config: Config, floor: Floor, plan: Plan, sizes: list[Size]) -> Array:
    room = plan.rooms[0] if config.objects.box_placement == "room" else None
    places = [floor.place(size, floor.inside(size, room) if room else floor.anywhere(size))[0] for size in sizes]
    return np.reshape(places, (-1, 2))


def _place_ramps(config: Config, floor: Floor, plan: Plan, number: int) -> Array:
    each = config.objects.ramp_placement == "one_per_room"
    areas = [floor.inside(CUBE, plan.rooms[index % len(plan.rooms)]) if each else floor.anywhere(CUBE) for index in range(number)]
    return np.reshape([floor.place(CUBE, some)[0] for some in areas], (-1, 2))


def _place_cylinder(config: Config, floor: Floor, draws: Draws) -> tuple[float, float, float] | None:
    if config.arena.cylinder is None:
        return None
    width = draws.uniform(*config.arena.cylinder)
    place, _ = floor.place((width, width), floor.middle((width, width), config.arena.cylinder_middle))
    return (*place, width)
