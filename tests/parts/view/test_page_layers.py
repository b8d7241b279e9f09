"""Sensors and robots on the page come from their declarations: a plug-in appears like a built-in one."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import microsim
from microsim.messages.types import encode, new
from microsim.parts.view.run_state import shown_sensors
from microsim.parts.view.web.interface import FrameCollector, News, PageFrame
from microsim.parts.view.web.page import quiet_server
from microsim.parts.view.web.page.layers import SensorLayer
from microsim.parts.view.web.page.panel_data import Panels, point
from microsim.parts.view.web.page.robot_bodies import robot_links
from microsim.parts.view.web.page.stage import Stage3D
from microsim.robots.robot import ROBOTS
from microsim.runner import Runner
from microsim.sensors import SENSORS

SONAR = """
from typing import Any
from microsim.sensors.sensor import Display, PythonSensor

class Sonar:
    def __init__(self, context: Any) -> None: ...
    def update(self, dt: float) -> None: ...
    def publish(self) -> dict[str, Any]:
        return {"range": 2.5, "min_range": 0.1, "max_range": 6.0}

SENSOR = PythonSensor("sonar", "sensor_msgs/msg/Range", Sonar, display=Display(plot=("range",), layer="beam"))
"""
ODD = """
from microsim.sensors.sensor import Display, PythonSensor

class Odd:
    def __init__(self, context): ...
    def update(self, dt): ...
    def publish(self):
        return {"temperature": 20.0}

SENSOR = PythonSensor("odd", "sensor_msgs/msg/Temperature", Odd, display=Display(layer="fan"))
"""
HOVERCRAFT = """
from typing import ClassVar, Literal
from microsim.robots.robot import Look, Robot
from microsim.robots.rover import KINEMATIC

class Hovercraft(Robot):
    engine: ClassVar = KINEMATIC
    model: Literal["hovercraft"] = "hovercraft"
    max_v: float = 3.0
    max_omega: float = 1.0
    cmd_time_constant: float = 0.1

    def look(self):
        return Look("cylinder", (1.6, 1.0, 0.6), (0.9, 0.8, 0.2), (0.0, 0.0, 0.3))

