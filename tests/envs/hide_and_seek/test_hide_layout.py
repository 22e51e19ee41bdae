"""Worlds: doors, rooms and placement."""

import numpy as np
import pytest

from srl.envs.hide_and_seek.config import PRESETS, Config, preset
from srl.envs.hide_and_seek.draws import Draws
from srl.envs.hide_and_seek.layout import AGENT, CUBE, Layout, box_sizes, layout
from srl.envs.hide_and_seek.walls import Wall, plan, with_door
from tests.errors import raises


def draws(seed: int) -> Draws:
    return Draws(np.random.default_rng(seed))


def world(config: Config, seed: int) -> Layout:
    return layout(config, np.random.default_rng(seed))


def span(wall: Wall) -> tuple[float, float]:
    """Ends in metres along the wall."""
    x, y, wide, deep, _ = wall.box(0.2)
    return (y - deep / 2, y + deep / 2) if wall.vertical else (x - wide / 2, x + wide / 2)


def test_a_wall_ends_half_its_thickness_before_the_centre_of_its_last_cell() -> None:
    x, y, wide, deep, high = Wall((3, 2), (3, 6)).box(0.2)
    assert (x, wide, deep, high) == pytest.approx((0.7, 0.1, 5 * 0.2 - 0.3, 0.5))
    assert (y - deep / 2, y + deep / 2) == pytest.approx((0.5 + 0.05, 1.3 - 0.05))


@pytest.mark.parametrize("vertical", [True, False])
def test_a_door_opens_seventy_centimetres(vertical: bool) -> None:
    for seed in range(50):
        wall = Wall((4, 0), (4, 20)) if vertical else Wall((0, 4), (20, 4))
        parts = with_door(wall, 2, draws(seed))
        if len(parts) == 2:
            (_, low_end), (high_start, _) = span(parts[0]), span(parts[1])
            assert high_start - low_end == pytest.approx(0.7)
        else:
            # the door is at one end: what is left is three cells shorter
            assert parts[0].length == 17


def test_a_door_lies_between_neighbouring_junctions_and_starts_anywhere_there() -> None:
    starts = set()
    for seed in range(300):
        wall = Wall((4, 0), (4, 20), below=[2], above=[12])
        covered = {cell for part in with_door(wall, 2, draws(seed)) for cell in range(part.start[1], part.end[1] + 1)}
        hole = sorted(set(range(21)) - covered)
        door = [cell for cell in hole if cell not in (0, 20)] if len(hole) > 2 else hole
        assert not {2, 12} & set(door)
        starts.add(door[0])
    assert {3, 10, 13, 18} <= starts
    assert not starts & {1, 11, 19}


def test_a_gap_of_less_than_three_cells_gets_no_door() -> None:
    assert len(with_door(Wall((4, 0), (4, 2)), 2, draws(0))) == 1


def test_the_quadrant_has_one_door_in_half_of_the_worlds_and_two_in_the_others() -> None:
    arena = preset("quadrant").arena
    lengths = []
    for seed in range(400):
        walls = plan(arena, draws(seed))
        assert walls is not None and len(walls.walls) <= arena.wall_slots
        lengths.append(sum(wall.length + 1 for wall in walls.walls[4:]))
    full = 16 + 15
    # each door takes two cells, and one more when it leaves a wall of one cell
    one = sum(length in (full - 2, full - 3) for length in lengths)
    assert 160 < one < 240
    assert min(lengths) >= full - 6 and max(lengths) == full - 2


@pytest.mark.parametrize("name", ["full", "harder_2", "lock_and_return"])
def test_random_rooms_are_reachable_from_each_other(name: str) -> None:
    arena = preset(name).arena
    for seed in range(40):
        walls = plan(arena, draws(seed))
        assert walls is not None and len(walls.walls) <= arena.wall_slots
        free = np.ones((arena.grid, arena.grid), bool)
        free[[0, -1]] = free[:, [0, -1]] = False
        for wall in walls.walls:
            free[wall.start[0] : wall.end[0] + 1, wall.start[1] : wall.end[1] + 1] = False
        reached = np.zeros_like(free)
        reached[tuple(np.argwhere(free)[0])] = True
        before = 0
        while reached.sum() > before:
            before = reached.sum()
            for axis, shift in ((0, 1), (0, -1), (1, 1), (1, -1)):
                reached |= np.roll(reached, shift, axis) & free
        assert (reached == free).all()


