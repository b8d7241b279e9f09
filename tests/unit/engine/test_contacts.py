"""What robots touch: when contacts begin and end, how they are named, and what they do to motion."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim import Simulation
from microsim.engine import bodies
from microsim.engine.bodies import BODY, POSE, SOLID, TRIANGLE, Body, body_row
from microsim.engine.contacts import GAP_M
from microsim.engine.world import Mesh, World
from microsim.messages import decode
from microsim.parts.missions import fly_mission
from microsim.parts.sweep.run_one import run_one
from microsim.parts.view.dashboard.panels import _motion
from microsim.parts.view.run_state import robot_states
from microsim.recording.state_file import load_state, save_state
from microsim.robots.car import BY_SLOPE
from microsim.runner import Notes, Runner
from tests.support import many

NONE = dict.fromkeys(("odom", "gps", "imu", "camera", "range"))
QUIET = {"radio": {"enabled": False}, "world_topics": {"occupancy_hz": 0, "markers_hz": 0}}
CAR_FRONT, CAR_HALF_WIDTH = 3.6, 0.9  # [m] before the rear axle, of the default car
DRONE_HALF = 0.25  # [m]


def world(robots, **keys):
    return {"name": "contacts", **QUIET, "map": {"size_xy_cells": [100, 100]}, "robots": robots, **keys}


def car(x, y=50.0, yaw=0.0, **keys):
    pose = {"map_pose": {"x": x, "y": y, "yaw": yaw}}
    return {"model": "bicycle", **NONE, "joint_states": None, "cmd_timeout_s": None, "start": pose, **keys}


def drone(x, y=50.0, z=1.0, **keys):
    start = {"map_pose": {"x": x, "y": y, "z": z}}
    return {"model": "drone", **NONE, "cmd_time_constant": 0.0, "start": start, **keys}


def rover(x, y=50.0, yaw=0.0, **keys):
    start = {"map_pose": {"x": x, "y": y, "yaw": yaw}}
    return {"model": "rover", **NONE, "cmd_time_constant": 0.0, "start": start, **keys}


def rolling_cars():
    """Head-on at 5 m/s each, 32.8 m between their fronts."""
    sim = Simulation(world({"a": car(20.0), "b": car(60.0, yaw=math.pi)}))
    sim.fleets[0].state[sim.fleets[0].model.row("speed")] = 5.0
    for name in "ab":
        sim.command(name, speed=5.0)
    return sim


# ---- robots and robots -----------------------------------------------------------------------------------------------


def test_two_cars_head_on_meet_when_the_way_between_them_is_used_up():
    sim = rolling_cars()
    sim.step(196)  # 32.8 m at 10 m/s: 3.28 s, in the 197th tick
    assert sim.state("a").contacts == sim.state("b").contacts == 0
    sim.step(1)
    assert sim.state("a").contacts == sim.state("b").contacts == 1
    assert sim.touching("a") == ("b",)
    assert sim.touching("b") == ("a",)
    first = 20.0 + CAR_FRONT + 197 * 5.0 / 60.0  # a goes first; b stops at its front
    assert sim.state("a").x + CAR_FRONT == pytest.approx(first, abs=1e-9)
    assert sim.state("b").x - CAR_FRONT == pytest.approx(first, abs=1e-6)
    sim.step(300)  # both push on: it stays one contact, and neither gives way
    assert sim.state("a").contacts == sim.state("b").contacts == 1
    assert sim.state("a").x + CAR_FRONT == pytest.approx(sim.state("b").x - CAR_FRONT, abs=1e-6)
    assert sim.state("a").speed == sim.state("b").speed == 0.0


def test_cars_that_separate_and_meet_again_have_two_contacts():
    sim = rolling_cars()
    sim.step(250)
    sim.command("b", speed=-2.0)
    sim.step(60)
    sim.command("a", speed=0.0)
    sim.step(120)
    assert sim.touching("b") == ()
    before = sim.state("b").contacts
    sim.command("b", speed=5.0)
    sim.step(300)
    assert sim.state("b").contacts == before + 1
    assert sim.touching("b") == ("a",)


@pytest.mark.parametrize(("gap", "contacts"), [(1e-4, 0), (-1e-4, 1)])
def test_cars_that_pass_a_hair_apart_do_not_touch(gap, contacts):
    aside = 2 * CAR_HALF_WIDTH + gap
    sim = Simulation(world({"a": car(20.0), "b": car(40.0, 50.0 + aside, math.pi)}))
    sim.command("a", speed=5.0)
    sim.step(400)
    assert sim.state("a").contacts == sim.state("b").contacts == contacts


@pytest.mark.parametrize(("one", "other"), [(rover, rover), (rover, car), (car, rover)])
def test_ground_robots_stop_at_each_other(one, other):
    sim = Simulation(world({"one": one(20.0), "other": other(30.0, yaw=math.pi / 2)}))
    values = {"speed": 2.0} if one is car else {"v": 2.0}
    sim.command("one", **values)
    sim.step(900)
    reach, theirs = (CAR_FRONT if one is car else 0.25), (CAR_HALF_WIDTH if other is car else 0.175)
    assert sim.state("one").x == pytest.approx(30.0 - theirs - reach, abs=1e-6)
    assert sim.touching("one") == ("other",)
    assert (sim.state("one").contacts, sim.state("other").contacts) == (1, 1)


def test_robots_that_overlap_from_the_start_can_only_move_apart():
    robots = {"a": rover(20.0), "b": rover(20.2)}
    sim = Simulation(world(robots))
    sim.command("a", v=1.0)  # towards b
    sim.step(60)
    assert sim.state("a").x == 20.0
    assert sim.touching("a") == ("b",)
    sim.command("a", v=-1.0)
    sim.step(60)
    assert sim.state("a").x == pytest.approx(19.0, abs=1e-9)
    assert sim.touching("a") == ()
    assert sim.state("a").contacts == 1


def test_a_teleport_is_not_a_way():
    sim = Simulation(world({"a": rover(20.0), "b": rover(30.0), "c": rover(60.0)}))
    sim.set_pose("a", 40.0, 50.0)  # b is between
    sim.step(10)
    assert sim.state("a").contacts == sim.state("b").contacts == 0
    sim.set_pose("a", 60.1, 50.0)
    sim.step(10)
    assert sim.touching("a") == ("c",)
    assert sim.state("a").contacts == 1
    sim.set_pose("a", 10.0, 10.0)
    sim.step(10)
    assert sim.touching("a") == ()
    assert (sim.state("a").contacts, sim.last_contact("a")) == (1, "c")  # the count stays


def test_drones_fly_through_each_other_unless_they_are_stopped():
    robots = {"a": drone(20.0), "b": drone(30.0)}
    for collisions, x in (("document", 40.0), ("stop", 30.0 - 2 * DRONE_HALF)):
        sim = Simulation(world(robots, collisions=collisions))
        sim.command("a", vx=5.0)
        sim.step(240)
        assert sim.state("a").x == pytest.approx(x, abs=1e-6)
        assert sim.state("a").contacts == sim.state("b").contacts == 1
        assert sim.last_contact("a") == "b"
        assert sim.touching("a") == (("b",) if collisions == "stop" else ())


def test_nothing_is_passed_through_at_few_ticks_a_second():
    robots = {"a": drone(20.0, max_vx=50.0), "b": drone(31.0)}
    sim = Simulation(world(robots, physics_hz=2, collisions="stop"))
    sim.command("a", vx=50.0)  # 25 m a tick
    sim.step(1)
    assert sim.state("a").x == pytest.approx(31.0 - 2 * DRONE_HALF, abs=1e-6)
    assert sim.touching("a") == ("b",)


def box_of(numbers):
    """As a solid."""
    box = np.zeros(1, SOLID)[0]
    box.middle, box.axes, box.half = numbers[:3], np.reshape(numbers[3:12], (3, 3)), numbers[12:]
    return box


def put_box(pose, body):
    """Six numbers, and seven."""
    box = np.zeros(1, SOLID)[0]
    bodies.put_box(np.array(pose).view(POSE)[0], np.array(body).view(BODY)[0], box)
    return box


def boxes_of(sim):
    names = sim.robots
    motions = {name: sim._schedule.worlds.motions[name] for name in names}
    rows = {name: box_of(body_row(motions[name], Body(*sim.scenario.robots[name].body()))) for name in names}
    return names, rows


@pytest.mark.parametrize("count", [20, 60])  # all pairs; neighbours by cells
def test_who_touches_whom_is_what_a_search_of_all_pairs_finds(count):
    rng = np.random.default_rng(count)
    robots = {f"d{k}": drone(*(40.0 + 4.0 * rng.random(2)), 1.0 + rng.random()) for k in range(count)}
    for each in robots.values():
        each["start"]["map_pose"]["yaw"] = rng.random()
    sim = Simulation(world(robots))
    found = 0
    for _ in range(20):
        sim.step(1)
        names, rows = boxes_of(sim)
        for one in names:
            expected = {other for other in names if other != one and bodies.boxes_meet(rows[one], rows[other], 0.0)}
            assert set(sim.touching(one)) == expected
            found += len(expected)
    assert found > 100


def distance_by_projections(a, b):
    """Between two boxes, by projecting onto each in turn: another method than separating axes."""
    point = b.middle.copy()
    for _ in range(4000):
        for box in (a, b):
            local = np.clip(box.axes.T @ (point - box.middle), -box.half, box.half)
            last, point = point, box.middle + box.axes @ local
    return float(np.linalg.norm(point - last))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_boxes_meet_where_their_distance_is_0(seed):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(2):
        pose, body = np.concatenate([2.0 * rng.random(3), 6.0 * rng.random(3) - 3.0]), rng.random(7)
        rows.append(put_box(pose, body))
    distance = distance_by_projections(*rows)
    if distance > 1e-3:
        assert not bodies.boxes_meet(*rows, 0.0)
        assert bodies.boxes_meet(*rows, distance * 1.001) or distance > 0.0  # a margin is never too wide
        assert not bodies.boxes_meet(*rows, distance * 0.5) or not separated_by_a_face(rows, distance)
    elif distance < 1e-7:
        assert bodies.boxes_meet(*rows, 1e-6)


def separated_by_a_face(rows, distance):
    """Whether some axis of a box shows the whole distance; then the margin along it is exact."""
    a, b = rows
    for box in (a, b):
        for axis in box.axes.T:
            reach = sum(each.half @ abs(each.axes.T @ axis) for each in (a, b))
            if abs((b.middle - a.middle) @ axis) - reach > 0.999 * distance:
                return True
    return False


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_body_meets_a_triangle_where_its_points_are_inside(seed):
    rng = np.random.default_rng(seed)
    triangle = 2.0 * rng.random(9)
    angles = 6.0 * rng.random(3) - 3.0
    if seed % 2:  # a level box and a triangle in an upright plane: edges along axes
        angles[:], triangle[0::3] = 0.0, triangle[0]
        triangle[4], triangle[8] = triangle[1], triangle[5]
    box, solid = put_box(np.concatenate([2.0 * rng.random(3), angles]), rng.random(7)), np.zeros(1, SOLID)[0]
    solid.kind, solid.corners = TRIANGLE, triangle.reshape(3, 3)
    shares = rng.dirichlet((1.0, 1.0, 1.0), 4000)
    local = abs((shares @ solid.corners - box.middle) @ box.axes)
    inside = (local < box.half - 1e-9).all(axis=1).any()
    near = (local < box.half + 0.2).all(axis=1).any()
    if inside:
        assert bodies.meets(box, solid, 0.0)
    if not near:
        assert not bodies.meets(box, solid, 0.0)


TOUCHES = """
import numpy as np
from microsim.engine import bodies
rng = np.random.default_rng(1)
for _ in range(50):
    start, end = ((2.0 * rng.random(6)).view(bodies.POSE)[0] for _ in range(2))
    body, other = (0.2 + rng.random(7)).view(bodies.BODY)[0], np.zeros(1, bodies.SOLID)[0]
    bodies.put_box((2.0 * rng.random(6)).view(bodies.POSE)[0], (0.2 + rng.random(7)).view(bodies.BODY)[0], other)
    print(float(bodies.first_touch(start, end, body, other)).hex())
