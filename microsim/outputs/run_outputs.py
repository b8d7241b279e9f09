"""What the outputs of one run share, and the outputs themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from microsim.engine.bodies import Body, body_row
from microsim.engine.compiled_tick import CompiledOutput, Slot, Tables
from microsim.engine.components import FixedMount
from microsim.engine.faults import Health
from microsim.engine.geometry import Array
from microsim.engine.noise import stream_key
from microsim.engine.pipeline import Output
from microsim.engine.records import address_of
from microsim.engine.sensor_calls import Call
from microsim.engine.timekeeper import Clock, Trigger
from microsim.engine.world import World
from microsim.engine.worlds import OneWorld
from microsim.messages import Prepared
from microsim.messages.outbox import Outbox, Send, name_in_transcript
from microsim.messages.topics import Qos, Topic
from microsim.outputs.sensors_in_worlds import Sensing
from microsim.robots.robot import Robot
from microsim.scenario.models import Scenario
from microsim.sensors.sensor import SensorContext


@dataclass
class Once:
    """Sent at tick 0, after every reset, and again when it has changed."""

    cdr: bytes
    send: Send
    due: float = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        self.send(stamp_ns, self.cdr)
        self.due = math.inf

    def save(self) -> tuple[bytes, float]:
        return self.cdr, self.due

    def load(self, saved: tuple[bytes, float] | None, tick: int) -> None:
        cdr, due = saved or (b"", math.inf)
        self.due = due if cdr == self.cdr else tick + 1


@dataclass
class Run:
    """What the outputs of one run share, and the outputs themselves."""

    scenario: Scenario
    seed: int
    world: World
    clock: Clock
    worlds: OneWorld
    outbox: Outbox
    shared: dict[Any, Any]  # renderers and the like, kept from reset to reset
    health: Health = field(default_factory=Health)
    affected: Mapping[str, int] = field(default_factory=dict)  # messages with faults so far, by topic
    mounts: list[tuple[str, str, FixedMount]] = field(default_factory=list)  # static frames
    rates: dict[str, float] = field(default_factory=dict)  # [Hz] by topic, for /sim/info
    sensing: dict[str, Sensing] = field(default_factory=dict)  # by robot/sensor, of those with a kernel
    owners: dict[tuple[str, str], Sensing] = field(default_factory=dict)  # see `Sensing`
    trackers: list[Call] = field(default_factory=list)
    contexts: dict[str, SensorContext] = field(default_factory=dict)  # by robot/sensor
    frames: list[tuple[str, str, Call | None]] = field(default_factory=list)  # parent, child, what fills in the pose
    poses: dict[str, Sensing] = field(default_factory=dict)  # robot -> what decides its frames
    _outputs: list[tuple[int, str, CompiledOutput | Output]] = field(default_factory=list)

    def key(self, stream: str) -> int:
        return stream_key(self.seed, stream)

    def trigger(self, hz: float) -> Trigger:
        return Trigger(hz, self.scenario.physics_hz)

    def odom_frame(self, robot: str) -> str:
        return f"{robot}/odom" if self.scenario.frames.per_robot_odom else "odom"

    def add(self, position: int, name: str, output: CompiledOutput | Output) -> None:
        self._outputs.append((position, name, output))

    def sender(self, topic: str, type_name: str, qos: Qos) -> Send:
        return self.outbox.sender(topic, type_name, qos)

    def compiled(
        self, topic: Topic, hz: float, message: Any, calls: Iterable[Call] = (), slots: Iterable[Slot] = ()
    ) -> None:
        """One of the simulator's own topics."""
        self.outbox.topics[topic.name] = (topic.type, topic.qos)
        self.rates[topic.name] = hz
        ready = message if isinstance(message, Prepared) else Prepared(topic.type, message)
        stamps = [Slot(offset) for offset in ready.stamps()]
        name = name_in_transcript(topic.name, topic.type)
        output = CompiledOutput(name, self.trigger(hz), ready.bytes, [*stamps, *slots], list(calls))
        self.add(topic.position, topic.name, output)

    def once(self, topic: Topic, cdr: bytes) -> None:
        self.add(topic.position, topic.name, Once(cdr, self.sender(topic.name, topic.type, topic.qos)))

    def ordered(self) -> list[tuple[str, CompiledOutput | Output]]:
        """Every output, in the order of sending; those of one position as they were added."""
        return [(name, output) for _, name, output in sorted(self._outputs, key=lambda item: item[0])]

    def seen(self, robot: str) -> int:
        """Address of the robot's motion."""
        return address_of(self.worlds.motions.seen[robot])

    def others(self, robot: str) -> dict[str, Body]:
        """What a robot can see of the others."""
        robots = self.scenario.robots
        return {name: Body(*settings.body()) for name, settings in robots.items() if name != robot}

    def finish(self) -> tuple[Tables, dict[str, tuple[int, Output]]]:
        """The tables, and the outputs that Python makes with their rows."""
        for name, sensing in self.sensing.items():
            self.worlds.arrays |= {f"{name}:{what}": array for what, array in sensing.arrays().items()}
        ordered = self.ordered()
        compiled = [output if isinstance(output, CompiledOutput) else None for _, output in ordered]
        python = {
            name: (row, output) for row, (name, output) in enumerate(ordered) if not isinstance(output, CompiledOutput)
        }
        return Tables(compiled, self.trackers, self.worlds.address, self.worlds.scene, self.clock), python


def parts_of_others(robots: Mapping[str, Robot], robot: str, motions: Mapping[str, Any]) -> Array:
    """(n, 20) where the parts of the other robots' models are now, see `render.robot_models`."""
    from microsim.render.robot_models import PART_NUMBERS, part_table, put_parts  # for splat cameras alone

    others = enumerate((name, each) for name, each in robots.items() if name != robot)
    shown = [(k, name, part_table(each.parts())) for k, (name, each) in others if each.own_splats is None]
    rows, begin = np.empty((sum(len(table) for *_, table in shown), PART_NUMBERS)), 0
    for k, name, table in shown:
        put_parts(np.array(motions[name]), table, float(k), rows[begin : begin + len(table)])
        begin += len(table)
    return rows


def bodies_of(robots: Mapping[str, Body], motions: Mapping[str, Any]) -> Array:
    """(n, 15) where the robots' boxes are now, as `body_row` writes them."""
    return np.array([body_row(motions[name], body) for name, body in robots.items()]).reshape(-1, 15)
