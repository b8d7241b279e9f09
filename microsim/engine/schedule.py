"""A world from tick to tick: what Python does before, between and after compiled ticks (`tick`).

Everything happens in the order of `Schedule.step`, driven by nothing but the tick number and the inputs taken. Ticks
that need no Python run in one compiled call; the others run here, piece by piece, through the same functions.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from microsim.engine.calls import BrokenKernelError, Rows
from microsim.engine.compiled_tick import Tables, invoke_for, sense
from microsim.engine.contact_tables import Contact
from microsim.engine.contacts import SCENERY
from microsim.engine.faults import Health
from microsim.engine.pipeline import Output
from microsim.engine.radio import RadioNetwork
from microsim.engine.tick import begin_tick, run_ticks, track
from microsim.engine.timekeeper import NS_PER_S, Clock
from microsim.engine.worlds import OneWorld

MOST_CONTACTS = 10_000  # that are remembered
CHUNK = 256  # ticks at most that are run in one call


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


def _owner(item: Input) -> str:
    return item.sender if isinstance(item, Transmission) else item.robot


class TranscriptBuffer(Protocol):
    """Where a tick's messages are written, and what ends ticks."""

    buffer: Any  # bytes
    address: int  # of the buffer
    position: int

    def make_room(self, size: int) -> None: ...

    def close_tick(self) -> Any: ...

    def close_ticks(self, places: Rows) -> Any: ...


