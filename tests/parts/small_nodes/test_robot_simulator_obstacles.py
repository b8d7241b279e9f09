"""Moving obstacles, /scan, and slowing down before what is in the way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from microsim.engine.calls import Scene
from microsim.engine.world import World
from microsim.errors import MapError
from microsim.parts.small_nodes import discs
from microsim.parts.small_nodes.robot_maps import NOWHERE, MovingObstacles, read_obstacles, world_of_cells
from microsim.parts.small_nodes.robot_simulator_node import PlanarPose
from microsim.robots import navigation_robot
from tests.navigation import Hand
from tests.support import many, stamp_ns


def moving(*obstacles, seed=0, dt=0.1):
    return MovingObstacles(read_obstacles({"obstacles": list(obstacles)}), seed, dt)


def places(obstacles, ticks, grid=NOWHERE):
    """[[(x, y) of every obstacle] at every tick]."""
    found = [obstacles.discs[:2].T.tolist()]
    for tick in range(ticks):
        obstacles.advance(tick, grid)
        found.append(obstacles.discs[:2].T.tolist())
    return found


def wall(x: float, length: float = 10.0, cell: float = 0.1) -> World:
    """A thick wall from x on, for y from -length/2 to length/2."""
    cells = round(length / cell)
    return world_of_cells(np.ones((cells, 10), np.uint8), cell, (x, -length / 2, 0.0))


# ---- how they move --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        # after 0, 2, 4, 5, 6, 8, 9, 12 m of an L of 3 + 2 m (its way back to the start is √13 m)
        ("once", [(0, 0), (2, 0), (3, 1), (3, 2), (3, 2), (3, 2), (3, 2), (3, 2)]),
        ("back_and_forth", [(0, 0), (2, 0), (3, 1), (3, 2), (3, 1), (2, 0), (1, 0), (2, 0)]),
    ],
)
def test_a_scripted_obstacle_is_where_its_path_says(repeat, expected):
    path = {"path": [[0, 0], [3, 0], [3, 2]], "speed": 2.0, "repeat": repeat}
    found = places(moving(path, dt=0.5), 12)
    assert [tuple(map(round, found[metre][0])) for metre in (0, 2, 4, 5, 6, 8, 9, 12)] == expected
    assert np.allclose([found[metre][0] for metre in (0, 2, 4, 5, 6, 8, 9, 12)], expected, atol=1e-12)


def test_a_loop_goes_on_from_its_last_corner_to_its_first_for_ever():
    square = {"path": [[0, 0], [1, 0], [1, 1], [0, 1]], "speed": 1.0, "repeat": "loop"}
    found = places(moving(square, dt=0.5), 4000)
    corners = [(0, 0), (0.5, 0), (1, 0), (1, 0.5), (1, 1), (0.5, 1), (0, 1), (0, 0.5)]
    for tick, ((x, y),) in enumerate(found):
        assert (x, y) == pytest.approx(corners[tick % 8], abs=1e-9)


def test_an_obstacle_waits_for_its_start_and_one_that_stands_stays():
    late = {"path": [[0, 0], [10, 0]], "speed": 1.0, "start_s": 1.0, "repeat": "once"}
    found = places(moving(late, {"at": [4.0, 5.0]}), 30)
    assert found[10][0] == [0.0, 0.0]
    assert found[20][0] == pytest.approx([1.0, 0.0])
    assert all(each[1] == [4.0, 5.0] for each in found)


@settings(max_examples=many(25))
@given(seed=st.integers(-(2**63), 2**63 - 1), speed=st.floats(0.1, 3.0), turn=st.floats(0.05, 3.0))
def test_a_random_walker_stays_in_its_rectangle_and_never_outruns_its_speed(seed, speed, turn):
    walker = {"walk": {"start": [1.0, 1.0], "speed": speed, "turn_every_s": turn, "within": [[0, 0], [2, 3]]}}
    found = np.array(places(moving(walker, seed=seed), 300))[:, 0]
    assert (found >= 0.0).all()
    assert (found <= [2.0, 3.0]).all()
    steps = np.hypot(*np.diff(found, axis=0).T)
    assert ((np.abs(steps - speed * 0.1) < 1e-9) | (steps == 0.0)).all()


def test_a_random_walker_never_enters_an_occupied_cell():
    occupied = np.zeros((20, 20), np.uint8)
    occupied[5:15, 8:12] = 1
    grid = world_of_cells(occupied, 0.25, (-2.0, -2.0, 0.4))
    walker = {"walk": {"start": [-1.5, -1.0], "speed": 1.0, "within": [[-4, -4], [4, 4]]}}
    found = places(moving(walker, seed=4), many(3000, 300), grid)
    assert not any(grid.is_occupied(x, y) for ((x, y),) in found)


def test_walks_are_decided_by_seed_and_name_alone():
    a = {"name": "a", "walk": {"start": [0, 0]}}
    b = {"name": "b", "walk": {"start": [0, 0]}}
    alone, both = places(moving(a, seed=9), 50), places(moving(b, a, seed=9), 50)
    assert [each[0] for each in alone] == [each[1] for each in both]
    assert [each[0] for each in both] != [each[1] for each in both]
    assert places(moving(a, seed=10), 50) != alone


def test_a_random_walk_spreads_as_a_random_walk():
    """n straight stretches of length l in random directions: mean square n·l²."""
    walks = [{"walk": {"start": [0, 0], "speed": 1.0, "turn_every_s": 1.0, "within": [[-99, -99], [99, 99]]}}] * many(
        400, 60
    )
    ends = np.array(places(moving(*walks, dt=0.25), 100)[-1])
    assert np.mean(np.sum(ends**2, axis=1)) == pytest.approx(25.0, rel=4.0 / math.sqrt(len(walks)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "obstacles:\n  - {radius: 0.3}\n",
            r":2:5: obstacles\[0\]: expected one of the keys path, walk, at, found none",
        ),
        ("obstacles:\n  - {at: [1, 2], walk: {start: [0, 0]}}\n", r"found walk and at"),
        (
            "obstacles:\n  - {at: [1, 2], radius: -1}\n",
            r":2:26: obstacles\[0\].radius: expected a value above 0, found -1",
        ),
        ("obstacles:\n  - {at: [1, 2], raduis: 1}\n", r"unknown key 'raduis'; did you mean 'radius'"),
        ("obstacles:\n  - {path: [[0, 0]]}\n", r"expected at least 2 values, found 1"),
        ("obstacles:\n  - {at: [1, 2], speed: 1}\n", r"speed belongs to a path"),
        (
            "obstacles:\n  - {path: [[1, 2], [1, 2.0001]]}\n",
            r"expected a path of at least 0\.001 m to repeat, found 0\.0001 m",
        ),
        ("obstacles:\n  - {walk: {start: [9, 0], within: [[0, 0], [1, 1]]}}\n", r"expected a point inside `within`"),
        ("obstacles:\n  - {walk: {start: [0, 0], within: [[1, 1], [0, 0]]}}\n", r"south-west corner"),
        (
            "obstacles:\n  - {name: a, at: [0, 0]}\n  - {name: a, at: [0, 0]}\n",
            r"name 'a' is that of obstacles\[0\] too",
        ),
        ("obstacles: [", "not valid YAML"),
        ("[]", "expected a mapping"),
    ],
)
def test_a_bad_file_of_obstacles_is_refused_with_its_place(tmp_path, text, said):
    file = tmp_path / "crowd.yaml"
    file.write_text(text)
    with pytest.raises(MapError, match=said) as refusal:
        read_obstacles(file)
    assert str(file) in str(refusal.value)


# ---- what a scan sees -----------------------------------------------------------------------------------------------


def marched(grid: World, round_ones, pose, angle, reach, step=0.002):
    """Distance along a ray in small steps: slow, and certain."""
    x, y, yaw = pose
    for k in range(int(reach / step)):
        px, py = x + math.cos(yaw + angle) * k * step, y + math.sin(yaw + angle) * k * step
        if grid.is_occupied(px, py) or any(math.hypot(px - cx, py - cy) <= radius for cx, cy, radius in round_ones):
            return k * step
    return math.inf


@settings(max_examples=many(12, 3))
@given(st.integers(0, 2**32), st.floats(-3.1, 3.1), st.floats(-3.1, 3.1))
def test_a_scan_agrees_with_marching_along_every_ray(seed, turned, yaw):
    dice = np.random.default_rng(seed)
    grid = world_of_cells((dice.random((16, 20)) < 0.1).astype(np.uint8), 0.25, (-2.0, -2.5, turned))
    round_ones = [(*dice.uniform(-3.0, 3.0, 2), dice.uniform(0.1, 0.5)) for _ in range(2)]
    standing = [{"at": [x, y], "radius": radius} for x, y, radius in round_ones]
    pose = PlanarPose(*dice.uniform(-1.0, 1.0, 2), yaw)
    hand = Hand(grid, standing, scan_hz=10.0, scan_beams=24, scan_range_min=0.0, scan_range_max=4.0)
    hand.core.initial_pose(0, pose)
    hand.step()
    scan = hand.on("/scan")[0]
    for beam, found in enumerate(scan.ranges):
        angle = scan.angle_min + beam * scan.angle_increment
        expected = marched(grid, round_ones, pose, angle, 4.0)
        if math.isinf(expected) or math.isinf(found):  # a corner that only one of them grazes
            assert found > 3.99 or expected > 3.99 or grazes(grid, round_ones, pose, angle)
        elif abs(found - expected) > 0.01:
            assert grazes(grid, round_ones, pose, angle)


def grazes(grid, round_ones, pose, angle):
    """Whether rays a hair's breadth to either side see something else."""
    left, right = (marched(grid, round_ones, pose, angle + turn, 4.0) for turn in (-0.004, 0.004))
    return abs(left - right) > 0.02 or left != right


