"""The node's parameters (PRD 5.4): dotted names for values of the scenario.

A parameter is a name for one or more places in the scenario. So the scenario's own models check its value and give its
description and limits, and there is always one complete current scenario.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from microsim.documents.values import Model, in_degrees
from microsim.documents.yaml_text import dotted
from microsim.errors import ScenarioError, UsageError, did_you_mean
from microsim.parts.ros2.transport import Parameter, Transport, Value
from microsim.robots.robot import COMMON_SENSORS, Robot
from microsim.scenario import Scenario
from microsim.scenario.files import Places
from microsim.scenario.live_changes import at_start
from microsim.scenario.loading import at_seed, reloaded
from microsim.sensors import SENSORS
from microsim.sensors.plugin import PluginSensor
from microsim.sensors.sensor import PythonSensor, Sensor

Path: TypeAlias = tuple[str, ...]
When: TypeAlias = Literal["tick", "reset"]

_RADIO = ("latency_ms_mean", "latency_ms_jitter", "drop_probability", "reordering", "half_duplex")
_SHARED: tuple[tuple[str, str, tuple[str, ...], When], ...] = (  # name, block of the scenario, its keys
    ("radio", "radio", _RADIO, "tick"),
    ("wind", "wind", ("gust_sigma", "gust_tau_s"), "tick"),
    ("world", "map", ("cell_size_m", "size_xy_cells", "origin_wgs84"), "reset"),
    ("frames", "frames", ("publish_static_tf", "per_robot_odom"), "reset"),
)


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
        for key in type(settings).model_fields:
            if key not in ("model", "sensors", *SENSORS.built_in) and not (key == "start" and settings.follows_path):
                when: When = "reset" if key == "start" else "tick"
                yield from _numbers(f"{robot}.{key}", ("robots", robot, key), getattr(settings, key), when)
        if settings.wind_parameter:
            yield Row(f"{robot}.wind_world_xyz", (("wind", "world_xyz"),))
        for name, sensor in COMMON_SENSORS.items():
            yield from _sensor_rows(robot, settings, name, getattr(settings, name), sensor)
        for owner, name, block, sensor in scenario.all_sensors:
            if owner == robot and name not in COMMON_SENSORS:
                yield from _sensor_rows(robot, settings, name, block, sensor)
    for prefix, place, keys, when in _SHARED:
        yield from (Row(f"{prefix}.{key}", ((place, key),), when) for key in keys)


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
    if block is not None:
        own = [key for key in type(block).model_fields if key not in ("enabled", "mount", "type", "options")]
        values = {**{key: getattr(block, key) for key in own}, **getattr(block, "options", {})}
        for key, value in values.items():
            if key not in sensor.common_parameters.values():
                when: When = "reset" if key == "drift" and sensor.tracker is not None else "tick"
                yield from _numbers(f"{robot}.{name}.{key}", (*place, key), value, when)


def _numbers(name: str, place: Path, value: Any, when: When = "tick") -> Iterator[Row]:
    """A parameter for each number and switch at a place and below it."""
    if isinstance(value, Model):
        for key in type(value).model_fields:
            yield from _numbers(f"{name}.{key}", (*place, key), getattr(value, key), when)
    elif isinstance(value, (bool, int, float)):
        yield Row(name, (place,), when)


def _is_carried(settings: Robot, name: str) -> bool:
    """Whether robots of this model carry the sensor unless a scenario takes it away."""
    return name in type(settings).model_fields and type(settings).model_fields[name].default is not None


class ScenarioParameters:
    """The current scenario, and what was set for the next reset, as parameters."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.pending: dict[str, Value] = {}  # accepted, in force from the next reset on
        self._document = _with_switched_off(scenario)
        self._rows = {row.name: row for row in rows(scenario)}

    def declarations(self) -> list[Parameter]:
        """Every parameter with the value last set; one without a value here (a camera given by fov_deg) is left out."""
        found, document = [], self._written(self._document, self.pending)
        for row in self._rows.values():
            value: Any = document
            for key in row.paths[0]:
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                note = "" if row.when == "tick" else " Takes effect at the next reset."
                found.append(_parameter(row.name, value, _field(self.scenario, row.paths[0]), note))
        return found

    def values(self) -> dict[str, Value]:
        return {parameter.name: parameter.value for parameter in self.declarations()}

    def knows(self, name: str) -> bool:
        """Whether there is such a parameter: not if it belongs to a robot that was deleted."""
        return name in self._rows and any(_block(self._document, path) is not None for path in self._rows[name].paths)

    def change(self, changes: Mapping[str, Value], first: Scenario | None = None) -> str:
        """Accept all changes, or none and give the reason. Those that need a reset become `pending`.

        `first`: whose entities a reset brings back.
        """
        now = {name: value for name, value in changes.items() if self._rows[name].when == "tick"}
        pending = {**self.pending, **{name: value for name, value in changes.items() if name not in now}}
        document = self._written(self._document, now)
        try:
            scenario = reloaded(document, self.scenario) if now else self.scenario
            if pending:
                start = at_start(first or scenario, scenario)
                document_then = document if start == scenario else _with_switched_off(start)
                reloaded(self._written(document_then, pending), scenario, starts=None)
        except ScenarioError as error:
            at_reset = f" (with {_list(pending)}, which the next reset puts into force)" if pending else ""
            return "; ".join(str(problem) for problem in error.problems) + at_reset
        self.scenario, self._document, self.pending = scenario, document, pending
        return ""

    def _written(self, document: dict[str, Any], changes: Mapping[str, Value]) -> dict[str, Any]:
        document = copy.deepcopy(document)
        for name, value in changes.items():
            for path in self._rows[name].paths:
                if (block := _block(document, path)) is not None:
                    block[path[-1]] = value
        return document

    def start_with(self, changes: Mapping[str, Value], seed: int | None = None) -> str:
        """Before the run: all take effect at once. Gives the reason if they cannot, or not in the world of the seed."""
        document = self._written(self._document, changes)
        try:
            scenario = reloaded(document, self.scenario, starts=None)
            self.scenario = scenario if seed is None else at_seed(scenario, seed)
            self._document = document
        except ScenarioError as error:
            return "; ".join(str(problem) for problem in error.problems)
        return ""

    def set_stamped(self, stamped: bool) -> None:
        """Whether commands are TwistStamped: only before the node listens."""
        self._document["stamped_cmd_vel"] = stamped
        self.scenario = reloaded(self._document, self.scenario)

    def follow(self, scenario: Scenario) -> None:
        """The scenario was changed elsewhere, such as by a mission. What waits for a reset still does."""
        if scenario != self.scenario:
            self.scenario, self._document = scenario, _with_switched_off(scenario)

    def memory(self) -> Any:
        return self.scenario, dict(self.pending), self._document

    def recall(self, memory: Any) -> None:
        self.scenario, self.pending, self._document = memory

    def use_pending(self, seed: int) -> str:
        """At a reset, with the scenario that it starts from and its seed: pending changes take effect.

        Gives the reason if they no longer fit what changed since; then they are dropped.
        """
        pending, self.pending = self.pending, {}
        refusal = self.start_with(pending, seed) if pending else ""
        return refusal and f"{_list(pending)}: {refusal}"


