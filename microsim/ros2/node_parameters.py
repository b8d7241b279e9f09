"""The node's parameters (PRD 5.4): dotted names for values of the scenario.

A parameter is a name for one or more places in the scenario. So the scenario's own models check its value and give its
description and limits, and there is always one complete scenario in force.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from pydantic.fields import FieldInfo

from microsim.errors import ScenarioError
from microsim.ros2.transport import Parameter, Value
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.robots import Rover
from microsim.scenario.sensors import Camera

Path: TypeAlias = tuple[str, ...]
When: TypeAlias = Literal["tick", "reset"]

_CAMERA: dict[str, Path] = {
    name: tuple(place.split("."))
    for name, place in {
        **{key: key for key in ("enabled", "hz")},
        **{key: f"resolution.{key}" for key in ("width", "height")},
        **{key: key for key in ("encoding", "projection")},
        **{key: key for key in (f"intrinsics.{number}" for number in ("fx", "fy", "cx", "cy"))},
        **{key: key for key in ("distortion.model", "distortion.D", "noise.blur_sigma_px", "noise.color_jitter")},
        "latency_ms_mean": "latency_ms.mean",
        "latency_ms_jitter": "latency_ms.jitter",
        "drop_probability": "latency_ms.drop_probability",
    }.items()
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
# keys of a robot that are not limits, and so are not parameters by themselves
_BLOCKS = {
    *("model", "start", "dynamics", "odom", "gps", "imu", "camera", "range", "scan", "lidar", "sensors"),
    *("joint_states", "frame_prefix"),
}


@dataclass(frozen=True)
class Row:
    name: str
    paths: tuple[Path, ...]  # in the scenario; all hold the same value
    when: When = "tick"


def rows(scenario: Scenario) -> Iterator[Row]:
    """Every parameter of this scenario."""
    yield Row("physics_hz", (("physics_hz",),), "reset")
    for name, (sensor, key) in _EVERY_ROBOTS.items():
        paths = tuple(("robots", robot, sensor, key) for robot, block in _robots_with(scenario, sensor))
        if paths:
            yield Row(name, paths)
    for robot, settings in scenario.robots.items():
        for key in type(settings).model_fields:
            if key not in _BLOCKS:
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


class ScenarioParameters:
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
        """Accept all changes, or none and give the reason. What needs a reset changes only `next_scenario`."""
        document = self._written(copy.deepcopy(self._document), changes)
        try:
            changed = load_scenario(document)
        except ScenarioError as error:
            return "; ".join(str(problem) for problem in error.problems)
        now = {name: value for name, value in changes.items() if self._rows[name].when == "tick"}
        self._document, self.next_scenario = document, changed
        if len(now) == len(changes):
            self.scenario = changed
        elif now:
            self.scenario = load_scenario(self._written(_with_absent_cameras(self.scenario), now))
        return ""

    def _written(self, document: dict[str, Any], changes: Mapping[str, Value]) -> dict[str, Any]:
        for name, value in changes.items():
            for *path, last in self._rows[name].paths:
                block = document
                for key in path:
                    block = block[key]
                block[last] = value
        return document

    def set_stamped(self, stamped: bool) -> None:
        """Whether commands are TwistStamped: only before the node listens."""
        self._document["stamped_cmd_vel"] = stamped
        self.scenario = self.next_scenario = load_scenario(self._document)

    def follow(self, scenario: Scenario) -> None:
        """The scenario was changed elsewhere, such as by a mission."""
        if scenario != self.scenario:
            self.scenario = self.next_scenario = scenario
            self._document = _with_absent_cameras(scenario)

    def memory(self) -> Any:
        return self.scenario, self.next_scenario, self._document

    def recall(self, memory: Any) -> None:
        self.scenario, self.next_scenario, self._document = memory

    def use_next(self) -> None:
        """At a reset: pending changes take effect."""
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
    if isinstance(value, tuple):
        value = list(value)
    elif is_number and _has_float(info.annotation):
        value = float(value)  # also a whole number: a parameter keeps its type
    return Parameter(
        row.name,
        value,
        f"{info.description or ''}{when}",
        minimum=low if is_number else None,
        maximum=high if is_number else None,
        any_number=is_number,
    )


def _has_float(annotation: Any) -> bool:
    return annotation is float or any(map(_has_float, get_args(annotation)))


def field_limits(info: FieldInfo) -> tuple[float | None, float | None]:
    """Smallest and largest value of a field."""
    low: float | None = None
    high: float | None = None
    for item in info.metadata:
        low = next((getattr(item, name) for name in ("ge", "gt") if getattr(item, name, None) is not None), low)
        high = next((getattr(item, name) for name in ("le", "lt") if getattr(item, name, None) is not None), high)
    return low, high