def test_a_wall_and_a_disc_are_seen_at_their_distances():
    hand = Hand(wall(3.0), [{"at": [0.0, 2.0], "radius": 0.5}], scan_hz=10.0, scan_beams=4, scan_angle_max=math.pi)
    hand.start()
    hand.step()
    scan = hand.on("/scan")[0]
    back, right, ahead, left = scan.ranges.tolist()
    assert (back, right) == (math.inf, math.inf)
    assert (ahead, left) == pytest.approx((3.0, 1.5))
    assert scan.header.frame_id == "base_link"
    assert (scan.range_min, scan.range_max) == pytest.approx((0.05, 12.0))
    assert scan.scan_time == pytest.approx(0.1)
    assert [scan.angle_min + k * scan.angle_increment for k in range(4)] == pytest.approx(
        [-math.pi, -math.pi / 2, 0.0, math.pi / 2]
    )


def test_too_near_is_minus_inf_and_too_far_plus_inf():
    hand = Hand(None, [{"at": [0.0, 0.0], "radius": 0.5}, {"at": [20.0, 0.0]}], scan_hz=10.0, scan_beams=8)
    hand.start()
    hand.step()
    assert set(hand.on("/scan")[0].ranges.tolist()) == {-math.inf}
    hand.core.initial_pose(0, PlanarPose(-3.0, 0.0, math.pi))
    hand.step()
    assert hand.on("/scan")[-1].ranges[0] == pytest.approx(2.5)
    assert hand.on("/scan")[-1].ranges[4] == math.inf


