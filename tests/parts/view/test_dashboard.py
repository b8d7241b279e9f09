"""The dashboard: what it tells at which size, and that it stays out of the way."""

import dataclasses
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.color import Color
from rich.console import Console

import microsim
from microsim.engine.world import PALETTE
from microsim.messages.types import new
from microsim.parts.missions.demo_pilot import DemoPilot
from microsim.parts.view.dashboard import Dashboard, DashboardState, StateCollector, screen_of
from microsim.parts.view.dashboard.panels import bar, graph, sensor_line, spark
from microsim.parts.view.dashboard.world_map import (
    GROUND_COLOUR,
    OUTSIDE_COLOUR,
    Mark,
    Pixels,
    WorldMap,
    arrow,
    nearest_256,
    shrunk,
)
from microsim.parts.view.run_state import RobotState, picture
from microsim.runner import Runner
from microsim.sensors.sensor import Display

SIZES = [(60, 18), (80, 24), (120, 40), (200, 60)]


def run(scenario: Any, seconds: float = 3.0) -> tuple[Runner, StateCollector]:
    sim = microsim.Simulation(scenario, seed=42)
    runner = Runner(sim, 0.0, DemoPilot(sim))
    collector = StateCollector(runner, 600)
    runner.run(round(60 * seconds))
    return runner, collector


@pytest.fixture(scope="module")
def showcase() -> tuple[Runner, DashboardState]:
    runner, collector = run("showcase", 6.0)
    return runner, collector.state()


def console(width: int, height: int, file: io.StringIO | None = None) -> Console:
    return Console(
        width=width, height=height, file=file or io.StringIO(), force_terminal=True, color_system="truecolor"
    )


def text_of(runner: Runner, facts: DashboardState, width: int, height: int) -> str:
    screen = console(width, height)
    drawn = screen_of(runner).draw(facts, width, height)
    lines = screen.render_lines(drawn, screen.options.update(width=width, height=height))
    assert len(lines) == height
    rows = ["".join(segment.text for segment in line) for line in lines]
    assert {len(row) for row in rows} == {width}
    return "\n".join(rows)


def place(x: float, y: float, yaw: float) -> RobotState:
    return RobotState((x, y, 0.0), (0.0, 0.0, yaw), 0.0, (0.0, 0.0, 0.0), 0.0, 0.0)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_key_facts_are_there_at_every_size(
    showcase: tuple[Runner, DashboardState], width: int, height: int
) -> None:
    runner, facts = showcase
    text = text_of(runner, facts, width, height)
    assert "showcase" in text
    assert "seed 42" in text
    assert "00:06.000" in text
    assert "tick 360" in text
    assert "60 %" in text
    assert facts.digest[:10] in text
    for name, robot in facts.robots.items():
        assert f"{arrow(robot.rpy[2])} {name}" in text
        assert f"{robot.position[0]:.1f}"[:-1] in text
    assert "drone → rover" in text
    assert "sent" in text
    assert "ignored" not in text


@pytest.mark.parametrize(("width", "height"), SIZES[1:])
def test_every_default_sensor_is_shown_from_80_by_24_on(width: int, height: int) -> None:
    runner, collector = run("default")
    text = text_of(runner, collector.state(), width, height)
    for words in ("gps", "imu", "range", "camera", "128×128", "m/s²", "on air"):
        assert words in text


def test_there_is_room_for_pictures_in_a_wide_terminal_only(showcase: tuple[Runner, DashboardState]) -> None:
    runner, facts = showcase
    assert "drone camera" not in text_of(runner, facts, 80, 24)
    assert "drone camera" in text_of(runner, facts, 120, 40)
    large = text_of(runner, facts, 200, 60)
    assert "rover camera" in large
    assert "/drone/camera/camera_info" in large


def test_a_terminal_far_too_small_is_no_error(showcase: tuple[Runner, DashboardState]) -> None:
    runner, facts = showcase
    for width, height in [(20, 5), (40, 10), (34, 4)]:
        text_of(runner, facts, width, height)


@pytest.mark.parametrize(
    "scenario",
    [
        {"robots": {}},
        {"robots": {"drone": {"camera": None, "gps": None, "imu": None, "odom": None}}},
        {"radio": {"enabled": False}},
        {
            "map": {"size_xy_cells": [1, 1]},
            "robots": {"drone": {"start": {"map_pose": {"x": 0.5, "y": 0.5, "z": 3.0}}}},
        },
        {"robots": {f"drone_{i}": {"model": "drone"} for i in range(30)}},
    ],
    ids=["empty", "blind", "no radio", "one cell", "thirty"],
)
def test_any_scenario_can_be_drawn(scenario: dict[str, Any]) -> None:
    runner, collector = run(scenario, 0.5)
    for width, height in SIZES:
        text = text_of(runner, collector.state(), width, height)
        assert "tick 30" in text
        if len(runner.sim.robots) == 30:
            assert "more" in text


