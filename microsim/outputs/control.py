"""The controllers of one run: each is called at its ticks with what was sent up to then, and its commands are taken.

A controller is called before the tick that follows, after everything else that has arrived for it: its commands count.
All that decides what it does next is saved with the run: its attributes, and the latest message of each topic.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from microsim.controllers.controller_code import Control
from microsim.controllers.guard import Guard
from microsim.controllers.seen import Draws, ManyDraws, Reading, Seen
from microsim.engine.components import RobotModel
from microsim.engine.noise import stream_key
from microsim.engine.schedule import Command
from microsim.engine.timekeeper import Clock, Trigger
from microsim.errors import PluginError, UsageError, show, unknown
from microsim.messages.outbox import Place, Transcripts, name_in_transcript
from microsim.messages.template import Prepared
from microsim.messages.types import decode
from microsim.scenario.controllers import EVERY_ROBOT, ControllerBlock
from microsim.scenario.models import Scenario
from microsim.sensors.sensor import KernelSensor, SensorContext

_MOST_WAITING = 100  # transcripts that no controller has looked at
_CODES = {8: "d", 4: "f", 1: "B"}  # size of a number in a message -> its code


class ReadingForm:
    """Where the numbers of a sensor's reading are in its encoded message."""

    def __init__(self, sensor: KernelSensor, context: SensorContext) -> None:
        form = next(each for each in sensor.messages if each.prototype is not None)
        assert form.prototype is not None
        self.topic = sensor.topic(form, context.robot, context.sensor)
        ready, names = Prepared(form.type, form.prototype(context)), list(sensor.reading)
        self._places: dict[str, tuple[int, str, int]] = {}
        for path, (first, count) in sensor.places(form, context).items():
            name = names[first // count] if count else names[0]
            if name not in self._places:  # others repeat it
                offset, size = ready.place(path, count)
                self._places[name] = offset, f"<{count}{_CODES[size]}", 0 if sensor.size is None else count

    def reading(self, cdr: bytes, is_batch: bool) -> Reading:
        found: dict[str, Any] = {}
        for name, (offset, code, count) in self._places.items():
            values = struct.unpack_from(code, cdr, offset)
            if is_batch or count:
                array = np.array(values, np.float64)
                array = array.reshape(1, -1) if is_batch and count else array
                array.flags.writeable = False
                found[name] = array
            else:
                found[name] = float(values[0])
        return Reading(found)


class Sight:
    """The latest message of each topic. It is found out when a controller looks."""

    def __init__(self, scenario: Scenario, contexts: Mapping[str, SensorContext], topics: Mapping[str, Any]) -> None:
        self._topics, self._contexts = topics, contexts
        self._kinds = {f"{robot}/{name}": kind for robot, name, _, kind in scenario.all_sensors}
        self._forms: dict[str, ReadingForm | str] = {}  # by robot/sensor; the topic of one that has no numbers
        self._latest: dict[bytes, Place] = {}  # by topic and type
        self._waiting: list[Transcripts] = []  # not yet in it

    def hear(self, transcripts: Transcripts) -> None:
        self._waiting.append(transcripts)
        if len(self._waiting) > _MOST_WAITING:
            self.catch_up()

    def catch_up(self) -> None:
        """Take in what was sent since the last look."""
        for some in self._waiting:
            some.note_latest(self._latest)
        self._waiting.clear()

    def save(self) -> dict[bytes, bytes]:
        self.catch_up()
        return {name: data[start:stop] for name, (data, start, stop) in self._latest.items()}

    def load(self, saved: Mapping[bytes, bytes]) -> None:
        self._waiting.clear()
        self._latest = {name: (cdr, 0, len(cdr)) for name, cdr in saved.items()}

    def _cdr(self, topic: str) -> bytes | None:
        """The latest message of a topic, encoded; None: there was none."""
        data, start, stop = self._latest.get(name_in_transcript(topic, self._topics[topic][0]), (b"", 0, 0))
        return data[start:stop] or None

    def look(self, robot: str, is_batch: bool, name: str) -> Any:
        """What `seen[name]` gives to the controller of a robot."""
        if name.startswith("/"):
            return self._message(name)
        for full in (f"{robot}/{name}", name):
            if full in self._kinds:
                return self._reading(full, is_batch)
        own = (each for each in self._kinds if robot == EVERY_ROBOT or each.startswith(f"{robot}/"))
        mine = [each.removeprefix(f"{robot}/") for each in own]
        raise UsageError(unknown("there is no sensor", repr(name), str(name), mine))

    def _message(self, topic: str) -> Any:
        """Decoded at every look: what a controller does to it changes no other's."""
        if topic not in self._topics:
            raise UsageError(unknown("there is no topic", repr(topic), topic, sorted(self._topics)))
        cdr = self._cdr(topic)
        return None if cdr is None else decode(self._topics[topic][0], cdr)

    def _reading(self, name: str, is_batch: bool) -> Any:
        form = self._forms.get(name)
        if form is None:
            sensor, context = self._kinds[name], self._contexts[name]
            if isinstance(sensor, KernelSensor) and sensor.reading:
                form = ReadingForm(sensor, context)
            else:
                form = sensor.topic(sensor.messages[0], context.robot, context.sensor)
            self._forms[name] = form
        if isinstance(form, str):
            return self._message(form)
        cdr = self._cdr(form.topic)
        return None if cdr is None else form.reading(cdr, is_batch)


@dataclass
class RunningController:
    """The controller of a robot, or of all."""

    robot: str
    block: ControllerBlock
    guard: Guard
    instance: Any  # None: a function, which has no state
    control: Control
    trigger: Trigger
    key: int
    due: int = 0  # the tick whose messages it is called with next

    @property
    def is_batch(self) -> bool:
        return self.guard.code.is_batch

    def save(self) -> Any:
        try:
            return self.due, None if self.instance is None else copy.deepcopy(vars(self.instance))
        except Exception as error:  # its attributes can be anything
            text = f"its attributes cannot be copied, as a snapshot needs: {type(error).__name__}: {error}"
            raise self.guard.error(text) from error

    def load(self, saved: Any) -> None:
        self.due, state = saved
        if self.instance is not None and state is not None:
            vars(self.instance).clear()
            vars(self.instance).update(copy.deepcopy(state))


class Controllers:
    """Of one run. `accept` takes a command."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        clock: Clock,
        contexts: Mapping[str, SensorContext],
        topics: Mapping[str, Any],
        accept: Callable[[Command], Any],
    ) -> None:
        self._models: dict[str, RobotModel] = {name: each.engine_model for name, each in scenario.robots.items()}
        self._clock, self._accept = clock, accept
        self.all = tuple(
            self._made(robot, block, seed, scenario.physics_hz) for robot, block in scenario.controllers.items()
        )
        self._sight = Sight(scenario, contexts, topics) if self.all else None

    def _made(self, robot: str, block: ControllerBlock, seed: int, physics_hz: float) -> RunningController:
        code = block.code
        guard = Guard(code, "controller" if robot == EVERY_ROBOT else f"controller of {robot}")
        instance = guard.call(code.declared, when="the start", **block.options) if code.has_state else None
        control: Any = partial(code.declared, **block.options) if instance is None else instance.control
        assert block.hz is not None  # the scenario was checked
        trigger, key = Trigger(block.hz, physics_hz), stream_key(seed, f"controllers/{robot}")
        return RunningController(robot, block, guard, instance, control, trigger, key)

    def __bool__(self) -> bool:
        return bool(self.all)

    def hear(self, transcripts: Transcripts) -> None:
        if self._sight is not None:
            self._sight.hear(transcripts)

    def parts(self, tick_of: Callable[[], int], ticks: int) -> Iterator[int]:
        """Ticks up to each at which a controller is called; it is called before they are run."""
        if self._sight is None or not ticks:
            yield ticks
            return
        end = tick_of() + ticks
        while tick_of() < end:
            tick = tick_of()
            for each in self.all:
                if each.due <= tick:
                    self._call(each, tick)
                    each.due = each.trigger.next_tick(tick + 1)
            yield min(end, *(each.due for each in self.all)) - tick

    def _call(self, each: RunningController, tick: int) -> None:
        assert self._sight is not None
        self._sight.catch_up()
        is_batch, seconds = each.is_batch, self._clock.time_ns(tick) / 1e9
        ticks = np.full(1, tick, np.int64)
        seen = Seen(
            partial(self._sight.look, each.robot, is_batch),
            tick=ticks if is_batch else tick,
            time=np.full(1, seconds) if is_batch else seconds,
            dt=1.0 / float(each.block.hz or 1.0),
            n=1,
            robot=each.robot,
            random=ManyDraws(np.full(1, each.key, np.int64), ticks) if is_batch else Draws(each.key, tick),
        )
        when = f"{seconds:.3f} s"
        for command in commands_of(each.guard.call(each.control, seen, when=when), each, self._models, when):
            self._accept(command)

    def save(self) -> Any:
        if self._sight is None:
            return None
        return {each.robot: each.save() for each in self.all}, self._sight.save()

    def load(self, saved: Any) -> None:
        """By the robot that each commands; one that was not there then stays as it is."""
        if self._sight is None or saved is None:
            return
        controllers, latest = saved
        self._sight.load(latest)
        for each in self.all:
            if each.robot in controllers:
                each.load(controllers[each.robot])


# ---- what it answers -------------------------------------------------------------------------------------------------


def commands_of(answer: Any, each: RunningController, models: Mapping[str, RobotModel], when: str) -> Iterator[Command]:
    """The commands in what a controller returned; PluginError says what is wrong with it."""
    if answer is None:
        return
    try:
        for robot, values in _by_robot(answer, each.robot, models):
            yield Command(robot, _numbers(robot, values, models[robot].inputs, each.is_batch))
    except PluginError:
        raise
    except UsageError as error:
        raise each.guard.error(f"returned {show(answer)}: {error}", when) from None


def _by_robot(answer: Any, robot: str, models: Mapping[str, RobotModel]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(answer, Mapping):
        raise UsageError("expected a mapping from inputs to numbers, or None for no new command")
    if robot != EVERY_ROBOT:
        yield robot, answer
        return
    for name, values in answer.items():
        if name not in models:
            raise UsageError(f"{unknown('no robot', repr(name), str(name), models)}; expected commands by robot")
        if values is not None:
            if not isinstance(values, Mapping):
                raise UsageError(f"{name}: expected a mapping from inputs to numbers, found {show(values)}")
            yield name, values


def _numbers(robot: str, values: Mapping[str, Any], inputs: tuple[str, ...], is_batch: bool) -> tuple[float, ...]:
    for name in values:
        if name not in inputs:
            raise UsageError(unknown(f"{robot} has no command", repr(name), str(name), inputs))
    return tuple([_number(name, values.get(name, 0.0), is_batch) for name in inputs])


def _number(name: str, value: Any, is_batch: bool) -> float:
    shape = value.shape if isinstance(value, np.ndarray) else ()
    expected = "one number for each world" if is_batch else "a number"
    if shape not in ((), (1,) if is_batch else ()):
        raise UsageError(f"{name}: expected {expected}, found an array of shape {shape}")
    number = value.item() if isinstance(value, (np.ndarray, np.generic)) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise UsageError(f"{name}: expected {expected}, found {show(number)}")
    if not math.isfinite(number):
        raise UsageError(f"{name}: expected a finite number, found {number}")
    return float(number)