def test_random_rooms_number_one_to_four_and_half_of_the_worlds_have_outer_walls() -> None:
    arena = preset("full").arena
    outer, inner = 0, set()
    for seed in range(300):
        walls = plan(arena, draws(seed))
        assert walls is not None
        high = [wall for wall in walls.walls if wall.height > 1]
        outer += len(high) == 4
        assert len(high) in (0, 4)
        inner.add(len(walls.walls) - len(high))
    assert 115 < outer < 185
    assert inner >= {0, 2, 4} and max(inner) <= 6


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_nothing_overlaps_and_everything_is_inside(name: str) -> None:
    config = preset(name)
    for seed in range(15):
        made = world(config, seed)
        rectangles = [(x, y, wide, deep) for x, y, wide, deep, _ in made.walls]
        fixed = len(rectangles)
        rectangles += [(*place, *AGENT[:2]) for place in made.agents[made.agent_there]]
        things = zip(made.objects[made.object_there], made.sizes[made.object_there], strict=True)
        rectangles += [(*place, *size[:2]) for place, size in things]
        if made.cylinder:
            x, y, width = made.cylinder
            rectangles.append((x, y, width, width))
        edges = np.array([(x - w / 2, x + w / 2, y - d / 2, y + d / 2) for x, y, w, d in rectangles])
        assert edges[fixed:].min() > 0 and edges[fixed:].max() < config.arena.side
        for index in range(fixed, len(edges)):
            left, right, low, high = edges[index]
            others = np.delete(edges, index, 0)
            meets = (others[:, 0] < right - 1e-9) & (others[:, 1] > left + 1e-9)
            meets &= (others[:, 2] < high - 1e-9) & (others[:, 3] > low + 1e-9)
            assert not meets.any()


@pytest.mark.parametrize("thing", ["agents", "cubes", "ramps"])
def test_things_stand_anywhere_within_their_cells(thing: str) -> None:
    """An agent of 0.3 m takes cells of 0.4, a cube of 0.5 m cells of 0.6: all have 0.1 m to spare."""
    config, places = preset("quadrant"), []
    for seed in range(60):
        made = world(config, seed)
        places += {"agents": made.agents, "cubes": made.objects[:2], "ramps": made.objects[2:]}[thing].tolist()
    half = (AGENT if thing == "agents" else CUBE)[0] / 2
    beyond = (np.array(places) - half + 1e-9) % 0.2
    assert beyond.max() <= 0.1 + 1e-6
    assert (np.histogram(beyond, 4, (0, 0.1))[0] > len(places) / 4).all()
    assert np.abs(beyond[:, 0] - beyond[:, 1]).max() > 0.05, "each axis on its own"


def test_quadrant_boxes_start_in_the_room_and_seekers_outside() -> None:
    config = preset("quadrant")
    quarters = set()
    for seed in range(60):
        made = world(config, seed)
        left, right, low, high = made.room
        boxes, seekers = made.objects[:2], made.agents[2:]
        assert ((boxes[:, 0] > left) & (boxes[:, 0] < right) & (boxes[:, 1] > low) & (boxes[:, 1] < high)).all()
        assert not ((seekers[:, 0] > left) & (seekers[:, 1] < high)).any()
        quarters |= {(x > 3.0, y > 3.0) for x, y in seekers}
    assert quarters == {(False, False), (False, True), (True, True)}


def test_a_team_starts_near_its_first_member() -> None:
    config = preset("full").override(hiders=(3, 3))
    for seed in range(40):
        made = world(config, seed)
        away = np.abs(made.agents[1:3] - made.agents[0]).max()
        assert away < (3 + 1) * 0.2


def test_numbers_of_agents_and_boxes_differ_between_worlds() -> None:
    config = preset("full")
    made = [world(config, seed) for seed in range(120)]
    assert {int(entry.agent_there[:3].sum()) for entry in made} == {1, 2, 3}
    assert {int(entry.agent_there[3:].sum()) for entry in made} == {1, 2, 3}
    assert {int(entry.object_there[:9].sum()) for entry in made} == set(range(3, 10))


def test_long_boxes_come_first_and_those_along_x_before_those_along_y() -> None:
    config = preset("full")
    seen = set()
    for seed in range(100):
        sizes = box_sizes(config, draws(seed))
        kinds = ["x" if wide > 1 else "y" if deep > 1 else "cube" for wide, deep, _ in sizes]
        assert kinds == sorted(kinds, key=["x", "y", "cube"].index)
        assert sum(kind != "cube" for kind in kinds) >= 3
        seen |= set(kinds)
    assert seen == {"x", "y", "cube"}
    assert set(box_sizes(preset("quadrant"), draws(0))) == {CUBE}


def test_a_world_is_a_function_of_its_generator() -> None:
    first, again = (world(preset("full"), 3) for _ in range(2))
    assert np.array_equal(first.walls, again.walls) and np.array_equal(first.objects, again.objects)
    assert not np.array_equal(first.agents, world(preset("full"), 4).agents)


def test_a_larger_arena_keeps_cells_and_things_and_scales_the_floor() -> None:
    arena = preset("harder_1_5").arena
    assert (arena.grid, arena.side, arena.cell) == (45, pytest.approx(9.0), 0.2)


def test_a_wrong_setting_is_named_with_the_nearest_one() -> None:
    with raises("E02", match="horizon"):
        preset("mini").override(horizn=3)
    with raises("E07", match="quadrant"):
        preset("quadrnt")
    with raises("E03", match="boxes"):
        preset("mini").override(boxes=(3, 2))


def test_what_does_not_fit_is_refused() -> None:
    with raises("E03", match="no world"):
        world(preset("mini").override(boxes=(60, 60)), 0)