def test_ignored_inputs_and_a_slow_machine_are_told(showcase: tuple[Runner, DashboardState]) -> None:
    runner, facts = showcase
    worse = dataclasses.replace(
        facts, ignored={"commands with NaN or infinity": 3}, asked_rtf=1.0, rtf=0.5, lateness_ms=250.0
    )
    text = text_of(runner, worse, 80, 24)
    assert "3 commands with NaN or infinity" in text
    assert "0.50×" in text
    assert "250.0 ms" in text


def test_a_run_without_end_shows_no_percentage(showcase: tuple[Runner, DashboardState]) -> None:
    runner, facts = showcase
    assert "%" not in text_of(runner, dataclasses.replace(facts, ticks=None), 120, 40)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ({"range": {"dropout_probability": 1.0}}, "no echo"),
        ({"range": {"max_m": 0.5}}, "clear"),
        ({"scan": {"beams": 90}}, "90 beams"),
    ],
)
def test_what_sensors_see_is_said_in_words(scenario: dict[str, Any], words: str) -> None:
    runner, collector = run({"robots": {"rover": scenario}}, 0.5)
    assert words in text_of(runner, collector.state(), 120, 40)


def test_long_names_of_sensors_are_shown_where_there_is_room() -> None:
    lidar = {"type": "lidar", "rings": 4, "columns": 32}
    runner, collector = run({"robots": {"rover": {"sensors": {"lidar_top": lidar}}}}, 0.5)
    assert re.search(r"lidar_top +[\d,]+ points, ", text_of(runner, collector.state(), 120, 40))
    assert re.search(r"lidar… [\d,]+ points, ", text_of(runner, collector.state(), 80, 24))


ALTIMETER = {"sensors": {"baro": {"type": "altimeter", "hz": 10}}}


def test_a_plugin_sensor_has_a_line_with_its_first_numbers() -> None:
    folder = Path(__file__).resolve().parents[3] / "examples" / "altimeter"
    runner, collector = run({"plugins": [str(folder)], "robots": {"drone": ALTIMETER}}, 0.5)
    text = text_of(runner, collector.state(), 120, 40)
    assert re.search(r"baro +fluid_pressure 1\d{5}(\.\d)? +variance 9", text)


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("{range:.2f} m, seen {age:.1f} s ago", 40, "2.00 m, seen 0.5 s ago"),
        (("{range:.3f} m within {max_range:.0f} m", "{range:.1f}"), 10, "2.0"),
        (lambda message: [(message.range / message.max_range, "red"), " near"], 15, "━━━━━─────" + " near"),
        (lambda message: "words", 15, "words"),
        ("", 20, "radiation_type 0"),
        ("", 46, "radiation_type 0  field_of_view 0  min_range 0"),
        ("{depth}", 60, "display: AttributeError: "),
        (lambda message: 1 / 0, 60, "display: ZeroDivisionError: division by zero"),
    ],
)
def test_a_sensor_declares_its_line(line: Any, width: int, expected: str) -> None:
    message = new("sensor_msgs/msg/Range", range=2.0, max_range=4.0)
    assert sensor_line(Display(line), message, width, 0.5).plain.startswith(expected)


@pytest.mark.parametrize(
    ("encoding", "data", "expected"),
    [
        ("rgb8", [1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]),
        ("bgra8", [1, 2, 3, 9, 4, 5, 6, 9], [[3, 2, 1], [6, 5, 4]]),
        ("mono8", [7, 8], [[7, 7, 7], [8, 8, 8]]),
        ("16UC1", [0, 1, 0, 2], [[0, 0, 0], [255, 255, 255]]),
    ],
)
def test_images_of_any_usual_encoding_can_be_shown(encoding: str, data: list[int], expected: list[list[int]]) -> None:
    message = new("sensor_msgs/msg/Image", width=2, height=1, encoding=encoding, step=len(data))
    message.data = np.array(data, np.uint8)
    assert picture(message).tolist() == [expected]


def test_the_dashboard_shows_frames_and_changes_nothing() -> None:
    out = io.StringIO()
    sim = microsim.Simulation("default", seed=3)
    runner = Runner(sim, 5.0)
    with Dashboard(runner, 300, console(100, 30, out)) as dashboard:
        runner.run(300)
    assert dashboard.error is None
    assert "MicroSim" in out.getvalue()
    assert out.getvalue().count("\x1b[?1049h") == out.getvalue().count("\x1b[?1049l") == 1
    alone = microsim.Simulation("default", seed=3)
    alone.step(300)
    assert sim.digest() == alone.digest()


def test_a_terminal_that_fails_does_not_end_the_run() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("gone")

    sim = microsim.Simulation("flat")
    runner = Runner(sim, 20.0)
    with Dashboard(runner, 120, console(80, 24, Broken())) as dashboard:
        runner.run(120)
    assert sim.tick == 120
    assert isinstance(dashboard.error, OSError)


