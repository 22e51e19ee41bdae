"""Walls on the placement grid: rooms, doors, and their boxes in metres. Knows no MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from srl.envs.hide_and_seek.config import Arena
from srl.envs.hide_and_seek.draws import Draws

INNER_HEIGHT = 0.5
OUTER_HEIGHT = 4.0

Cell = tuple[int, int]
Room = tuple[int, int, int, int]
"""x from, x to, y from, y to, in cells; the last ones excluded."""


@dataclass(slots=True)
class Wall:
    """Cells from `start` to `end`, both included; `start` is the lower or left one."""

    start: Cell
    end: Cell
    height: float = INNER_HEIGHT
    below: list[int] = field(default_factory=list)
    """Offsets at which walls leave to the left of a vertical, or below a horizontal wall."""
    above: list[int] = field(default_factory=list)

    @property
    def vertical(self) -> bool:
        return self.start[0] == self.end[0]

    @property
    def length(self) -> int:
        return self.end[0] - self.start[0] + self.end[1] - self.start[1]

    @property
    def line(self) -> int:
        """The coordinate that all cells share."""
        return self.start[0] if self.vertical else self.start[1]

    @property
    def first(self) -> int:
        """The running coordinate of `start`."""
        return self.start[1] if self.vertical else self.start[0]

    def at(self, offset: int) -> Cell:
        return (self.line, self.first + offset) if self.vertical else (self.first + offset, self.line)

    def touches(self, cell: Cell) -> bool:
        across, along = cell if self.vertical else (cell[1], cell[0])
        return across == self.line and self.first <= along <= self.first + self.length

    def crosses(self, other: Wall) -> bool:
        """True if the two cross, not merely touch."""
        if self.vertical == other.vertical:
            return False
        return other.first < self.line < other.first + other.length and self.first < other.line < self.first + self.length

    def box(self, cell: float) -> tuple[float, float, float, float, float]:
        """Centre x, y and full size x, y, z: ends stop half a thickness before the centre of the last cell."""
        long, thick = self.length * cell - cell / 2, cell / 2
        x = (self.start[0] + self.end[0] + 1) * cell / 2
        y = (self.start[1] + self.end[1] + 1) * cell / 2
        return (x, y, thick, long, self.height) if self.vertical else (x, y, long, thick, self.height)


@dataclass(slots=True)
class Plan:
    """The walls of one world, and the rooms that placement knows by name."""

    walls: list[Wall]
    rooms: list[Room]


def plan(arena: Arena, draws: Draws) -> Plan | None:
    """Walls of a new world; None when the rooms did not work out."""
    if arena.scenario == "randomwalls":
        return _random_rooms(arena, draws)
    grid = arena.grid
    inner: list[Wall] = []
    rooms: list[Room] = []
    if arena.scenario in ("quadrant", "var_quadrant"):
        size = grid // 2 if arena.scenario == "quadrant" else int(draws.uniform(0.3, 0.6) * grid)
        corner = (grid - size, size)
        inner = [Wall((grid - size, 0), corner), Wall(corner, (grid - 1, size))]
        rooms = [(grid - size, grid - 1, 1, size - 1)]
        if draws.chance(arena.door_dropout):
            closed = draws.integer(0, 2)
            inner = [inner[closed], *with_door(inner[1 - closed], arena.door, draws)]
            return Plan(outer_walls(grid) + inner, rooms)
    elif arena.scenario == "half":
        inner = [Wall((0, grid // 2), (grid - 1, grid // 2))]
    elif arena.scenario == "var_tri":
        inner, rooms = _three_rooms(grid, draws)
    return Plan(outer_walls(grid) + [part for wall in inner for part in with_door(wall, arena.door, draws)], rooms)


def outer_walls(grid: int) -> list[Wall]:
    last = grid - 1
    ends = [((0, 0), (0, last)), ((0, 0), (last, 0)), ((last, 0), (last, last)), ((0, last), (last, last))]
    return [Wall(start, end, OUTER_HEIGHT) for start, end in ends]


def with_door(wall: Wall, door: int, draws: Draws) -> list[Wall]:
    """What is left of the wall after cutting one door between two neighbouring junctions."""
    points = sorted({0, wall.length, *wall.below, *wall.above})
    gaps = [(low, high) for low, high in pairwise(points) if high - low >= door + 1]
    if door == 0 or not gaps:
        return [wall]
    low, high = draws.choice(gaps)
    start = low + draws.integer(1, high - low - door + 1)
    parts = [(0, start - 1), (start + door, wall.length)]
    return [Wall(wall.at(begin), wall.at(end), wall.height) for begin, end in parts if end > begin]


def _random_rooms(arena: Arena, draws: Draws, tries: int = 10) -> Plan | None:
    rooms = draws.within(arena.rooms)
    for _ in range(tries):
        walls = outer_walls(arena.grid)
        while len(walls) < rooms + 3:
            wall = _split(walls, arena.min_room, draws)
            if wall is None:
                break
            _join(walls, wall)
        else:
            inner = [part for wall in walls[4:] for part in with_door(wall, arena.door, draws)]
            return Plan(walls[:4] + inner if draws.chance(arena.outer_walls) else inner, [])
    return None


def _split(walls: list[Wall], distance: int, draws: Draws, tries: int = 10) -> Wall | None:
    """A new wall perpendicular to a random one, up to a random parallel one."""
    for _ in range(tries):
        source = draws.choice(walls)
        candidates = []
        for target in walls:
            if target is source or target.vertical != source.vertical:
                continue
            wall = _between(source, target, draws.integer(1, source.length), distance)
            if wall is not None and not any(wall.crosses(other) for other in walls):
                candidates.append(wall)
        if candidates:
            return draws.choice(candidates)
    return None


def _between(source: Wall, target: Wall, offset: int, distance: int) -> Wall | None:
    """The wall from `source` at `offset` to `target`, unless it is too close to a parallel one or misses."""
    leaving = source.below if target.line < source.line else source.above
    if min(abs(offset - point) for point in (0, source.length, *leaving)) <= distance:
        return None
    along = source.first + offset
    low, high = sorted((source.line, target.line))
    start, end = ((low, along), (high, along)) if source.vertical else ((along, low), (along, high))
    return Wall(start, end) if target.touches(end if target.line > source.line else start) else None


def _join(walls: list[Wall], wall: Wall) -> None:
    """Add the wall, and note the junctions on both sides."""
    for other in walls:
        _note(other, wall)
        _note(wall, other)
    walls.append(wall)


def _note(wall: Wall, other: Wall) -> None:
    if wall.vertical == other.vertical:
        return
    if wall.touches(other.start):
        wall.above.append((other.start[1] if wall.vertical else other.start[0]) - wall.first)
    elif wall.touches(other.end):
        wall.below.append((other.end[1] if wall.vertical else other.end[0]) - wall.first)


def _three_rooms(grid: int, draws: Draws) -> tuple[list[Wall], list[Room]]:
    """One wall across, a second one from it to one side: a large room and two small ones."""
    first, second = (int(grid * draws.uniform(0.4, 0.6)) for _ in range(2))
    vertical, low_side = draws.chance(0.5), draws.chance(0.5)
    last = grid - 1
    near, far = ((1, first - 1), (first + 1, last)) if low_side else ((first + 1, last), (1, first - 1))
    begin, end = (0, first) if low_side else (first, last)
    sides = ((1, second - 1), (second + 1, last))
    if vertical:
        across, split = Wall((first, 0), (first, last)), Wall((begin, second), (end, second))
        rooms = [(*far, 1, last), *((*near, *side) for side in sides)]
    else:
        across, split = Wall((0, first), (last, first)), Wall((second, begin), (second, end))
        rooms = [(1, last, *far), *((*side, *near) for side in sides)]
    _join(walls := [across], split)
    return walls, rooms