def _list(changes: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changes.items())


def _block(document: Any, path: Path) -> dict[str, Any] | None:
    """Where the last key of a path is; None: nowhere."""
    for key in path[:-1]:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None


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
            assert isinstance(plugin, PythonSensor)  # it was there when the scenario was read
            assert plugin.options is not None
            return plugin.options.model_fields[key]
        info = type(block).model_fields[key]
        block = getattr(block, key)
        block = info.default if block is None else block  # a sensor that is switched off has its defaults
    assert info is not None  # no path ends in a mapping
    return info


def _parameter(name: str, value: Any, info: FieldInfo, note: str = "", read_only: bool = False) -> Parameter:
    """A model's field as a ROS 2 parameter, with its bounds and description."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    low, high = _limits(info) if is_number else (None, None)
    if isinstance(value, tuple):
        value = list(value)
    elif is_number and _has_float(info.annotation):
        value = float(value)  # also a whole number: a parameter keeps its type
    return Parameter(name, value, f"{info.description or ''}{note}", read_only, low, high, any_number=is_number)


def _has_float(annotation: Any) -> bool:
    return annotation is float or any(map(_has_float, get_args(annotation)))


def _limits(info: FieldInfo) -> tuple[float | None, float | None]:
    """Smallest and largest value of a field."""
    low: float | None = None
    high: float | None = None
    for item in info.metadata:
        low = next((getattr(item, name) for name in ("ge", "gt") if getattr(item, name, None) is not None), low)
        high = next((getattr(item, name) for name in ("le", "lt") if getattr(item, name, None) is not None), high)
    return low, high


Settings = TypeVar("Settings", bound=Model)


def read_settings(transport: Transport, kind: type[Settings]) -> Settings:
    """The defaults with what --ros-args say; an unknown parameter is warned about, a wrong value refused."""
    given = dict(transport.overrides)
    for name in [name for name in given if name not in kind.model_fields]:
        transport.log("warn", f"there is no parameter {name}{did_you_mean(name, list(kind.model_fields))}")
        del given[name]
    try:
        settings = kind.model_validate(given)
    except ValidationError as error:
        raise UsageError(f"a parameter from --ros-args cannot be taken: {_reasons(error)}") from None
    for message, path in in_degrees(settings):
        transport.log("warn", f"{dotted(path)}: {message}")
    return settings


def changed(settings: Settings, changes: Mapping[str, Value]) -> Settings:
    """The settings with other values, checked as a whole."""
    try:
        return type(settings).model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        raise UsageError(_reasons(error)) from None


def declarations(settings: Model) -> list[Parameter]:
    """Every setting as a ROS 2 parameter with its present value."""
    found = []
    for name, info in type(settings).model_fields.items():
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        found.append(_parameter(name, getattr(settings, name), info, read_only=bool(extra.get("read_only"))))
    return found


def _reasons(error: ValidationError) -> str:
    return "; ".join(map(str, Places().problems(error, {}, lambda path: path)))