def test_scans_follow_the_robots_place_and_not_what_localisation_believes():
    hand = Hand(wall(3.0), scan_hz=10.0, scan_beams=1, scan_angle_min=0.0, scan_angle_max=0.0)
    hand.start()
    hand.core.external_pose(0, PlanarPose(1.0, 0.5, 0.3))
    hand.core.command(0, 1.0, 0.0)
    hand.step(5)
    assert hand.on("/scan")[-1].ranges[0] == pytest.approx(2.5)
    assert hand.on("/amcl_pose")[-1].pose.pose.position.x == pytest.approx(1.0 + 0.5 * math.cos(0.3))


def test_a_scan_has_its_rate_and_its_noise():
    hand = Hand(
        wall(3.0),
        scan_hz=5.0,
        scan_beams=many(2000, 200),
        scan_angle_min=-1e-9,
        scan_angle_max=1e-9,
        scan_noise_std_m=0.05,
    )
    hand.start()
    hand.step(20)
    scans = hand.on("/scan")
    assert [stamp_ns(each.header) for each in scans] == [200_000_000 * k for k in range(1, 11)]
    assert np.std(scans[0].ranges) == pytest.approx(0.05, rel=0.15)
    assert np.mean(scans[0].ranges) == pytest.approx(3.0, abs=0.02)
    assert (scans[0].ranges != scans[1].ranges).any()