"""


def test_the_plain_form_of_a_touch_has_the_same_bits():
    def touches(**environment: str) -> bytes:
        command = [sys.executable, "-c", TOUCHES]
        return subprocess.run(command, capture_output=True, check=True, env={**os.environ, **environment}).stdout

    compiled = touches(NUMBA_DISABLE_JIT="0")
    assert compiled == touches(NUMBA_DISABLE_JIT="1")
    assert len(set(compiled.split())) > 4


# ---- robots and what stands in the world -----------------------------------------------------------------------------

BOX = {"type": "box", "center": [30.0, 50.0, 0.0], "size": [2.0, 4.0, 3.0]}


@settings(max_examples=many(40, 4), deadline=None)
@given(
    st.lists(st.tuples(st.floats(22, 38), st.floats(46, 54), st.floats(0.2, 3), st.booleans()), min_size=1, max_size=8),
    st.floats(-0.4, 0.4),
)
def test_contacts_name_the_obstacle_that_is_there(things, yaw):
    """A drone that flies through them: one that it overlaps. A rover: one on a cell beside its middle."""
    shapes = [
        {"name": f"thing_{k}", "type": "cylinder", "center": [x, y, 0.0], "radius": size / 2, "height": 3.0}
        if is_round
        else {"name": f"thing_{k}", "type": "box", "center": [x, y, 0.0], "size": [size, 1.0, 3.0]}
        for k, (x, y, size, is_round) in enumerate(things)
    ]
    robots = {"drone": drone(15.0), "rover": rover(15.0, yaw=yaw)}
    sim, named = Simulation(world(robots, obstacles=shapes)), {each["name"]: each for each in shapes}
    sim.command("drone", vx=5.0)
    sim.command("rover", v=2.0)
    for _ in range(120):
        sim.advance(3)
        for robot, margin in (("drone", DRONE_HALF + 2e-3), ("rover", 1.01)):
            state = sim.state(robot)
            for name in sim.touching(robot):
                each = named[name]  # never just "obstacle"
                half = [each["radius"]] * 2 if "radius" in each else [each["size"][0] / 2, each["size"][1] / 2]
                assert abs(state.x - each["center"][0]) <= half[0] + margin
                assert abs(state.y - each["center"][1]) <= half[1] + margin


def test_of_several_obstacles_the_one_that_stops_a_drone_is_named():
    walls = [{**BOX, "name": name, "center": [x, 50.0, 0.0]} for name, x in (("far", 33.0), ("near", 30.0))]
    sim = Simulation(world({"drone": drone(20.0)}, obstacles=walls, collisions="stop", physics_hz=2))
    sim.command("drone", vx=5.0)
    sim.step(20)
    assert sim.touching("drone") == ("near",)


@pytest.mark.parametrize("robot", ["drone", "rover"])
def test_a_contact_keeps_its_name_when_other_obstacles_come_and_go(robot):
    robots = {"drone": drone(20.0), "rover": rover(20.0, 51.5)}
    walls = [{**BOX, "name": "other", "center": [80.0, 80.0, 0.0]}, {**BOX, "name": "wall"}]
    sim = Simulation(world(robots, obstacles=walls, collisions="stop"))
    sim.command("drone", vx=5.0)
    sim.command("rover", v=2.0)
    sim.step(400)
    before = sim.snapshot()
    sim.delete("other")
    sim.step(3)
    assert (sim.touching(robot), sim.last_contact(robot)) == (("wall",), "wall")
    sim.spawn("third", {**BOX, "center": [70.0, 70.0, 0.0]})
    sim.step(3)
    assert sim.touching(robot) == ("wall",)
    sim.restore(before)
    assert (sim.touching(robot), sim.last_contact(robot)) == (("wall",), "wall")
    assert sim.state(robot).contacts == 1


def test_a_drone_through_a_box_is_counted_and_flies_on():
    empty = Simulation(world({"drone": drone(20.0)}))
    sim = Simulation(world({"drone": drone(20.0)}, obstacles=[BOX]))
    for each in (empty, sim):
        each.command("drone", vx=5.0)
        each.step(240)
    assert sim.state("drone").contacts == 1
    assert sim.last_contact("drone") == "obstacle_0"
    assert sim.touching("drone") == ()
    assert sim.state("drone")[:-1] == empty.state("drone")[:-1]


def test_a_contact_lasts_as_long_as_bodies_overlap():
    sim = Simulation(world({"drone": drone(20.0)}, obstacles=[BOX]))
    sim.command("drone", vx=5.0)
    ticks = 0
    for _ in range(240):
        sim.step(1)
        ticks += sim.touching("drone") == ("obstacle_0",)
    way = 2.0 + 2 * DRONE_HALF  # from face to face, at 1/12 m a tick
    assert ticks == pytest.approx(12 * way, abs=1.5)


@pytest.mark.parametrize(
    ("obstacle", "face"),
    [
        (BOX, 29.0),
        ({"type": "cylinder", "center": [30.0, 50.0, 0.0], "radius": 1.0, "height": 3.0}, 29.0),
    ],
)
def test_a_drone_stops_at_a_face_where_collisions_stop(obstacle, face):
    sim = Simulation(world({"drone": drone(20.0)}, obstacles=[obstacle], collisions="stop"))
    sim.command("drone", vx=5.0)
    sim.step(240)
    state = sim.state("drone")
    assert state.x == pytest.approx(face - DRONE_HALF, abs=1e-6)
    assert (state.vx, state.vy, state.vz) == (0.0, 0.0, 0.0)
    assert (state.contacts, sim.touching("drone")) == (1, ("obstacle_0",))
    sim.command("drone", vx=-5.0)
    sim.step(60)
    assert sim.state("drone").x == pytest.approx(face - DRONE_HALF - 5.0, abs=1e-6)
    assert sim.touching("drone") == ()


@pytest.mark.parametrize(("z", "contacts"), [(3.0 + 0.075 + 2e-3, 0), (3.0 + 0.075 - 1e-4, 1)])
def test_a_drone_over_a_box_touches_it_only_below_its_height(z, contacts):
    sim = Simulation(world({"drone": drone(20.0, z=z)}, obstacles=[BOX], collisions="stop"))
    sim.command("drone", vx=5.0)
    sim.step(240)
    assert sim.state("drone").contacts == contacts


def test_a_box_in_the_air_is_flown_under_and_driven_into():
    """A rover minds cells, whatever the height; a drone has a body."""
    high = {**BOX, "center": [30.0, 50.0, 5.0]}
    sim = Simulation(world({"drone": drone(20.0), "rover": rover(20.0, 51.0)}, obstacles=[high]))
    sim.command("drone", vx=5.0)
    sim.command("rover", v=2.0)
    sim.step(600)
    assert sim.state("drone").contacts == 0
    assert sim.touching("rover") == ("obstacle_0",)


def test_a_drone_that_was_put_into_a_box_can_leave_it():
    sim = Simulation(world({"drone": drone(20.0)}, obstacles=[BOX], collisions="stop"))
    sim.set_pose("drone", 29.5, 50.0, 1.0)
    sim.command("drone", vx=5.0)
    sim.step(30)
    assert sim.state("drone").x == 29.5  # towards the middle
    sim.command("drone", vx=-5.0)
    sim.step(60)
    assert sim.state("drone").x == pytest.approx(24.5, abs=1e-6)
    assert (sim.state("drone").contacts, sim.touching("drone")) == (1, ())


def test_what_stops_a_rover_has_a_name():
    sim = Simulation(world({"rover": rover(28.0)}, obstacles=[BOX]))
    sim.command("rover", v=2.0)
    sim.step(120)
    assert sim.touching("rover") == ("obstacle_0",)
    sim.command("rover", v=0.0)
    sim.step(120)  # it stands there: still the same contact
    sim.command("rover", v=2.0)
    sim.step(60)
    assert sim.state("rover").contacts == 1
    sim.command("rover", v=-2.0)
    sim.step(1200)
    assert sim.touching("rover") == ("map edge",)
    assert sim.state("rover").contacts == 2


@pytest.mark.parametrize("name", ["obstacle_0", "map edge"])
def test_what_stops_a_car_has_a_name(name):
    keys = {"obstacles": [BOX]} if name == "obstacle_0" else {}
    sim = Simulation(world({"car": car(10.0)}, **keys))
    sim.command("car", speed=10.0)
    sim.step(1200)
    assert sim.touching("car") == (name,)
    assert sim.state("car").contacts == 1


def test_a_steep_slope_stops_a_car_on_its_way_up_but_not_down(tmp_path):
    np.save(tmp_path / "ramp.npy", np.tile(math.tan(0.52) * np.arange(100.0), (100, 1)))

    def hill(**keys):
        terrain = {"elevation": {"file": str(tmp_path / "ramp.npy")}, "size_xy_cells": [100, 100]}
        return world({"car": car(20.0, **keys)}, map=terrain)

    for limit, moves in ((0.5, False), (0.55, True)):
        sim = Simulation(hill(max_slope=limit))
        sim.command("car", speed=3.0)
        sim.step(120)
        assert (sim.state("car").x > 22.0) == moves
        assert (sim.state("car").blocked == BY_SLOPE) == (not moves)
        assert sim.state("car").contacts == 0
        sim.command("car", speed=-3.0)  # down
        sim.step(180)
        assert sim.state("car").x < 20.0


def test_meshes_and_missing_ground_have_names(monkeypatch):
    """A wall of two triangles across the way at x = 30 m; no ground beyond x = 70 m."""
    heights = np.zeros((100, 100))
    heights[:, 70:] = math.nan
    points = np.array([[30.0, 45.0, 0.0], [30.0, 55.0, 0.0], [30.0, 55.0, 3.0], [30.0, 45.0, 3.0]])
    mesh = Mesh(points, np.array([[0, 1, 2], [0, 2, 3]], np.int32))
    made = World(1.0, heights, np.zeros((100, 100), np.uint8), (), (), mesh=mesh)
    monkeypatch.setattr("microsim.simulation.build_world", lambda scenario: made)
    robots = {"rover": rover(20.0), "far": rover(60.0), "drone": drone(20.0, z=2.0), "over": drone(20.0, 52.0, 3.2)}
    for collisions, x in (("document", 40.0), ("stop", 30.0 - DRONE_HALF)):
        sim = Simulation(world(robots, collisions=collisions))
        for name in robots:
            sim.command(name, **({"v": 2.0} if name in ("rover", "far") else {"vx": 5.0}))
        sim.step(240)
        assert sim.state("drone").x == pytest.approx(x, abs=1e-6)
        assert (sim.state("drone").contacts, sim.last_contact("drone")) == (1, "mesh")
        assert sim.state("over").contacts == 0
        sim.step(240)
        assert sim.touching("rover") == ("mesh",)
        assert sim.touching("far") == ("missing ground",)


# ---- how they are reported -------------------------------------------------------------------------------------------


def crash(**keys):
    return world({"rover": rover(20.0), "drone": drone(21.0, z=0.2)}, **keys)


def test_a_mission_that_expects_no_contact_fails_and_names_it():
    mission = {
        "name": "careful",
        "duration": 2,
        "do": [{"robot": "rover", "command": {"v": 1.0}, "at": 0}],
        "expect": [{"robot": each, "value": "contacts", "equals": 0} for each in ("rover", "drone")],
    }
    outcome = fly_mission(mission, crash())
    assert len(outcome.violations) == 2
    assert "contacts of rover was 1 at 2.000 s, the last with drone; expected 0" in outcome.violations[0]
    assert "contacts of drone was 1 at 2.000 s, the last with rover; expected 0" in outcome.violations[1]


def test_metrics_count_contacts_and_their_time():
    sim = Simulation(world({"drone": drone(20.0)}, obstacles=[BOX]))
    sim.command("drone", vx=5.0)
    found = run_one(sim, None, 4.0, ["collisions", "collisions.drone", "contact_s"])
    assert found["collisions"] == found["collisions.drone"] == 1
    assert found["contact_s"] == pytest.approx(2.5 / 5.0, abs=1.5 / 60.0)


def test_contacts_are_warned_of_once_and_then_once_a_second():
    warnings = []
    sim = Simulation(world({"a": drone(20.0), "b": drone(20.3)}))
    sim.listen(warnings=warnings.append)
    for _ in range(12):  # in and out, ten times a second
        sim.command("a", vx=-5.0)
        sim.step(3)
        sim.command("a", vx=5.0)
        sim.step(3)
    assert sim.state("a").contacts == 13
    assert warnings == ["a touches b", "a touches b"]


def test_the_log_of_a_run_has_contacts():
    sim = Simulation(world({"rover": rover(28.0)}, obstacles=[BOX]))
    sim.command("rover", v=2.0)
    runner = Runner(sim, rtf=0)
    runner.run(120)
    (note,) = runner.notes.take()
    assert isinstance(runner.notes, Notes)
    assert (note.level, note.text, note.count) == ("warn", "rover touches obstacle_0", 1)


def test_the_status_of_a_run_names_what_is_touched():
    sim = Simulation(world({"ego": car(20.0), "rover": rover(30.0, yaw=0.5)}))
    sim.command("ego", speed=5.0)
    messages = [each for each in sim.step(300) if each.topic == "/sim/status"]
    entries = {status.name: status for status in decode(messages[-1].type, messages[-1].cdr).status}
    values = {name: {pair.key: pair.value for pair in entry.values} for name, entry in entries.items()}
    assert values["ego"]["contacts"] == values["rover"]["contacts"] == "1"
    assert (values["ego"]["touching"], values["rover"]["touching"]) == ("rover", "ego")
    assert values["ego"]["blocked"] == "by another robot"
    assert entries["ego"].level in (1, b"\x01")


def test_people_are_shown_what_robots_touch():
    sim = Simulation(world({"rover": rover(28.0)}, obstacles=[BOX]))
    sim.command("rover", v=2.0)
    sim.step(120)
    shown = robot_states(sim)["rover"]
    assert (shown.contacts, shown.touching) == (1, ("obstacle_0",))
    assert "touches obstacle_0" in _motion(shown).plain
    sim.command("rover", v=-2.0)
    sim.step(30)
    assert "1 contact" in _motion(robot_states(sim)["rover"]).plain


# ---- time travel -----------------------------------------------------------------------------------------------------


def test_a_contact_goes_on_after_a_snapshot_a_fork_and_a_file(tmp_path):
    sim = rolling_cars()
    sim.step(250)
    twin, snapshot = sim.fork(), sim.snapshot()
    save_state(tmp_path / "crash.state", snapshot)
    loaded = Simulation(sim.scenario)
    load_state(tmp_path / "crash.state", loaded)
    for each in (twin, loaded):
        assert each.touching("a") == ("b",)
        each.step(60)
        assert each.state("a").contacts == 1
    sim.command("b", speed=-3.0)
    sim.step(120)
    sim.restore(snapshot)
    sim.step(60)
    assert sim.rows("a") == twin.rows("a") == loaded.rows("a")
    assert sim.digest() == twin.digest() == loaded.digest()


def test_a_reset_forgets_contacts():
    sim = rolling_cars()
    sim.step(250)
    sim.reset()
    assert (sim.state("a").contacts, sim.touching("a"), sim.last_contact("a")) == (0.0, (), "")


def test_a_contact_ends_beyond_the_gap():
    sim = Simulation(world({"a": drone(20.0), "b": drone(21.0)}, collisions="stop", physics_hz=100))
    sim.command("a", vx=1.0)
    sim.step(100)
    assert sim.touching("a") == ("b",)
    sim.command("a", vx=-0.05)  # 0.5 mm a tick
    sim.step(1)
    assert sim.touching("a") == ("b",)
    sim.step(2)
    assert sim.touching("a") == ()
    assert pytest.approx(1e-3) == GAP_M
