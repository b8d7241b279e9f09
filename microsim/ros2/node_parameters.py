"""The node's parameters (PRD 5.4): dotted names for what a scenario says.

A parameter is a name for one or more places in the scenario. So a value is checked by the scenario's own models, its
description and limits are theirs, and what is in force is always one complete scenario.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic.fields import FieldInfo

from microsim.errors import ScenarioError
from microsim.ros2.transport import Parameter, Value
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.robots import Rover
from microsim.scenario.sensors import Camera
from microsim.sensors import SENSORS

Path: TypeAlias = tuple[str, ...]
When: TypeAlias = Literal["tick", "reset"]

_CAMERA: dict[str, Path] = {
    "enabled": ("enabled",),
    "hz": ("hz",),
    "width": ("resolution", "width"),
    "height": ("resolution", "height"),
    "encoding": ("encoding",),
    "projection": ("projection",),
    "intrinsics.fx": ("intrinsics", "fx"),
    "intrinsics.fy": ("intrinsics", "fy"),
    "intrinsics.cx": ("intrinsics", "cx"),
    "intrinsics.cy": ("intrinsics", "cy"),
    "distortion.model": ("distortion", "model"),
    "distortion.D": ("distortion", "D"),
    "noise.blur_sigma_px": ("noise", "blur_sigma_px"),
    "noise.color_jitter": ("noise", "color_jitter"),
    "latency_ms_mean": ("latency_ms", "mean"),
    "latency_ms_jitter": ("latency_ms", "jitter"),
    "drop_probability": ("latency_ms", "drop_probability"),
}
_RADIO = ("latency_ms_mean", "latency_ms_jitter", "drop_probability", "reordering", "half_duplex")
_EVERY_ROBOTS: dict[str, tuple[str, str]] = {  # one parameter for a sensor of all robots -> (sensor, key)
    "odom_hz": ("odom", "hz"),
    "gps_hz": ("gps", "hz"),
    "range_hz": ("range", "hz"),
    "sensors.gps_sigma_m": ("gps", "sigma_m"),
    "sensors.gps_bias_drift_m_per_s": ("gps", "bias_drift_m_per_s"),
    "sensors.range_sigma_m": ("range", "sigma_m"),
    "sensors.range_min_m": ("range", "min_m"),
    "sensors.range_max_m": ("range", "max_m"),
    "sensors.range_dropout_probability": ("range", "dropout_probability"),
}
# of a robot: not its limits
_BLOCKS = {
    "model",
    "start",
    "dynamics",
    "odom",
    "gps",
    "imu",
    "camera",
    "range",
    "scan",
    "lidar",
    "sensors",
    "joint_states",
    "frame_prefix",
}


@dataclass(frozen=True)
class Row:
    name: str
    paths: tuple[Path, ...]  # in the scenario; all hold the same value
    when: When = "tick"


def rows(scenario: Scenario) -> Iterator[Row]:
    """Every parameter that stands for a place in this scenario."""
    yield Row("physics_hz", (("physics_hz",),), "reset")
    for name, (sensor, key) in _EVERY_ROBOTS.items():
        paths = tuple(("robots", robot, sensor, key) for robot, block in _robots_with(scenario, sensor))
        if paths:
            yield Row(name, paths)
    for robot, settings in scenario.robots.items():
        for key in type(settings).model_fields:
            if key not in _BLOCKS and key not in SENSORS.built_in:
                yield Row(f"{robot}.{key}", (("robots", robot, key),))
        if isinstance(settings, Rover) and settings.dynamics is not None:
            for key in type(settings.dynamics).model_fields:
                yield Row(f"{robot}.dynamics.{key}", (("robots", robot, "dynamics", key),))
        if settings.model == "drone":
            yield Row(f"{robot}.wind_world_xyz", (("wind", "world_xyz"),))
        if settings.camera is not None or settings.model == "drone":
            for name, path in _CAMERA.items():
                yield Row(f"{robot}.camera.{name}", (("robots", robot, "camera", *path),))
    for key in _RADIO:
        yield Row(f"radio.{key}", (("radio", key),))
    for key in ("gust_sigma", "gust_tau_s"):
        yield Row(f"wind.{key}", (("wind", key),))
    for key in ("cell_size_m", "size_xy_cells", "origin_wgs84"):
        yield Row(f"world.{key}", (("map", key),), "reset")
    yield Row("frames.publish_static_tf", (("frames", "publish_static_tf"),), "reset")
    yield Row("frames.per_robot_odom", (("frames", "per_robot_odom"),), "reset")


def _robots_with(scenario: Scenario, sensor: str) -> list[tuple[str, Any]]:
    found = [(name, getattr(robot, sensor)) for name, robot in scenario.robots.items()]
    return [(name, block) for name, block in found if block is not None]


class Settings:
    """The scenario in force and the one of the next reset, as parameters."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.next_scenario = scenario
        self._document = _with_absent_cameras(scenario)
        self._rows = {row.name: row for row in rows(scenario)}

    def declarations(self) -> list[Parameter]:
        """Every parameter with its present value; one without a value here (a camera given by fov_deg) is left out."""
        found = []
        for row in self._rows.values():
            value, info = self._look_up(row)
            if value is not None:
                found.append(_declaration(row, value, info))
        return found

    def values(self) -> dict[str, Value]:
        return {parameter.name: parameter.value for parameter in self.declarations()}

    def knows(self, name: str) -> bool:
        return name in self._rows

    def change(self, changes: Mapping[str, Value]) -> str:
        """Take all changes, or none and say why. What needs a reset changes only `next_scenario`."""
        document = copy.deepcopy(self._document)
        for name, value in changes.items():
            for path in self._rows[name].paths:
                _write(document, path, value)
        try:
            changed = load_scenario(document)
        except ScenarioError as error:
            return "; ".join(str(problem) for problem in error.problems)
        waiting = any(self._rows[name].when == "reset" for name in changes)
        now = {name: value for name, value in changes.items() if self._rows[name].when == "tick"}
        self._document, self.next_scenario = document, changed
        if not waiting:
            self.scenario = changed
        elif now:
            present = _with_absent_cameras(self.scenario)
            for name, value in now.items():
                for path in self._rows[name].paths:
                    _write(present, path, value)
            self.scenario = load_scenario(present)
        return ""

    def set_stamped(self, stamped: bool) -> None:
        """Whether commands are TwistStamped: only before the node listens."""
        self._document["stamped_cmd_vel"] = stamped
        self.scenario = self.next_scenario = load_scenario(self._document)

    def follow(self, scenario: Scenario) -> None:
        """Somebody else, such as a mission, has changed what is in force."""
        if scenario != self.scenario:
            self.scenario = self.next_scenario = scenario
            self._document = _with_absent_cameras(scenario)

    def memory(self) -> Any:
        return self.scenario, self.next_scenario, self._document

    def recall(self, memory: Any) -> None:
        self.scenario, self.next_scenario, self._document = memory

    def use_next(self) -> None:
        """At a reset: what waited is in force."""
        self.scenario = self.next_scenario

    def _look_up(self, row: Row) -> tuple[Any, FieldInfo]:
        value: Any = self._document
        for key in row.paths[0]:
            value = value.get(key) if isinstance(value, dict) else None
        return value, _field(self.scenario, row.paths[0])