def test_moving_obstacles_move_in_the_scan():
    hand = Hand(
        None,
        [{"path": [[5, 0], [1, 0]], "speed": 1.0, "radius": 0.5, "repeat": "once"}],
        scan_hz=10.0, scan_beams=1, scan_angle_min=0.0, scan_angle_max=0.0,
    )  # fmt: skip
    hand.start()
    hand.step(50)
    seen = [each.ranges[0] for each in hand.on("/scan")]
    assert seen == pytest.approx([4.5 - 0.1 * min(tick, 40) for tick in range(1, 51)], abs=1e-6)


# ---- slowing down ---------------------------------------------------------------------------------------------------


def test_the_way_to_a_wall_shrinks_as_the_closed_form_says():
    """The speed is proportional to the way left, so the way left shrinks by one factor each tick."""
    hand = Hand(wall(5.0), cmd_timeout_sec=1000.0, robot_radius_m=0.25)
    hand.start(5.0 - 0.25 - 1.5)  # just where slowing down begins
    hand.core.command(0, 2.0, 0.0)
    factor, before = 1.0 - 2.0 * 0.1 / 1.2, math.nan
    for tick in range(1, 60):
        hand.step()
        left = 5.0 - 0.25 - hand.core.pose().x - 0.3
        if tick > 1:  # the first tick begins at the edge of the zone, at full speed
            assert left == pytest.approx(before * factor, abs=1e-9)
        before = left
    assert 0.0 < left < 0.01


def test_far_from_everything_and_away_from_it_nothing_is_slowed():
    for command, yaw in ((2.0, math.pi), (-2.0, 0.0), (2.0, math.pi / 2)):
        hand = Hand(wall(5.0))
        hand.start(4.0, 0.0, yaw)
        hand.core.command(0, command, 0.0)
        hand.step()
        assert hand.core.velocity()[0] == command
    backing = Hand(wall(5.0))
    backing.start(4.0, 0.0, math.pi)
    backing.core.command(0, -2.0, 0.0)
    backing.step()
    assert -2.0 < backing.core.velocity()[0] < 0.0


def test_it_may_turn_on_the_spot_where_it_may_not_drive_on():
    hand = Hand(wall(5.0))
    hand.start(4.6)
    hand.core.command(0, 1.0, 0.5)
    hand.step()
    assert hand.core.velocity() == (0.0, 0.5)


@pytest.mark.parametrize(("x", "yaw"), [(4.9, math.pi / 2), (4.9, -math.pi / 2), (5.2, math.pi), (4.9, math.pi)])
def test_who_touches_a_wall_may_drive_along_it_and_who_was_put_into_one_may_drive_out(x, yaw):
    hand = Hand(wall(5.0))
    hand.start(x, 0.0, yaw)
    hand.core.command(0, 0.5, 0.0)
    hand.step(5)
    assert hand.core.velocity()[0] == 0.5


