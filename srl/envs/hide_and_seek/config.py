"""Settings and presets of hide and seek. Units: meters, seconds, cells of `Arena.cell`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from srl.core.errors import NotImportable, UserError
from srl.core.load import dump, load, nearest, option
from srl.core.option import written

Range = tuple[int, int]
STEP = 0.075
"""Seconds of one environment step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arena:
    scenario: Literal["quadrant", "var_quadrant", "randomwalls", "half", "var_tri", "empty"] = "quadrant"
    scale: float = option(1.0, low=0.5)
    """Side of the floor divided by 6 m; cells, doors, walls, boxes and agents keep their sizes."""
    rooms: Range = option((1, 4), low=1)
    """Range of the number of rooms in `randomwalls`, drawn uniformly."""
    min_room: int = option(6, low=1)
    """Minimum distance of parallel walls, in cells (exclusive)."""
    door: int = option(2, low=0)
    """Width of a door in cells; 0: no doors."""
    door_dropout: float = option(0.5, low=0, high=1)
    """Probability that only one of the two walls of a quadrant has a door."""
    outer_walls: float = option(1.0, low=0, high=1)
    """Probability of outer walls in `randomwalls`; the other scenarios always have them."""
    wall_friction: float = option(0.01, low=0)
    cylinder: tuple[float, float] | None = option(None, above=0)
    """Range of the diameter of a fixed cylinder; null: none."""
    cylinder_middle: float = option(0.7, above=0, high=1)
    """Central fraction of the side in which the cylinder is placed."""

    @property
    def cell(self) -> float:
        return 0.2

    @property
    def grid(self) -> int:
        """Cells along one side."""
        return round(30 * self.scale)

    @property
    def side(self) -> float:
        """Meters along one side."""
        return self.grid * self.cell

    @property
    def wall_slots(self) -> int:
        """The most walls that one layout of this scenario can have."""
        inner = {"quadrant": 4, "var_quadrant": 4, "half": 2, "var_tri": 4, "empty": 0}
        return 4 + inner.get(self.scenario, 2 * (self.rooms[1] - 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Teams:
    hiders: Range = option((2, 2), low=1)
    """Range of the number of hiders, drawn uniformly; there is room for the upper end."""
    seekers: Range = option((2, 2), low=0)
    """The same of seekers."""
    counts: Literal["episode", "process"] = "episode"
    """When team sizes are drawn: for every episode, or once per process."""
    hider_placement: Literal["uniform", "room"] = "uniform"
    seeker_placement: Literal["uniform", "outside"] = "outside"
    together: int | None = option(None, low=1)
    """Maximum initial distance of a team from its first member, in cells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objects:
    boxes: Range = option((2, 2), low=0)
    elongated: Range | Literal["random"] = option((0, 0), low=0)
    """Elongated boxes among them; `random`: from the lower end of `boxes` to the number of boxes."""
    ramps: Range = option((1, 1), low=0)
    lock_ramps: bool = False
    box_placement: Literal["uniform", "room"] = "room"
    ramp_placement: Literal["uniform", "one_per_room"] = "uniform"
    sites: Range = option((0, 0), low=0)
    """Construction sites (transfer tasks)."""

    size_obs: bool = False
    """Add sizes to the observations of boxes, and zeros in their place to those of ramps."""
    pad: bool = False
    """Add a row of zeros for absent kinds of objects, so that one policy fits several presets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    horizon: int = option(80, low=1)
    preparation: float = option(0.4, low=0, below=1)
    """Fraction of the horizon in which seekers cannot act and rewards are zero."""
    end: Literal["truncated", "terminated"] = "truncated"
    """How the time limit is reported; `truncated` keeps the bootstrap value."""

    @property
    def prep_steps(self) -> int:
        return round(self.horizon * self.preparation)


@dataclass(frozen=True, kw_only=True, slots=True)
class Senses:
    lidar: int = option(30, low=1)
    """Number of lidar rays."""
    lidar_far: float = option(6.0, above=0)
    """Reading of a lidar ray that hits nothing."""
    cone: float = option(3.0 * 3.141592653589793 / 8.0, above=0, high=3.141592653589793)
    """Half angle of the vision cone, in radians."""
    positions: Literal["centre", "joint"] = "centre"
    """`joint` is the original: the center minus half the initial size."""
    yaw: Literal["unit", "raw"] = "unit"
    """Yaw of agents as (cos, sin), or as the unwrapped angle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    reach: float = option(0.25, low=0)
    """Maximum distance from an agent's center to an object's surface for grabbing and locking."""
    penalty: float = 10.0
    """The reward of an agent outside the rectangle is minus this."""
    rectangle: tuple[float, float] | None = (0.1, 5.9)
    """Range of both axes on the 6 m floor, scaled with it; null: no penalty."""
    objects_inside: bool = True
    """All agents get the penalty while an object is outside."""
    unowned_veto: bool = True
    """Quirk of the original: an object that was never locked counts as last locked by the hiders."""
    task: Literal["hide", "lock_and_return", "sequential_lock", "blueprint", "shelter"] = "hide"


@dataclass(frozen=True, kw_only=True, slots=True)
class Physics:
    substeps: int = option(15, low=1)
    """Physics substeps per env step of 0.075 s."""
    arms: bool = False
    """Let the agents' arms collide, as in the original; this sometimes throws agents into the air."""
    corners: bool = True
    """Boxes and ramps rest on four corners; false: on one contact point with similar friction, which is faster."""
    threads: int = option(1, low=1)

    @property
    def timestep(self) -> float:
        return STEP / self.substeps


PHYSICS: dict[str, dict[str, Any]] = {"exact": {"substeps": 15, "corners": True}, "fast": {"substeps": 7, "corners": False}}
"""Settings of each value of `physics`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    arena: Arena = field(default_factory=Arena)
    teams: Teams = field(default_factory=Teams)
    objects: Objects = field(default_factory=Objects)
    timing: Timing = field(default_factory=Timing)
    senses: Senses = field(default_factory=Senses)
    rules: Rules = field(default_factory=Rules)
    physics: Physics = field(default_factory=Physics)

    def __post_init__(self) -> None:
        """What the ranges of single settings leave open."""
        _check_ranges(self)
        _check_places(self)
        _check_task(self)
        if self.timing.prep_steps >= self.timing.horizon:
            raise UserError(
                f"'env.preparation' of {self.timing.preparation:g} covers all {self.timing.horizon} steps of 'env.horizon'",
                ("expected", "at least one step after the preparation"),
                code="E03",
            )

    @property
    def hiders(self) -> int:
        """Capacity."""
        return self.teams.hiders[1]

    @property
    def seekers(self) -> int:
        return self.teams.seekers[1]

    @property
    def agents(self) -> int:
        return self.hiders + self.seekers

    @property
    def boxes(self) -> int:
        return self.objects.boxes[1]

    @property
    def ramps(self) -> int:
        return self.objects.ramps[1]

    def override(self, **values: Any) -> Config:
        """This config with some fields of its parts replaced; field names are unique over the parts."""
        owners = {entry.name: part.name for part in fields(self) for entry in fields(getattr(self, part.name))}
        changes: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name not in owners:
                known = sorted([*owners, "picture", "physics", "preset"])
                near = nearest(name, known)
                fact = ("did you mean", f"{near}?") if near else ("settings", ", ".join(known))
                raise UserError(f"'env' has no setting '{name}'", fact, code="E02")
            changes.setdefault(owners[name], {})[name] = value
        return replace(self, **{part: _changed(getattr(self, part), some) for part, some in changes.items()})


def preset(name: str) -> Config:
    """The config of that name."""
    if name not in PRESETS:
        raise NotImportable(f"hide_and_seek has no preset {name!r}", ("try", nearest(name, list(PRESETS)) or ", ".join(PRESETS)))
    return PRESETS[name]


def _changed(part: Any, values: dict[str, Any]) -> Any:
    """A part with some of its fields replaced, each of its type and in its range."""
    kept = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    return load(type(part), kept | values, path="env")


def _check_ranges(config: Config) -> None:
    for part in (getattr(config, entry.name) for entry in fields(config)):
        for name, value in ((entry.name, getattr(part, entry.name)) for entry in fields(part)):
            if isinstance(value, tuple) and value[0] > value[1]:
                raise UserError(f"'env.{name}' is {written(dump(value))}", ("expected", "the lower end first"), code="E03")


def _check_places(config: Config) -> None:
    """Only some scenarios have rooms with names."""
    teams, objects, scenario = config.teams, config.objects, config.arena.scenario
    quadrants = ("quadrant", "var_quadrant")
    for name, value, scenarios in (
        ("hider_placement", teams.hider_placement, quadrants),
        ("seeker_placement", teams.seeker_placement, quadrants),
        ("box_placement", objects.box_placement, quadrants),
        ("ramp_placement", objects.ramp_placement, (*quadrants, "var_tri")),
    ):
        if value != "uniform" and scenario not in scenarios:
            raise UserError(
                f"'env.scenario' is {scenario}, which has no room for env.{name}={value}",
                ("expected", f"env.scenario={' or '.join(scenarios)}, or env.{name}=uniform"),
                code="E03",
            )


def _check_task(config: Config) -> None:
    """What each task cannot do without."""
    teams, objects, cylinder, task = config.teams, config.objects, config.arena.cylinder, config.rules.task
    alone = task != "hide"
    for name, found, fits, expected in (
        ("seekers", teams.seekers, alone or teams.seekers[0] > 0, "at least 1"),
        ("hiders", teams.hiders, not alone or teams.hiders == (1, 1), "[1, 1], alone"),
        ("seekers", teams.seekers, not alone or teams.seekers == (0, 0), "[0, 0]"),
        ("boxes", objects.boxes, not alone or objects.boxes[0] > 0, "at least 1"),
        ("sites", objects.sites, task != "blueprint" or objects.sites[0] > 0, "at least 1"),
        ("cylinder", cylinder, task != "shelter" or cylinder is not None, "a range of diameters"),
    ):
        if not fits:
            tries = [("try", f"env.preset={task}, which sets all that this task needs")] if alone else []
            raise UserError(
                f"'env.{name}' is {written(dump(found))}", ("expected", f"{expected} in the task {task}"), *tries, code="E03"
            )


_QUADRANT = Config()
_MINI = _QUADRANT.override(
    hiders=(1, 1), seekers=(1, 1), boxes=(1, 1), ramps=(0, 0), rectangle=None, objects_inside=False, **PHYSICS["fast"]
)
_FULL = Config(
    arena=Arena(scenario="randomwalls", outer_walls=0.5, wall_friction=1.0),
    teams=Teams(hiders=(1, 3), seekers=(1, 3), seeker_placement="uniform", together=3),
    objects=Objects(boxes=(3, 9), elongated="random", ramps=(2, 2), lock_ramps=True, size_obs=True, box_placement="uniform"),
    timing=Timing(horizon=240),
    rules=Rules(rectangle=(-6.0, 12.0), objects_inside=False),
)
_FAITHFUL: dict[str, Any] = {"arms": True, "positions": "joint", "yaw": "raw", "counts": "process"}
_TASK = _FULL.override(
    task="lock_and_return",
    hiders=(1, 1),
    seekers=(0, 0),
    preparation=0.0,
    rectangle=None,
    outer_walls=1.0,
    ramps=(0, 0),
    elongated=(0, 0),
    together=None,
    pad=True,
)
_HARDER = _FULL.override(scale=1.5, horizon=360, hiders=(1, 4), seekers=(1, 4), boxes=(3, 12), together=5)

PRESETS: dict[str, Config] = {
    "mini": _MINI,
    "mini_2v2": _QUADRANT.override(**PHYSICS["fast"]),
    "quadrant": _QUADRANT,
    "full": _FULL,
    "harder": _HARDER,
    "harder_1_5": _HARDER,
    "harder_2": _FULL.override(scale=2.0, horizon=480, hiders=(1, 5), seekers=(1, 5), boxes=(3, 16), ramps=(2, 3), together=6),
    "original": _FULL.override(**_FAITHFUL),
    "original_quadrant": _QUADRANT.override(**_FAITHFUL),
    "lock_and_return": _TASK.override(horizon=120, rooms=(6, 6), boxes=(1, 1)),
    "sequential_lock": _TASK.override(
        task="sequential_lock",
        horizon=120,
        scenario="var_tri",
        door=0,
        boxes=(4, 4),
        ramps=(3, 3),
        ramp_placement="one_per_room",
    ),
    "blueprint": _TASK.override(task="blueprint", horizon=150, scenario="empty", boxes=(8, 8), sites=(1, 4), wall_friction=0.01),
    "shelter": _TASK.override(
        task="shelter",
        horizon=240,
        scenario="empty",
        boxes=(8, 8),
        elongated=(3, 3),
        cylinder=(1.5, 2.0),
        wall_friction=0.01,
    ),
}
