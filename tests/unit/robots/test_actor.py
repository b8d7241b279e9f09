"""Actors against closed forms: where they are at any time, what they wait for, and who sees them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.errors import ScenarioError
from microsim.parts.ros2.node_parameters import rows
from microsim.robots.actor import TURN_S
from tests.support import bare

QUIET = {"world_topics": {"occupancy_hz": 0, "markers_hz": 0}}


def world(**actor: Any) -> dict[str, Any]:
    return {**QUIET, "robots": {"walker": {"model": "actor", **actor}}}


def complaint(**actor: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        microsim.load_scenario(world(**actor))
    return str(error.value)


places = st.floats(2.0, 48.0)
legs = st.lists(st.tuples(st.floats(0.1, 3.0), places, places), min_size=1, max_size=12)


@settings(max_examples=25)
@given(first=st.tuples(st.floats(0.0, 2.0), places, places), legs=legs, ticks=st.integers(1, 600))
def test_it_is_where_its_path_says_at_every_time(
    first: tuple[float, float, float], legs: list[tuple[float, float, float]], ticks: int
) -> None:
    times = np.cumsum([first[0], *(leg[0] for leg in legs)])
    path = [[float(t), x, y] for t, (_, x, y) in zip(times, [first, *legs], strict=True)]
    sim = microsim.Simulation(world(path=path))
    sim.advance(ticks)
    state = sim.state("walker")
    columns = np.array(path).T
    for value, column in ((state.x, columns[1]), (state.y, columns[2])):
        assert value == pytest.approx(np.interp(ticks / 60, columns[0], column), abs=1e-9)


def test_it_faces_where_it_goes_and_turns_within_half_a_second() -> None:
    sim = microsim.Simulation(world(path=[[0, 5, 5], [2, 9, 5], [4, 9, 9]]))
    yaws = []
    for _ in range(240):
        sim.advance()
        yaws.append(sim.state("walker").yaw)
    assert yaws[:119] == [0.0] * 119
    turn = [0.5 * math.pi * min((tick - 120) / (60 * TURN_S), 1.0) for tick in range(120, 241)]
    assert yaws[119:] == pytest.approx(turn, abs=1e-9)


def test_a_repeated_path_has_no_jumps() -> None:
    square = [[0, 5, 5], [2, 9, 5], [4, 9, 9], [6, 5, 9], [8, 5, 5]]
    sim = microsim.Simulation(world(path=square, repeat=True))
    seen = []
    for _ in range(3 * 480):
        sim.advance()
        state = sim.state("walker")
        seen.append((state.x, state.y, state.z, state.yaw))
    assert np.array(seen[480:960]) == pytest.approx(np.array(seen[960:]), abs=1e-9)
    steps = np.diff(np.array(seen), axis=0)
    assert np.hypot(steps[:, 0], steps[:, 1]).max() < 2.0 / 60 + 1e-9
    assert np.abs((steps[:, 3] + math.pi) % (2 * math.pi) - math.pi).max() < math.pi / (60 * TURN_S) + 1e-9


def test_at_the_end_of_its_path_it_stays() -> None:
    sim = microsim.Simulation(world(path=[[0.5, 5, 5], [1, 9, 5, None, 1.0]]))
    sim.advance(600)
    state = sim.state("walker")
    assert (state.x, state.y, state.yaw, state.yaw_rate) == (9.0, 5.0, 1.0, 0.0)


def test_it_waits_for_what_is_in_its_way_and_walks_on() -> None:
    rover = bare(start={"map_pose": {"x": 8, "y": 5, "yaw": 1.57}})
    scenario = {**QUIET, "robots": {"rover": rover, "walker": {"model": "actor", "path": [[0, 5, 5], [6, 11, 5]]}}}
    sim = microsim.Simulation({**scenario, "collisions": "stop"})
    sim.advance(600)
    waiting = sim.state("walker")
    assert 7.0 < waiting.x < 7.6
    assert waiting.contacts >= 1
    sim.command("rover", v=2.0)
    sim.advance(600)
    assert sim.state("walker").x == 11.0


def test_on_a_path_it_takes_no_commands() -> None:
    sim = microsim.Simulation(world(path=[[0, 5, 5], [2, 9, 5]]))
    with pytest.raises(microsim.UsageError, match="walker has no command 'vx'"):
        sim.command("walker", vx=1.0)
    with pytest.raises(microsim.UsageError, match="walker takes no commands: it follows its path"):
        sim.command_twist("walker", (1.0, 0.0, 0.0), 0.0)
    assert sim.command("walker")
    assert sim.waiting == ()  # a command of nothing is none: recordings know no topic for it


def test_without_a_path_it_follows_commands_in_its_own_axes() -> None:
    start = {"map_pose": {"x": 20, "y": 20, "yaw": 0.5 * math.pi}}
    sim = microsim.Simulation(world(start=start))
    sim.command("walker", vx=1.0, vy=0.5)
    sim.advance(60)
    state = sim.state("walker")
    assert (state.x, state.y) == pytest.approx((19.5, 21.0), abs=1e-9)


def test_commands_beyond_all_measure_leave_its_motion_finite() -> None:
    sim = microsim.Simulation(world(start={"map_pose": {"x": 20, "y": 20}}))
    sim.command("walker", vx=1e308, vy=-1e308, vz=1e308, yaw_rate=1e308)
    for _ in range(3):
        sim.advance()
        assert np.isfinite(sim.rows("walker")).all()
    assert abs(sim.state("walker").x) < 100.0


def test_on_a_path_it_cannot_be_put_elsewhere() -> None:
    sim = microsim.Simulation(world(path=[[0, 5, 5], [2, 9, 5]]))
    sim.advance(60)
    assert not sim.set_pose("walker", x=20.0, y=20.0)
    sim.advance(30)
    assert sim.state("walker").x == pytest.approx(8.0, abs=1e-9)


def test_only_without_a_path_its_start_is_a_parameter_of_the_node() -> None:
    for block, is_there in (({}, True), ({"path": [[0, 5, 5]]}, False)):
        names = [row.name for row in rows(microsim.load_scenario(world(**block)))]
        assert ("walker.start.map_pose.x" in names) is is_there


def test_a_flying_actor_keeps_its_height_and_a_walking_one_the_ground() -> None:
    hills = {"elevation": {"generate": "hills", "amplitude_m": 1.0, "wavelength_m": 20.0}}
    path = [[0, 5, 5], [4, 20, 15]]
    sim = microsim.Simulation({**world(path=path), "map": hills})
    sim.advance(100)
    state = sim.state("walker")
    assert state.z == pytest.approx(sim.world.ground(state.x, state.y), abs=1e-12)
    sim = microsim.Simulation({**world(shape="drone", path=[[0, 5, 5, 8], [4, 20, 15, 10]]), "map": hills})
    sim.advance(120)
    assert sim.state("walker").z == pytest.approx(9.0, abs=1e-9)


def test_lidars_and_cameras_see_it() -> None:
    lidar = {"hz": 10, "elevations": [0.0], "columns": 36, "sigma_m": 0.0}
    rover = bare(start={"map_pose": {"x": 8, "y": 5, "yaw": 0.0}}, lidar=lidar, camera={"hz": 10, "sees_robots": True})
    walker = {"model": "actor", "path": [[0, 14, 5], [1, 14, 5]]}
    seen = []
    for robots in ({"rover": rover, "walker": walker}, {"rover": rover}):
        last = {m.topic: m.cdr for m in microsim.Simulation({**QUIET, "robots": robots}).step(60)}
        cloud = next(cdr for topic, cdr in last.items() if "points" in topic)
        image = next(cdr for topic, cdr in last.items() if topic.endswith("image_raw"))
        seen.append((cloud, image))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_a_batch_gives_the_bits_of_a_single_world() -> None:
    square = [[0, 5, 5], [2, 9, 5], [4, 9, 9], [6, 5, 9], [8, 5, 5]]
    scenario = world(path=square, repeat=True)
    batch = microsim.BatchSimulation(scenario, 3)
    single = microsim.Simulation(scenario)
    for _ in range(7):
        batch.step(97)
        single.advance(97)
        for name in ("x", "y", "yaw"):
            values = batch.state("walker")[name]
            assert values.tolist() == [getattr(single.state("walker"), name)] * 3


def test_paths_of_different_lengths_go_side_by_side() -> None:
    two = {
        "first": {"model": "actor", "path": [[0, 5, 5], [2, 9, 5]]},
        "second": {"model": "actor", "path": [[0, 5, 20], [1, 9, 20], [2, 9, 25], [3, 12, 25]]},
    }
    together = microsim.Simulation({**QUIET, "robots": two})
    together.advance(150)
    for name, block in two.items():
        alone = microsim.Simulation({**QUIET, "robots": {name: block}})
        alone.advance(150)
        assert alone.state(name) == together.state(name)


def test_a_path_may_be_a_file_which_becomes_part_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_bytes(b"t, x,y,name,z,yaw\r0,5,5,a,,\r2,9,5,b,,\r4,9,9,c,,1.5\r")
    (tmp_path / "world.yaml").write_text("robots: {walker: {model: actor, path: walk.csv}}")
    scenario = microsim.load_scenario(tmp_path / "world.yaml")
    (tmp_path / "walk.csv").unlink()
    again = microsim.load_scenario(scenario.to_dict())
    path = again.robots["walker"].path  # type: ignore[attr-defined]
    assert path == ((0, 5, 5, None, None), (2, 9, 5, None, None), (4, 9, 9, None, 1.5))


@pytest.mark.parametrize(
    ("actor", "part"),
    [
        ({"path": [[0, 5, 5], [0, 6, 5]]}, "robots.walker.path[1]: expected a later time than 0, found 0"),
        ({"path": [[0, 5]]}, "expected [t, x, y], [t, x, y, z] or [t, x, y, z, yaw], found [0, 5]"),
        ({"path": [[0, None, 5]]}, "expected numbers for t, x and y"),
        ({"path": [[-1, 5, 5]]}, "expected a time from 0 on, found -1"),
        ({"path": [[0, 5, 5], [1, 6, 5]], "repeat": True}, "ends where it begins, at [5, 5]; found [6, 5]"),
        (
            {"path": [[0, 5, 5, 1], [1, 6, 5, 1], [2, 5, 5, 3]], "repeat": True},
            "ends where it begins, at [5, 5, 1]; found [5, 5, 3]",
        ),
        (
            {"path": [[0, 5, 5], [1e-9, 6, 5], [2e-9, 5, 5]], "repeat": True},
            "robots.walker.path[2]: a path that is repeated takes at least 0.001 s; found 2e-09",
        ),
        ({"path": "walk.csv"}, "no such file: 'walk.csv'"),
        ({"path": "walk.txt"}, "expected waypoints or the name of a .csv file, found 'walk.txt'"),
        ({"shape": "box"}, "robots.walker.size: size is missing for a box"),
        ({"size": [1, 1, 1]}, "size is only for a box or a cylinder"),
        ({"path": [[0, 5, 5]], "start": {"map_pose": {"x": 1}}}, "starts at its first waypoint: leave `start` out"),
        ({"shape": "persn"}, "did you mean 'person'"),
    ],
)
def test_what_is_wrong_is_named(actor: dict[str, Any], part: str) -> None:
    assert part in complaint(**actor)


def test_the_start_of_a_path_cannot_be_drawn() -> None:
    drawn = {"randomize": {"starts": {"walker": {"x": [1, 2], "y": [1, 2]}}}}
    with pytest.raises(ScenarioError, match="walker starts at the first waypoint of its path"):
        microsim.load_scenario({**world(path=[[0, 5, 5]]), **drawn})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("t,x\n0,1\n", "walk.csv: expected a first line with t,x,y and perhaps z,yaw; it has no y"),
        ("t,x,y\n0,1,2\n1,a,2\n", "walk.csv, line 3: expected numbers"),
        ("t,x,y\n0,1\n", "walk.csv, line 2: expected numbers, found '0,1'"),
        ("t,x,y\n0,1,2,3\n", "walk.csv, line 2: expected 3 values, found 4"),
        ("t,x,y\n", "walk.csv: expected a waypoint per line after the first line, found none"),
        ("t,x,y\n0,1," + 200_000 * "1", "walk.csv, line 2: expected CSV: field larger than field limit"),
        ("", "it has no t, x, y"),
    ],
)
def test_a_file_that_is_no_path_is_named(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "walk.csv").write_text(text)
    (tmp_path / "world.yaml").write_text("robots: {walker: {model: actor, path: walk.csv}}")
    with pytest.raises(ScenarioError) as error:
        microsim.load_scenario(tmp_path / "world.yaml")
    assert part in str(error.value)