def test_slowing_down_can_be_switched_off_and_needs_something_to_slow_for():
    for hand in (Hand(wall(5.0), enable_slow_down=False), Hand()):
        hand.start(4.8)
        hand.core.command(0, 2.0, 0.0)
        hand.step()
        assert hand.core.velocity()[0] == 2.0


def test_a_robot_waits_for_somebody_who_crosses_and_goes_on_after():
    crossing = {"path": [[3, 0.2], [3, 4]], "speed": 0.5, "radius": 0.4, "repeat": "once", "start_s": 6.0}
    hand = Hand(None, [crossing], cmd_timeout_sec=1000.0)
    hand.start()
    hand.core.command(0, 0.7, 0.0)
    speeds, gaps = [], []
    for _ in range(120):
        hand.step()
        speeds.append(hand.core.velocity()[0])
        x, y, radius = hand.core.moving.discs[:, 0]
        gaps.append(math.hypot(x - hand.core.place().x, y - hand.core.place().y) - radius - 0.25)
    assert min(speeds) < 0.05
    assert speeds[-1] == 0.7
    assert min(gaps) > 0.29  # stop_distance_m, up to a tick of the one who crosses
    assert hand.core.place().x > 4.0


@settings(max_examples=many(40))
@given(st.integers(0, 2**32), st.floats(-3.1, 3.1))
def test_the_free_way_of_a_round_robot_agrees_with_moving_it_a_little_at_a_time(seed, heading):
    dice = np.random.default_rng(seed)
    round_ones = [(*dice.uniform(-3.0, 3.0, 2), dice.uniform(0.1, 0.5)) for _ in range(3)]
    array = np.array(round_ones).T.copy()
    radius, dx, dy = 0.25, math.cos(heading), math.sin(heading)
    found = discs.way_to_discs(array, 0.0, 0.0, dx, dy, radius)
    touching = [math.hypot(x, y) <= size + radius for x, y, size in round_ones]
    if any(touching):
        return
    expected = next(
        (
            k * 0.001
            for k in range(5000)
            if any(math.hypot(dx * k * 0.001 - x, dy * k * 0.001 - y) <= size + radius for x, y, size in round_ones)
        ),
        math.inf,
    )
    assert found == pytest.approx(expected, abs=0.002) or (found > 4.99 and expected == math.inf)


@settings(max_examples=many(40))
@example(255, 0.0, -1.0)  # starts on a corner, exactly before a wall
@given(st.integers(0, 2**32), st.floats(-3.1, 3.1), st.floats(-3.1, 3.1))
def test_no_robot_is_let_into_an_occupied_cell_ahead_of_it(seed, turned, heading):
    """The rays across its width stand half a cell apart: a corner may be cut by less, but no cell is entered."""
    dice = np.random.default_rng(seed)
    grid = world_of_cells((dice.random((20, 20)) < 0.05).astype(np.uint8), 0.5, (-5.0, -5.0, turned))
    if grid.is_occupied(0.0, 0.0):
        return
    hand = Hand(grid, cmd_timeout_sec=1000.0, stop_distance_m=0.1)
    hand.start(0.0, 0.0, heading)
    hand.core.command(0, 1.0, 0.0)
    for _ in range(100):
        hand.step()
        assert not grid.is_occupied(*hand.core.place()[:2])


def test_kernels_and_their_plain_forms_agree_to_the_bit():
    dice = np.random.default_rng(7)
    world = world_of_cells((dice.random((20, 20)) < 0.1).astype(np.uint8), 0.5, (-5.0, -5.0, 0.3))
    none = np.zeros(1)
    grids = world.elevation, world.surface, world.clearance, world.footing
    scene = Scene(*grids, world.cell_m, world.west, world.south, 0.1, none, none)
    plain = getattr(navigation_robot.free_way, "py_func", navigation_robot.free_way)
    for heading in np.linspace(-3.0, 3.0, 40):
        arguments = (scene, 0.1, 0.2, math.cos(heading), math.sin(heading), 0.25, 5.0)
        assert navigation_robot.free_way(*arguments) == plain(*arguments)