ROBOT = Hovercraft
"""


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> FrameCollector:
    folder = tmp_path_factory.mktemp("plugins")
    for name, text in (("sonar", SONAR), ("odd", ODD), ("hovercraft", HOVERCRAFT)):
        (folder / f"{name}.py").write_text(text)
    down = {"type": "sonar", "mount": {"xyz": [0.0, 0.0, -0.1], "rpy": [0.0, math.pi / 2, 0.0]}}
    scenario: dict[str, Any] = {
        "plugins": [str(folder)],
        "map": {"size_xy_cells": [20, 20]},
        "robots": {
            "drone": {"start": {"map_pose": {"x": 5, "y": 5, "z": 4}}, "sensors": {"down": down}},
            "craft": {"model": "hovercraft", "sensors": {"odd": {"type": "odd"}}},
            "ego": {"start": {"map_pose": {"x": 10, "y": 10}}},
        },
    }
    runner = Runner(microsim.Simulation(scenario), 0.0)
    collector = FrameCollector(runner)
    runner.listen(messages=collector.on_messages)
    return collector


@pytest.fixture(scope="module")
def stage(collector: FrameCollector) -> Iterator[tuple[Stage3D, PageFrame]]:
    server = quiet_server()
    drawn = Stage3D(server, collector.scene())
    collector.runner.sim.command("ego", speed=2.0, steering=0.3)
    collector.runner.step(60)
    frame = collector.frame()
    drawn.draw(frame)
    yield drawn, frame
    server.stop()


def layer(stage: Stage3D, robot: str, name: str) -> SensorLayer:
    return next(each for each in stage.sensors.layers if (each.look.robot, each.look.name) == (robot, name))


def test_every_declared_layer_is_drawn_and_no_other(stage: tuple[Stage3D, PageFrame]) -> None:
    scenario = stage[0].scene
    assert [each.look for each in stage[0].sensors.layers] == [look for look in scenario.sensors if look.layer]
    assert {each.look.layer for each in stage[0].sensors.layers} >= {"beam", "fix", "image", "pose", "joints", "fan"}


def test_a_plugin_beam_ends_where_its_message_says(stage: tuple[Stage3D, PageFrame]) -> None:
    beam: Any = layer(stage[0], "drone", "down")
    assert beam.reading == 2.5
    start, end = beam._line.points[0]
    assert start == pytest.approx((5.0, 5.0, 3.9), abs=0.5)
    assert end - start == pytest.approx((0.0, 0.0, -2.5), abs=1e-5)


def test_an_image_is_as_wide_as_its_camera_info_says(stage: tuple[Stage3D, PageFrame]) -> None:
    view: Any = layer(stage[0], "drone", "camera")
    assert view._frustum.fov == pytest.approx(2.0 * math.atan(64 / 120))
    assert view.image.shape == (128, 128, 3)


def test_joint_states_turn_the_wheels_of_the_model(stage: tuple[Stage3D, PageFrame]) -> None:
    body = stage[0].bodies["ego"]
    assert body.joints["front_left_steering"] > body.joints["front_right_steering"] > 0.1
    turned = {link.joint: node.wxyz for node, link in body._turning}
    assert turned["front_left_steering"][3] == pytest.approx(math.sin(0.5 * body.joints["front_left_steering"]))
    assert turned["rear_left_wheel"][2] == pytest.approx(math.sin(0.5 * body.joints["rear_left_wheel"]))


def test_a_message_that_is_not_what_its_layer_requires_is_reported_once(stage: tuple[Stage3D, PageFrame]) -> None:
    drawn, frame = stage
    (text,) = drawn.sensors.problems.values()
    assert text.startswith("/craft/odd: sensor_msgs/msg/Temperature cannot be drawn as 'fan': AttributeError")
    panels = Panels(lambda page, kind, value: None)
    panels.begin(drawn.scene, drawn)
    panels.update(frame, drawn)
    panels.update(frame, drawn)
    assert [(line.text, line.times) for line in panels._log.values() if "odd" in line.text] == [(text, 1)]


def test_a_robot_without_a_model_is_drawn_as_its_look(stage: tuple[Stage3D, PageFrame]) -> None:
    look = next(each for each in stage[0].scene.robots if each.name == "craft")
    assert (look.urdf, look.model, look.limits) == ("", "hovercraft", {"v": 3.0, "omega": 1.0})
    (link,) = robot_links(look, (255, 0, 0))
    (colour, body), (accent, lid) = link.meshes
    assert (colour, accent) == ((0.9, 0.8, 0.2, 1.0), (1.0, 0.0, 0.0, 1.0))
    assert body.bounds[0] == pytest.approx((-0.8, -0.5, 0.0), abs=0.02)
    assert body.bounds[1] == pytest.approx((0.8, 0.5, 0.6), abs=0.02)
    assert lid.bounds[0][2] == pytest.approx(0.6)


@pytest.mark.parametrize("model", ["drone", "rover", "ego"])
def test_built_in_robots_are_drawn_from_their_urdf(model: str) -> None:
    sim = microsim.Simulation({"robots": {model: {}}})
    (look,) = FrameCollector(Runner(sim)).scene().robots
    assert len(robot_links(look, (255, 0, 0))) > 4


def test_what_is_plotted_at_first_is_declared_and_any_number_can_be_chosen(
    collector: FrameCollector, stage: tuple[Stage3D, PageFrame]
) -> None:
    drawn, frame = stage
    panels = Panels(lambda page, kind, value: None)
    panels.begin(drawn.scene, drawn)
    panels.update(frame, drawn)
    messages = [
        json.loads(text) for text in panels._unknown_to({"scene": 0, "line": 0, "images": {}, "plot": 0, "fields": 0})
    ]
    scene = next(each for each in messages if each["type"] == "scene")
    assert scene["plots"] == [{"kind": "down:range", "title": "Down range", "unit": ""}]
    fields = {each["topic"]: each["plots"] for each in messages[-2]["sensors"]}
    assert {"kind": "imu:linear_acceleration.z", "title": "Imu linear acceleration.z", "unit": "m/s²"} in fields[
        "/drone/imu/data_raw"
    ]
    assert {"kind": "odd:temperature", "title": "Odd temperature", "unit": ""} in fields["/craft/odd"]
    assert point(frame.way[-1], drawn.scene.sensors)["down:range"] == {"drone": 2.5}
    assert "odd:temperature" not in point(frame.way[-1], drawn.scene.sensors)
    collector.plot("/craft/odd")
    panels.plot("/craft/odd")
    collector.runner.step(12)
    later = point(collector.frame().way[-1], drawn.scene.sensors, panels._chosen)
    assert later["odd:temperature"] == {"craft": 20.0}


@pytest.mark.parametrize(
    ("type_name", "message", "x"),
    [
        ("nav_msgs/msg/Odometry", {}, 3.0),
        ("geometry_msgs/msg/PoseWithCovarianceStamped", {}, 3.0),
        ("geometry_msgs/msg/PoseStamped", {}, 3.0),
    ],
)
def test_anything_with_a_pose_can_be_a_pose_layer(
    stage: tuple[Stage3D, PageFrame], type_name: str, message: dict[str, Any], x: float
) -> None:
    pose = filled = new(type_name, **message)
    while hasattr(pose, "pose"):
        pose = pose.pose
    pose.position.x, pose.orientation.w = x, 1.0
    axes: Any = layer(stage[0], "drone", "odom")
    stage[0].sensors.receive("/drone/odom", News(type_name, 0, encode(type_name, filled)))
    assert tuple(axes._axes.position) == (x, 0.0, 0.0)


def test_topics_are_those_of_the_run(collector: FrameCollector) -> None:
    sim = collector.runner.sim
    seen = {message.topic for message in sim.step(60)}
    assert {topic for sensor in shown_sensors(sim.scenario) for topic in sensor.forms} <= seen | {"/drone/camera/depth"}


def test_no_module_of_the_view_names_a_kind_of_sensor_or_robot() -> None:
    kinds = "|".join([*SENSORS.built_in, *ROBOTS.built_in, "ego", "dynamic_rover"])
    named = re.compile(rf"""["']({kinds})["']|microsim\.(sensors|robots)\.({kinds})\b|import .*\b(SENSORS|ROBOTS)\b""")
    files = list((Path(microsim.__file__).parent / "parts" / "view").rglob("*.py"))
    assert len(files) > 20
    assert {file.name: found.group() for file in files if (found := named.search(file.read_text()))} == {}


class SlowConnection:
    """While it takes the first text, the run ends."""

    def __init__(self, panels: Panels) -> None:
        self.panels = panels
        self.sent: list[dict[str, Any]] = []
        self.is_closed = asyncio.Event()

    async def send(self, text: str) -> None:
        self.sent.append(json.loads(text))
        if len(self.sent) == 1:
            self.panels.report("the last moment")
            await asyncio.to_thread(self.panels.end, 0.0)

    async def close(self, code: int, reason: str) -> None:
        self.is_closed.set()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        await self.is_closed.wait()
        raise StopAsyncIteration


def test_the_last_moment_is_sent_before_the_end_of_the_run() -> None:
    """It was lost where a page took longer for the moment before it: the page then showed another time of the end."""
    panels = Panels(lambda page, kind, value: None)
    panels.report("a moment before")
    connection = SlowConnection(panels)
    asyncio.run(panels.serve("page", cast(Any, connection)))
    assert [each.get("text", each["type"]) for each in connection.sent] == ["a moment before", "the last moment", "end"]
