"""Sensors of the simple form: objects with `update(dt)` and `publish()`, and how the engine drives them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, field_validator, model_serializer
from pydantic_core import InitErrorDetails

from microsim.documents.values import detail, fail, under, unknown
from microsim.engine.timekeeper import Trigger
from microsim.errors import PluginError
from microsim.plugin_errors import plugin_error
from microsim.sensors.sensor import MountedSensor, PythonSensor, Sensor, SensorContext


class PluginSensor(MountedSensor):
    """A sensor from a plug-in: `{type: NAME, hz, mount, ...options of the plug-in}`."""

    type: str = Field(description="Name of the plug-in sensor.")
    options: dict[str, Any] = Field({}, description="The plug-in's own keys, checked by the plug-in's model.")

    @field_validator("options")
    @classmethod
    def _own_copy(cls, value: dict[str, Any]) -> dict[str, Any]:
        return dict(value)

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        whole: dict[str, Any] = handler(self)
        options: Mapping[str, Any] = whole.pop("options")
        return {**whole, **options}


def check_options(options: Any, own: Mapping[str, Any], common: Iterable[str]) -> tuple[Any, list[InitErrorDetails]]:
    """A plug-in's own keys, checked by its model (None: it has none). `common`: keys beside them, for messages."""
    fields = options.model_fields if options is not None else {}
    known = [*fields, *(field.alias for field in fields.values() if field.alias)]
    shown = [*(field.alias or name for name, field in fields.items()), *common]
    strange = [detail(unknown("key", key, shown), key, at_key=True) for key in own if key not in known]
    if options is None:
        return {}, strange
    try:
        checked = options.model_validate({key: own[key] for key in own if key in known})
    except ValidationError as error:
        return {}, [*strange, *under(error)]
    return checked, strange


def plugin_block(sensor: PythonSensor, block: Mapping[str, Any]) -> PluginSensor:
    """A plug-in sensor's block of a scenario, checked."""
    common = [key for key in PluginSensor.key_names() if key != "options"]
    own = {key: value for key, value in block.items() if key not in common}
    checked, problems = check_options(sensor.options, own, common)
    options = checked.model_dump(mode="json", by_alias=True) if checked else {}
    try:
        made = PluginSensor.model_validate({key: block[key] for key in block if key in common} | {"options": options})
    except ValidationError as error:
        fail([*under(error), *problems])
    if problems:
        fail(problems)
    return made


@dataclass(frozen=True)
class PluginState:
    """What a plug-in sensor's own `save()` gave, from a snapshot's file."""

    values: Any


@dataclass
class PluginOutput:
    """Calls a plug-in's `update(dt)` every tick and sends what `publish()` gives when it is due."""

    context: SensorContext
    kind: Sensor
    sensor: Any
    trigger: Trigger
    dt: float
    send: Callable[[int, Any], None]
    is_silent: Callable[[int], bool]  # whether a dropout keeps its messages back at a tick
    due: float = 0
    next_message: int = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        self.context.now[0] = tick
        with as_plugin_error(self.context, self.kind):
            if tick > 0:
                self.sensor.update(self.dt)
            if tick >= self.next_message:
                fields = self.sensor.publish()
                if fields is not None and not self.is_silent(tick):
                    self.send(stamp_ns, fields)
        if tick >= self.next_message:
            self.next_message = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def save(self) -> Any:
        return self.context, self._copy(self.sensor, self.context)

    def load(self, saved: Any, tick: int) -> None:
        if isinstance(saved, PluginState):
            with as_plugin_error(self.context, self.kind):
                self.sensor.load(saved.values)
        elif saved is not None:
            theirs, sensor = saved
            self.sensor = self._copy(sensor, theirs)
        self.context.now[0] = tick
        self.next_message = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def _copy(self, sensor: Any, theirs: SensorContext) -> Any:
        """A copy of the sensor that sees our world and robots, though it may have been made in another Simulation."""
        ours = self.context
        assert ours.worlds is not None
        assert theirs.worlds is not None
        shared = {
            id(theirs): ours,
            id(theirs.world): ours.world,
            id(theirs.worlds): ours.worlds,
            id(theirs.worlds.motions): ours.worlds.motions,
        }
        with as_plugin_error(ours, self.kind):
            return copy.deepcopy(sensor, shared)


@contextmanager
def as_plugin_error(context: SensorContext, kind: Sensor) -> Iterator[None]:
    """Whatever a third party's code raises is reported as that sensor's fault."""
    try:
        yield
    except PluginError:
        raise
    except Exception as error:  # a plug-in's code can raise anything
        who = f"sensor {context.robot}/{context.sensor} failed at tick {context.tick}"
        raise plugin_error(error, who, kind) from error
