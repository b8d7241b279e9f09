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

from microsim.documents.values import Model
from microsim.errors import ScenarioError
from microsim.robots.robot import COMMON_SENSORS, Robot
from microsim.ros2.transport import Parameter, Value
from microsim.scenario import Scenario, load_scenario
from microsim.sensors import SENSORS
from microsim.sensors.plugin import PluginSensor
from microsim.sensors.sensor import Sensor

Path: TypeAlias = tuple[str, ...]
When: TypeAlias = Literal["tick", "reset"]

_RADIO = ("latency_ms_mean", "latency_ms_jitter", "drop_probability", "reordering", "half_duplex")


@dataclass(frozen=True)
class Row:
    name: str
    paths: tuple[Path, ...]  # in the scenario; all hold the same value
    when: When = "tick"


def rows(scenario: Scenario) -> Iterator[Row]:
    """Every parameter of this scenario."""
    yield Row("physics_hz", (("physics_hz",),), "reset")
    yield from _common_rows(scenario)
    for robot, settings in scenario.robots.items():
        own = [
            key for key in type(settings).model_fields if key not in ("model", "start", "sensors", *SENSORS.built_in)
        ]
        for key in own:
            yield from _numbers(f"{robot}.{key}", ("robots", robot, key), getattr(settings, key))
        if settings.wind_parameter:
            yield Row(f"{robot}.wind_world_xyz", (("wind", "world_xyz"),))
        for name, sensor in COMMON_SENSORS.items():
            yield from _sensor_rows(robot, settings, name, getattr(settings, name), sensor)
        for name, block, sensor in _further(scenario, robot):
            yield from _sensor_rows(robot, settings, name, block, sensor)
    for key in _RADIO:
        yield Row(f"radio.{key}", (("radio", key),))
    for key in ("gust_sigma", "gust_tau_s"):
        yield Row(f"wind.{key}", (("wind", key),))
    for key in ("cell_size_m", "size_xy_cells", "origin_wgs84"):
        yield Row(f"world.{key}", (("map", key),), "reset")
    yield Row("frames.publish_static_tf", (("frames", "publish_static_tf"),), "reset")
    yield Row("frames.per_robot_odom", (("frames", "per_robot_odom"),), "reset")


def _common_rows(scenario: Scenario) -> Iterator[Row]:
    """One parameter for a sensor of all robots."""
    for sensor in SENSORS.built_in.values():
        for name, key in sensor.common_parameters.items():
            robots = [robot for robot, settings in scenario.robots.items() if getattr(settings, sensor.name, None)]
            if robots:
                yield Row(name, tuple(("robots", robot, sensor.name, key) for robot in robots))


def _sensor_rows(robot: str, settings: Robot, name: str, block: Any, sensor: Sensor) -> Iterator[Row]:
    """A sensor's own parameters: those its declaration names, or every number of its block."""
    place = ("robots", robot, *settings.sensor_key(name))
    if sensor.parameters is not None:
        if block is not None or _is_carried(settings, name):
            for parameter, path in sensor.parameters.items():
                yield Row(f"{robot}.{name}.{parameter}", ((*place, *path.split(".")),))
        return
    keys = () if block is None else [key for key in _keys(block) if key not in sensor.common_parameters.values()]
    for key in keys:
        yield from _numbers(f"{robot}.{name}.{key}", (*place, key), _value(block, key))


def _keys(block: Any) -> list[str]:
    own = [key for key in type(block).model_fields if key not in ("enabled", "mount", "type", "options")]
    return [*own, *getattr(block, "options", {})]


def _value(block: Any, key: str) -> Any:
    return getattr(block, "options", {}).get(key, getattr(block, key, None))


def _numbers(name: str, place: Path, value: Any) -> Iterator[Row]:
    """A parameter for each number and switch at a place and below it."""
    if isinstance(value, Model):
        for key in type(value).model_fields:
            yield from _numbers(f"{name}.{key}", (*place, key), getattr(value, key))
    elif isinstance(value, (bool, int, float)):
        yield Row(name, (place,))


def _is_carried(settings: Robot, name: str) -> bool:
    """Whether robots of this model carry the sensor unless a scenario takes it away."""
    return name in type(settings).model_fields and type(settings).model_fields[name].default is not None


def _further(scenario: Scenario, robot: str) -> Iterator[tuple[str, Any, Sensor]]:
    for owner, name, block, sensor in scenario.all_sensors:
        if owner == robot and name not in COMMON_SENSORS:
            yield name, block, sensor


class ScenarioParameters:
    """The scenario in force and the one of the next reset, as parameters."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.next_scenario = scenario
        self._document = _with_switched_off(scenario)
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
            self.scenario = load_scenario(self._written(_with_switched_off(self.scenario), now))
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
            self._document = _with_switched_off(scenario)

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


def _with_switched_off(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain data; a sensor that a parameter can switch on is written as one that is switched off."""
    document = scenario.to_dict()
    for robot, settings in scenario.robots.items():
        for name, sensor in COMMON_SENSORS.items():
            can_be_switched = sensor.parameters is not None and "enabled" in sensor.parameters
            if can_be_switched and getattr(settings, name) is None and _is_carried(settings, name):
                default = type(settings).model_fields[name].default
                off = default.model_copy(update={"enabled": False})
                document["robots"][robot][name] = off.model_dump(mode="json", exclude={"mount"})
    return document


def _field(scenario: Scenario, path: Path) -> FieldInfo:
    """The model field that describes a place."""
    block: Any = scenario
    info: FieldInfo | None = None
    for key in path:
        if isinstance(block, Mapping):
            block = block[key]
            continue
        if isinstance(block, PluginSensor) and key in block.options:
            plugin = SENSORS.find(block.type, scenario.plugins)
            assert plugin is not None  # it was there when the scenario was read
            assert plugin.options is not None
            return plugin.options.model_fields[key]
        info = type(block).model_fields[key]
        block = getattr(block, key)
        block = info.default if block is None else block  # a sensor that is switched off has its defaults
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
