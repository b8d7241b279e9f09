"""The rover against closed forms; it never enters an occupied cell and never leaves the map, at any speed or rate."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import microsim
from microsim.engine.calls import Scene
from microsim.engine.geometry import clearance_of
from microsim.robots.rover import CONTACT_GAP_M, free_length
from tests.support import bare, many, scenario

TAU = 0.10


def driving(x=10.0, y=10.0, yaw=0.0, physics_hz=60, obstacles=(), cells=(20, 20), cell=1.0, **robot):
    start = {"map_pose": {"x": x, "y": y, "yaw": yaw}}
    return microsim.Simulation(
        scenario(
            physics_hz=physics_hz,
            map={"size_xy_cells": list(cells), "cell_size_m": cell},
            obstacles=list(obstacles),
            robots={"rover": bare(start=start, **robot)},
        )
    )


def block(column, row, cell=1.0):
    """An obstacle that fills one cell."""
    size = 0.5 * cell
    return {"type": "box", "center": [(column + 0.5) * cell, (row + 0.5) * cell, 0], "size": [size, size, 1]}


@pytest.mark.parametrize("physics_hz", [10, 60, 1000])
@pytest.mark.parametrize(
    ("inputs", "name", "settled"),
    [
        ({"v": 1.5}, "v", 1.5),
        ({"v": -9.0}, "v", -2.0),
        ({"omega": 0.7}, "omega", 0.7),
        ({"omega": -1e300}, "omega", -1.2),
    ],
)
def test_speed_approaches_the_clamped_command_as_one_minus_exp(physics_hz, inputs, name, settled):
    sim = driving(physics_hz=physics_hz)
    sim.command("rover", **inputs)
    for tick in range(1, physics_hz // 2):
        sim.advance()
        expected = settled * (1.0 - math.exp(-tick / physics_hz / TAU))
        assert getattr(sim.state("rover"), name) == pytest.approx(expected, rel=1e-12)


def test_straight_ahead_position_is_the_sum_of_the_speeds():
    sim, dt, n = driving(yaw=math.pi / 2), 1.0 / 60.0, 120
    sim.command("rover", v=1.0)
    sim.advance(n)
    q = math.exp(-dt / TAU)
    assert sim.state("rover").y - 10.0 == pytest.approx(dt * (n - q * (1.0 - q**n) / (1.0 - q)), rel=1e-11)
    assert sim.state("rover").x == pytest.approx(10.0, abs=1e-12)


def test_constant_speed_and_turn_make_a_circle():
    """The discrete circle: chords of v·dt, each turned by ω·dt, have the circumradius (v·dt/2) / sin(ω·dt/2)."""
    v, omega, dt = 1.0, 0.5, 1.0 / 60.0
    sim = driving(cmd_time_constant=0)
    sim.command("rover", v=v, omega=omega)
    sim.advance()
    points = []
    for _ in range(int(2 * math.pi / omega / dt) + 1):
        points.append((sim.state("rover").x, sim.state("rover").y))
        sim.advance()
    points = np.array(points)
    radius = 0.5 * v * dt / math.sin(0.5 * omega * dt)
    a = np.c_[2 * points, np.ones(len(points))]
    cx, cy, rest = np.linalg.lstsq(a, (points**2).sum(axis=1), rcond=None)[0]
    assert math.sqrt(rest + cx * cx + cy * cy) == pytest.approx(radius, rel=1e-9)
    assert np.hypot(points[:, 0] - cx, points[:, 1] - cy) == pytest.approx([radius] * len(points), rel=1e-9)
    assert radius == pytest.approx(v / omega, rel=1e-4)
    assert math.dist(points[0], points[-1]) < 2 * v * dt  # closed


def test_backwards_is_forwards_the_other_way():
    ahead, back = driving(), driving(yaw=math.pi)
    ahead.command("rover", v=1.0)
    back.command("rover", v=-1.0)
    for sim in (ahead, back):
        sim.advance(120)
    assert back.state("rover").x == pytest.approx(ahead.state("rover").x, abs=1e-12)


def test_a_rover_stands_on_the_ground():
    sim = microsim.Simulation(
        scenario(
            map={"size_xy_cells": [20, 20], "elevation": {"generate": "hills", "seed": 4}},
            robots={"rover": bare(start={"map_pose": {"x": 5, "y": 5}})},
        )
    )
    sim.command("rover", v=2.0, omega=0.2)
    for _ in range(200):
        state = sim.state("rover")
        assert state.z == sim.world.ground(state.x, state.y)
        sim.advance()


# ---- stopping

DIRECTIONS = [k * math.pi / 8 for k in range(16)]


@pytest.mark.parametrize("yaw", DIRECTIONS)
@pytest.mark.parametrize("speed", [1.0, -1.0])
def test_a_rover_stops_at_the_first_occupied_cell_in_every_direction(yaw, speed):
    """In a ring of obstacles: it ends within a millimetre and a half of one, and its speed is 0."""
    ring = [block(c, r) for c in range(7, 14) for r in range(7, 14) if c in (7, 13) or r in (7, 13)]
    sim = driving(x=10.5, y=10.5, yaw=yaw, obstacles=ring)
    sim.command("rover", v=speed * 2.0)
    sim.advance(300)
    state = sim.state("rover")
    assert not sim.world.is_occupied(state.x, state.y)
    wall = max(abs(state.x - 10.5), abs(state.y - 10.5))
    assert 2.5 - 2 * CONTACT_GAP_M < wall < 2.5
    assert state.v == 0.0
    assert state.contacts > 0
    heading = math.atan2(speed * (state.y - 10.5), speed * (state.x - 10.5))
    assert abs(math.remainder(heading - yaw, 2 * math.pi)) < 1e-9  # it did not slide


@pytest.mark.parametrize("physics_hz", [1, 5, 60])
@pytest.mark.parametrize("yaw", DIRECTIONS)
def test_no_speed_is_high_enough_to_tunnel(physics_hz, yaw):
    """1000 m/s at one tick a second jumps a kilometre: past the wall and the map, if anything did."""
    ring = [block(c, r) for c in range(7, 14) for r in range(7, 14) if c in (7, 13) or r in (7, 13)]
    sim = driving(x=10.5, y=10.5, yaw=yaw, obstacles=ring, physics_hz=physics_hz, max_v=1000, cmd_time_constant=0)
    sim.command("rover", v=1000.0)
    for _ in range(5):
        sim.advance()
        state = sim.state("rover")
        assert 7.0 < state.x < 14.0
        assert 7.0 < state.y < 14.0
        assert not sim.world.is_occupied(state.x, state.y)


@pytest.mark.parametrize("yaw", DIRECTIONS)
def test_the_edge_of_the_map_is_a_wall(yaw):
    sim = driving(yaw=yaw, max_v=50, physics_hz=3)
    sim.command("rover", v=50.0)
    sim.advance(30)
    state = sim.state("rover")
    assert sim.world.is_inside(state.x, state.y)
    distance = min(state.x, state.y, 20.0 - state.x, 20.0 - state.y)
    assert 0.0 < distance <= 2 * CONTACT_GAP_M
    assert state.v == 0.0


def test_a_rover_does_not_slip_through_two_cells_that_share_a_corner():
    sim = driving(x=9.5, y=9.5, yaw=math.pi / 4, obstacles=[block(10, 9), block(9, 10)])
    sim.command("rover", v=2.0)
    sim.advance(300)
    assert sim.state("rover").x < 10.0
    assert sim.state("rover").y < 10.0


def test_a_rover_drives_through_a_corridor_one_cell_wide():
    walls = [block(c, r) for c in range(2, 18) for r in (4, 6)]
    sim = driving(x=1.0, y=5.5, yaw=0.0, obstacles=walls)
    sim.command("rover", v=2.0)
    sim.advance(540)
    assert sim.state("rover").x > 18.0
    assert sim.state("rover").contacts == 0


def test_a_rover_drives_along_a_wall_it_touches():
    sim = driving(x=5.0, y=5.0, yaw=0.0, obstacles=[block(c, 4) for c in range(20)])
    sim.command("rover", v=2.0)
    sim.advance(240)
    assert sim.state("rover").x > 12.0


def test_a_stopped_rover_turns_on_the_spot_and_drives_away():
    sim = driving(x=10.5, y=10.5, obstacles=[block(12, 10)])
    sim.command("rover", v=2.0)
    sim.advance(200)
    stopped = sim.state("rover")
    assert stopped.v == 0.0
    sim.command("rover", omega=1.2)
    sim.advance(170)
    turned = sim.state("rover")
    assert (turned.x, turned.y) == (stopped.x, stopped.y)
    assert abs(turned.yaw) > 2.0
    sim.command("rover", v=2.0)
    sim.advance(60)
    assert sim.state("rover").x < stopped.x - 1.0


def test_a_rover_backs_off_from_what_stopped_it():
    sim = driving(x=10.5, y=10.5, obstacles=[block(12, 10)])
    sim.command("rover", v=2.0)
    sim.advance(200)
    stopped = sim.state("rover").x
    sim.command("rover", v=-1.0)
    sim.advance(60)
    assert sim.state("rover").x < stopped - 0.5


@st.composite
def drives(draw):
    columns, rows = draw(st.integers(2, 12)), draw(st.integers(2, 12))
    taken = draw(
        st.sets(st.tuples(st.integers(0, columns - 1), st.integers(0, rows - 1)), max_size=columns * rows // 2)
    )
    free = sorted({(c, r) for c in range(columns) for r in range(rows)} - taken)
    column, row = draw(st.sampled_from(free))
    offsets = st.one_of(st.floats(0.0, 0.999), st.sampled_from([0.0, 0.5]))
    legs = draw(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.integers(1, 15)), min_size=1, max_size=6))
    return {
        "cells": (columns, rows),
        "cell": draw(st.sampled_from([1.0, 0.5, 0.1, 0.3, 2.0])),
        "taken": sorted(taken),
        "at": (column + draw(offsets), row + draw(offsets)),
        "yaw": draw(st.one_of(st.floats(-4, 4), st.sampled_from(DIRECTIONS))),
        "physics_hz": draw(st.sampled_from([1, 3, 10, 60, 1000])),
        "speed": draw(st.sampled_from([0.1, 2.0, 30.0, 1000.0])),
        "legs": legs,
    }


@settings(max_examples=many(150))
@given(drives())
@example(
    {
        "cells": (3, 3),
        "cell": 0.1,
        "taken": [(1, 1)],
        "at": (2.0, 1.5),
        "yaw": math.pi,
        "physics_hz": 1,
        "speed": 1000.0,
        "legs": [(1.0, 0.0, 3)],
    }
)
def test_a_rover_never_enters_an_occupied_cell_nor_leaves_the_map(drive):
    """Random worlds, speeds, rates and commands; and on the straight way between ticks nothing occupied is crossed."""
    cell = drive["cell"]
    x, y = drive["at"][0] * cell, drive["at"][1] * cell
    if (math.floor(x / cell), math.floor(y / cell)) in drive["taken"]:
        return  # rounded into the neighbour
    sim = driving(
        x=x,
        y=y,
        yaw=drive["yaw"],
        physics_hz=drive["physics_hz"],
        cells=drive["cells"],
        cell=cell,
        obstacles=[block(c, r, cell) for c, r in drive["taken"]],
        max_v=drive["speed"],
        max_omega=5.0,
        cmd_time_constant=0.02,
    )
    for v, omega, ticks in drive["legs"]:
        sim.command("rover", v=v * drive["speed"], omega=5.0 * omega)
        for _ in range(ticks):
            before = sim.state("rover")
            sim.advance()
            after = sim.state("rover")
            assert sim.world.is_inside(after.x, after.y)
            assert not sim.world.is_occupied(after.x, after.y)
            for share in np.linspace(0.0, 1.0, 21)[1:-1]:
                px, py = before.x + share * (after.x - before.x), before.y + share * (after.y - before.y)
                assert not deep_inside(drive["taken"], cell, px, py)


def deep_inside(taken, cell, x, y):
    """In an occupied cell by more than rounding: a way that grazes a corner is no trespass."""
    c, r = math.floor(x / cell), math.floor(y / cell)
    margin = 1e-9 * cell
    return (c, r) in taken and min(x - c * cell, (c + 1) * cell - x, y - r * cell, (r + 1) * cell - y) > margin


@given(st.floats(0.001, 3.999), st.floats(0.001, 3.999), st.floats(-4, 4), st.floats(0, 1e6))
def test_the_free_length_ends_in_a_free_cell(x, y, angle, length):
    occupied = np.zeros((4, 4), np.uint8)
    occupied[2, 1] = occupied[0, 3] = 1
    if occupied[int(y), int(x)]:
        return
    dx, dy = math.cos(angle), math.sin(angle)
    grid, flat = clearance_of(occupied), np.zeros((1, 1))
    scene = Scene(flat, grid, grid, grid, 1.0, 0.0, 0.0, 0.1, np.zeros(12), np.zeros(1))
    free = free_length(scene, x, y, dx, dy, length)
    assert 0.0 <= free <= length
    end_x, end_y = x + dx * free, y + dy * free
    assert 0.0 <= end_x < 4.0
    assert 0.0 <= end_y < 4.0
    assert not occupied[int(end_y), int(end_x)]


# ---- teleports


def test_a_teleport_takes_all_speed_away():
    sim = driving()
    sim.command("rover", v=2.0, omega=1.0)
    sim.advance(60)
    assert sim.set_pose("rover", x=5.0, y=6.0, yaw=0.5)
    sim.command("rover")
    sim.advance()
    state = sim.state("rover")
    assert (state.x, state.y, state.yaw, state.v, state.omega) == (5.0, 6.0, 0.5, 0.0, 0.0)


@pytest.mark.parametrize(("x", "y"), [(-0.1, 5.0), (5.0, 20.0), (20.0, 5.0), (10.2, 10.2)])
def test_a_teleport_off_the_map_or_into_an_obstacle_is_ignored_and_counted(x, y):
    sim = driving(x=5.0, y=5.0, obstacles=[block(10, 10)])
    assert not sim.set_pose("rover", x=x, y=y)
    sim.advance()
    assert (sim.state("rover").x, sim.state("rover").y) == (5.0, 5.0)
    assert sum(sim.counters.values()) == 1


def test_wind_does_not_move_a_rover():
    sim = microsim.Simulation(
        scenario(
            wind={"world_xyz": [5, 5, 5], "gust_sigma": 3}, robots={"rover": bare(start={"map_pose": {"x": 5, "y": 5}})}
        )
    )
    sim.advance(100)
    assert (sim.state("rover").x, sim.state("rover").y) == (5.0, 5.0)