def map_image(world_map: WorldMap, columns: int, rows: int, robots: dict[str, RobotState]) -> dict[str, Any]:
    picture = world_map.draw(columns, rows, robots, {})
    styles = [segment.style for segment in picture.segments if segment.style]
    colours = {tuple(style.bgcolor.triplet) for style in styles if style.bgcolor and style.bgcolor.triplet}
    colours |= {tuple(style.color.triplet) for style in styles if style.color and style.color.triplet}
    lines = "".join(segment.text for segment in picture.segments).splitlines()
    return {"colours": colours, "lines": lines}


def test_the_map_shows_every_class_in_its_colour_and_robots_as_arrows(showcase: tuple[Runner, DashboardState]) -> None:
    runner, _ = showcase
    drawn = map_image(WorldMap(runner.sim.world, []), 60, 30, {"a": place(20.0, 40.0, math.pi / 2)})
    for class_id in (1, 2, 3, 4):
        assert tuple(PALETTE[class_id].tolist()) in drawn["colours"]
    assert any("↑" in line for line in drawn["lines"])
    assert [len(line) for line in drawn["lines"]] == [60] * 30


def test_north_is_up_and_east_is_right() -> None:
    sim = microsim.Simulation({"robots": {}})
    places = {"sw": place(20.0, 20.0, 0.0), "ne": place(180.0, 180.0, math.pi)}
    lines = map_image(WorldMap(sim.world, [(20.0, 20.0), (180.0, 180.0)]), 50, 25, places)["lines"]
    (west,) = [(row, line.index("→")) for row, line in enumerate(lines) if "→" in line]
    (east,) = [(row, line.index("←")) for row, line in enumerate(lines) if "←" in line]
    assert west[0] > east[0]
    assert west[1] < east[1]


def test_the_view_grows_with_a_robot_that_leaves_and_shows_what_is_beyond_the_map() -> None:
    sim = microsim.Simulation({"map": {"size_xy_cells": [40, 40]}, "robots": {}})
    world_map = WorldMap(sim.world, [(20.0, 20.0)])
    near = map_image(world_map, 40, 20, {"d": place(20.0, 20.0, 0.0)})
    far = map_image(world_map, 40, 20, {"d": place(-60.0, 20.0, 0.0)})
    assert OUTSIDE_COLOUR not in near["colours"]
    assert OUTSIDE_COLOUR in far["colours"]
    assert any("→" in line for line in far["lines"])


@pytest.mark.parametrize(("degrees", "expected"), [(0, "→"), (44, "↗"), (90, "↑"), (180, "←"), (-91, "↓"), (315, "↘")])
def test_arrows_point_where_a_robot_faces(degrees: float, expected: str) -> None:
    assert arrow(math.radians(degrees)) == expected


def test_sparks_and_bars() -> None:
    assert spark([0.0, 50.0, 100.0, None, 1e9], 10, 100.0) == "▁▅█×█"
    assert spark([1.0] * 50, 4, 1.0) == "████"
    assert spark([1.0], 0, 1.0) == ""
    assert bar(0.5, 10) == ("━" * 5, "─" * 5)
    assert bar(math.inf, 4) == ("━" * 4, "")


def test_a_shrunk_image_keeps_its_mean() -> None:
    image = np.zeros((90, 128, 3), np.uint8)
    image[:, 64:] = 200
    small = shrunk(image, 7, 6)
    assert small.shape == (6, 7, 3)
    assert small.mean() == pytest.approx(100.0, abs=1.0)
    assert small[0, 0, 0] == 0
    assert small[5, 6, 2] == 200
    assert small[2, 3, 1] == 100


def test_neighbours_of_one_colour_share_a_segment() -> None:
    image = np.zeros((2, 8, 3), np.uint8)
    assert len(Pixels(image).segments) == 2  # and the end of the line
    assert "".join(segment.text for segment in Pixels(image, {(0, 3): Mark("x", (1, 2, 3))}).segments) == "   x    \n"


def test_in_256_colours_the_ground_stays_grey_and_water_stays_green() -> None:
    def shown(colour: tuple[int, int, int]) -> tuple[int, int, int]:
        red, green, blue = nearest_256(Color.from_rgb(*colour)).get_truecolor()
        return red, green, blue

    assert len(set(shown(GROUND_COLOUR))) == 1  # rich's own choice is navy blue
    assert shown(GROUND_COLOUR) != shown(OUTSIDE_COLOUR)
    water = shown((26, 188, 156))
    assert water[1] > water[2] > water[0]
    screen = Console(width=4, file=io.StringIO(), force_terminal=True, color_system="256")
    screen.print(Pixels(np.full((2, 4, 3), 40, np.uint8)))
    assert "\x1b[48;5;235m" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_a_graph_fills_columns_from_below() -> None:
    assert graph([0.0, 1.0, 2.0], 9, 2, 2.0) == ["  █", " ██"]
    assert graph([5.0, 0.5], 1, 1, 1.0) == ["▄"]


def test_a_large_screen_shows_graphs_of_speeds(showcase: tuple[Runner, DashboardState]) -> None:
    assert "rover speed [m/s]" in text_of(*showcase, 200, 60)
