"""The tick, on one page.

Everything a world does happens here, in this order, driven by nothing but the tick number and the inputs taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from microsim.engine.physics import Physics
from microsim.engine.pipeline import Output
from microsim.engine.radio import Radio
from microsim.engine.timekeeper import Clock
from microsim.sensors.odometry import Drift


@dataclass(frozen=True)
class Command:
    robot: str
    values: tuple[float, ...]  # in the order of the model's inputs
    stamp_ns: int | None = None  # in the header of the message that brought it, for recordings; None: it had none


@dataclass(frozen=True)
class Teleport:
    robot: str
    x: float
    y: float
    z: float
    yaw: float
    stamp_ns: int | None = None  # as in Command


@dataclass(frozen=True)
class Transmission:
    sender: str
    payload: bytes


Input: TypeAlias = Command | Teleport | Transmission


@dataclass
class Schedule:
    clock: Clock
    physics: Physics
    radio: Radio | None
    drifts: Sequence[tuple[str, Drift]]  # odometry frames that slide, by robot
    outputs: Mapping[str, Output]  # by name, in the order in which they are sent
    receive: Mapping[str, Callable[[int, bytes], None]]  # robot -> what gets (stamp [ns], payload) of its packets
    tick: int = 0
    pending: list[Input] = field(default_factory=list)  # arrived, not yet taken

    has_skipped: bool = False  # outputs are still due at ticks that were skipped

    def __post_init__(self) -> None:
        self._outputs = tuple(self.outputs.values())

    def step(self) -> None:
        """From tick k to k + 1."""
        if self.has_skipped:
            self._forget_skipped()
        self._move(1)
        self.physics.look()
        self.send()

    def skip(self, ticks: int) -> None:
        """Move on without sensing or sending anything."""
        self._move(ticks)
        self.has_skipped = True

    def _move(self, ticks: int) -> None:
        self.take()
        self.physics.move(self.tick, ticks)
        self.tick += ticks  # the one place where time moves

    def _forget_skipped(self) -> None:
        """What was due on the way is left out; sensors go on at their own ticks."""
        for output in self._outputs:
            output.recall(output.memory(), self.tick)
        self.has_skipped = False

    def take(self) -> None:
        """What arrived before this tick counts from this tick on, in the order of arrival."""
        for item in self.pending:
            if isinstance(item, Command):
                self.physics.command(item.robot, item.values)
            elif isinstance(item, Teleport):
                self.physics.place(item.robot, item.x, item.y, item.z, item.yaw)
            elif self.radio is not None:
                self.radio.send(item.sender, item.payload, self.tick, self.physics.distance)
        self.pending.clear()

    def send(self) -> None:
        """Sense and send what is due at this tick, in the order of the topics: /clock first, radio packets last."""
        tick = self.tick
        stamp_ns = self.clock.time_ns(tick)
        for robot, drift in self.drifts:
            drift.update(self.physics.motions[robot], tick)
        for output in self._outputs:
            if output.due <= tick:
                output.fire(tick, stamp_ns)
        if self.radio is not None:
            for robot, payload in self.radio.deliver(tick):
                self.receive[robot](stamp_ns, payload)

    def memory(self) -> Any:
        return (
            self.tick,
            list(self.pending),
            self.physics.memory(),
            self.radio and self.radio.memory(),
            {name: output.memory() for name, output in self.outputs.items()},
        )

    def recall(self, memory: Any) -> None:
        self.tick, pending, physics, radio, outputs = memory
        self.pending = list(pending)
        self.physics.recall(physics)
        if self.radio is not None and radio is not None:  # it may have been off when remembered
            self.radio.recall(radio)
        for name, output in self.outputs.items():
            output.recall(outputs.get(name), self.tick)
        self.has_skipped = False