@dataclass
class Schedule:
    clock: Clock
    worlds: OneWorld
    radio: RadioNetwork | None
    tables: Tables
    python: Mapping[str, tuple[int, Output]]  # outputs that Python makes: by name, with their row in the table
    receive: Mapping[str, Callable[[int, bytes], None]]  # robot -> what gets (stamp [ns], payload) of its packets
    health: Health
    transcript: TranscriptBuffer
    tick: int = 0
    pending: list[Input] = field(default_factory=list)  # arrived, not yet taken
    has_skipped: bool = False  # outputs are still due at ticks that were skipped
    contacts: list[Contact] = field(default_factory=list)  # that began since tick 0

    def __post_init__(self) -> None:
        self._rows = sorted(self.python.values(), key=lambda item: item[0])
        self._outputs = tuple(output for _, output in self._rows)
        self._next_warning_ns: dict[str, int] = {}  # by text
        self._ends: Rows = np.zeros(CHUNK, np.int64)
        self._has_checked = self.worlds.has_checked or self.tables.has_checked

    def step(self, ticks: int, at_once: int = CHUNK) -> Iterator[Any]:
        """From tick k to k + ticks, at most `at_once` in one compiled call; gives transcripts as ticks are closed."""
        end = self.tick + ticks
        if self.has_skipped:
            self._forget_skipped()
        while self.tick < end:
            self.take()  # a packet sent now may arrive before anything else is due
            free = int(min(self._next_python_tick() - 1, end)) if self.clock.is_simple else self.tick
            if self.tick < free:
                yield self._run(min(free, self.tick + at_once))
            else:
                yield self._one_tick()

    def _next_python_tick(self) -> float:
        """The first tick at which an output needs Python, or a radio packet arrives."""
        due = min([output.due for output in self._outputs], default=math.inf)
        return due if self.radio is None else min(due, self.radio.next_arrival())

    def _run(self, end: int) -> Any:
        """Whole ticks without Python."""
        tables, out = self.tables, self.transcript
        while True:
            reached, done, needed = run_ticks(tables.address, self.tick, end, out.buffer, self._ends)
            if done:
                break
            out.make_room(needed)  # the buffer is too small for the first tick
        self.tick = reached
        self._raise_broken()
        if tables.has_delayed:
            tables.check()
        self._report_contacts()
        if tables.has_dropouts:
            self.health.dropped.update_to(tables.dropped())
        return out.close_ticks(self._ends[:done])

    def _one_tick(self) -> Any:
        """From tick k to k + 1."""
        begin_tick(self.tables.address, self.tick)
        self.tick += 1
        self._raise_broken()
        self._report_contacts()
        self.send()
        return self.transcript.close_tick()

    def skip(self, ticks: int) -> None:
        """Move on without sensing or sending anything."""
        self.take()
        self.worlds.move(self.tick, ticks)
        self.tick += ticks
        self._raise_broken()
        self.has_skipped = True
        self._report_contacts()

    def _raise_broken(self) -> None:
        """Raise an error if the kernel of a plug-in raised one: nothing after it may be seen or sent."""
        if not self._has_checked:
            return
        try:
            self.worlds.raise_broken()
            self.tables.raise_broken()
        except BrokenKernelError as error:
            self.tick = self.tick if error.tick is None else error.tick
            raise

    def _report_contacts(self) -> None:
        """Warn of contacts that began; of the same two at most once a second."""
        if not self.worlds.contacts.has_news:
            return
        for each in self.worlds.contacts.take_news():
            if len(self.contacts) < MOST_CONTACTS:
                self.contacts.append(each)
            text = f"{each.robot} touches {f'the {each.thing}' if each.thing in SCENERY else each.thing}"
            time_ns = self.clock.time_ns(each.tick)
            if time_ns >= self._next_warning_ns.get(text, 0):
                self._next_warning_ns[text] = time_ns + NS_PER_S
                self.health.warn(text)

    def _forget_skipped(self) -> None:
        """What was due on the way is left out; sensors continue at their own ticks."""
        for output in self._outputs:
            output.load(output.save(), self.tick)
        self.tables.resume(self.tick)
        self.has_skipped = False

    def take(self) -> None:
        """What arrived before this tick counts from this tick on, in the order of arrival."""
        for item in self.pending:
            if isinstance(item, Command):
                self.worlds.command(item.robot, item.values)
            elif isinstance(item, Teleport):
                self.worlds.place(item.robot, item.x, item.y, item.z, item.yaw)
            elif self.radio is not None:
                self.radio.send(item.sender, item.payload, self.tick, self.worlds.distance)
        self.pending.clear()

    def start(self) -> Any:
        """Tick 0: what is there before the first step."""
        self.worlds.look()
        track(self.tables.address, self.tick)
        self.send()
        return self.transcript.close_tick()

    def send(self) -> None:
        """Sense and send what is due at this tick, in the order of the topics: /clock first, radio packets last."""
        tick, done = self.tick, 0
        stamp_ns = self.clock.time_ns(tick)
        for row, output in self._rows:
            if output.due <= tick:
                if done < row:
                    self._sense(done, row, tick, stamp_ns)
                done = row + 1
                output.fire(tick, stamp_ns)
        self._sense(done, len(self.tables.rows), tick, stamp_ns)
        self._raise_broken()
        if self.radio is not None:
            for robot, payload in self.radio.deliver(tick):
                self.receive[robot](stamp_ns, payload)

    def _sense(self, first: int, end: int, tick: int, stamp_ns: int) -> None:
        tables, out = self.tables, self.transcript
        out.make_room(tables.room_at(tick))
        out.position = sense(tables.address, first, end, tick, stamp_ns, out.address, out.position)
        if tables.has_delayed:
            tables.check()
        if tables.has_dropouts:
            self.health.dropped.update_to(tables.dropped())

    def evaluate(self, name: bytes) -> None:
        """Fill in the readings of an output as they are now, without sending it."""
        tables = self.tables
        self.worlds.look()
        for row, output in enumerate(tables.outputs):
            if output is not None and output.name == name:
                invoke_for(tables.address, row, self.tick)
        self._raise_broken()

    def save(self) -> Any:
        return (
            self.tick,
            list(self.pending),
            self.worlds.save(),
            self.radio and self.radio.save(),
            {name: output.save() for name, (_, output) in self.python.items()},
            list(self.contacts),
        )

    def load(self, saved: Any) -> None:
        """By name: robots and sensors that were not there then stay as they are."""
        self.tick, pending, worlds, radio, outputs, begun = saved
        self.contacts = list(begun)
        self.pending = [item for item in pending if _owner(item) in self.worlds.home]  # others were deleted
        self.worlds.load(worlds)
        self.worlds.look()
        if self.radio is not None and radio is not None:  # it may have been off when it was saved
            self.radio.load(radio)
        for name, (_, output) in self.python.items():
            output.load(outputs.get(name), self.tick)
        self.tables.resume(self.tick)
        self.tables.calls["is_broken"] = self.worlds.table["is_broken"] = 0
        self.tables.set_dropped(self.health.dropped)
        self.has_skipped = False
        self._next_warning_ns.clear()