def _with_absent_cameras(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data; a drone's missing camera is written as one that is switched off."""
    document = scenario.to_dict()
    for robot in document["robots"].values():
        if robot.get("camera") is None and robot["model"] == "drone":
            robot["camera"] = {**Camera(enabled=False).model_dump(mode="json", exclude={"mount"})}
    return document


def _write(document: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def _field(scenario: Scenario, path: Path) -> FieldInfo:
    """The model field that describes a place."""
    block: Any = scenario
    info: FieldInfo | None = None
    for key in path:
        if isinstance(block, Mapping):
            block = block[key]
            continue
        block = Camera() if block is None else block
        info = type(block).model_fields[key]
        block = getattr(block, key)
    assert info is not None  # no path ends in a mapping
    return info


def _declaration(row: Row, value: Any, info: FieldInfo) -> Parameter:
    low, high = field_limits(info)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    when = "" if row.when == "tick" else " Takes effect at the next reset."
    plain = list(value) if isinstance(value, (list, tuple)) else value
    return Parameter(
        row.name,
        plain,
        f"{info.description or ''}{when}",
        minimum=low if is_number else None,
        maximum=high if is_number else None,
        any_number=is_number,
    )


def field_limits(info: FieldInfo) -> tuple[float | None, float | None]:
    """Least and greatest value that a field takes."""
    low: float | None = None
    high: float | None = None
    for item in info.metadata:
        low = next((getattr(item, name) for name in ("ge", "gt") if getattr(item, name, None) is not None), low)
        high = next((getattr(item, name) for name in ("le", "lt") if getattr(item, name, None) is not None), high)
    return low, high