# ---- braking --------------------------------------------------------------------------------------------------------


def distance_kept(hand: Hand, ticks: int) -> tuple[float, float]:
    """The least way between the robot's front and the wall at x = 5, and the greatest speed beyond the line."""
    least, beyond = math.inf, -math.inf
    for _ in range(ticks):
        before = 5.0 - 0.25 - hand.core.place().x
        hand.step()
        least = min(least, 5.0 - 0.25 - hand.core.place().x)
        if before < 1.5:
            beyond = max(beyond, hand.core.velocity()[0] - 2.0 * max(before - 0.3, 0.0) / 1.2)
    return least, beyond


@pytest.mark.parametrize("hz", [5.0, 10.0, 100.0])
@pytest.mark.parametrize("limits", [{"max_linear_accel": a} for a in (0.3, 0.5, 1.0, 1.3, 2.0, 5.0)])
def test_with_limited_acceleration_it_still_stops_before_a_wall(hz, limits):
    hand = Hand(wall(5.0), cycle_hz=hz, cmd_timeout_sec=1000.0, **limits)
    hand.start(-15.0)
    hand.core.command(0, 2.0, 0.0)
    least, beyond = distance_kept(hand, round(40 * hz))
    assert least > 0.3 - 1e-9  # stop_distance_m
    assert least < 0.4
    assert beyond < 1e-6  # and it keeps to the documented line
    assert hand.core.sim.state("").contacts == 0


@pytest.mark.parametrize(
    "limits",
    [
        {"max_linear_jerk": 1.0},
        {"max_linear_jerk": 5.0},
        {"max_linear_accel": 1.0, "max_linear_jerk": 1.0},
        {"max_linear_accel": 0.5, "max_linear_jerk": 4.0},
    ],
)
def test_with_limited_jerk_it_never_touches_a_wall(limits):
    hand = Hand(wall(5.0), cycle_hz=20.0, cmd_timeout_sec=1000.0, **limits)
    hand.start(-15.0)
    hand.core.command(0, 2.0, 0.0)
    least, _ = distance_kept(hand, 1200)
    assert 0.2 < least < 0.5
    assert hand.core.sim.state("").contacts == 0


@pytest.mark.parametrize("hz", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("start", [-3.0, -2.6, 1.17, 2.9])
def test_at_slow_cycle_rates_it_does_not_jump_over_a_wall(hz, start):
    hand = Hand(wall(5.0), cycle_hz=hz, cmd_timeout_sec=1000.0)
    hand.start(start)
    hand.core.command(0, 2.0, 0.0)
    hand.step(60)
    assert 4.0 < hand.core.place().x <= 5.0 - 0.25 - 0.3 + 1e-9


def test_what_it_cannot_brake_for_stops_it_where_it_touches():
    """It times out at full speed a little before a wall, and may brake no harder than 0.2 m/s²."""
    hand = Hand(
        None, [{"path": [[3.0, 9.0], [3.0, 0.0]], "speed": 9.0, "radius": 0.5, "repeat": "once"}], max_linear_accel=0.2
    )
    hand.start(-1.0)
    for _ in range(100):
        hand.core.command(0, 2.0, 0.0)
        hand.step()
    assert hand.core.place().x < 3.0 - 0.5 - 0.25 + 1e-9
    walled = Hand(wall(5.0), max_linear_accel=0.05, cmd_timeout_sec=1000.0, enable_slow_down=True, stop_distance_m=0.0)
    walled.start(4.0)
    walled.core.sim.fleet.state[walled.core.sim.fleet.model.row("v"), 0] = 2.0  # as if thrown
    walled.step(20)
    assert walled.core.place().x == pytest.approx(4.75, abs=1e-9)
    assert walled.core.velocity()[0] == 0.0
    assert walled.core.sim.state("").contacts > 0
