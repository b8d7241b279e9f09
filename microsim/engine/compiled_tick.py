"""What a run sends, as tables of records, and how they are worked through in a tick, without Python (`tick`).

An output is a row: when it is due, which calls fill its reading, and the message into which the reading is written.
The rows are in the order of sending. Python rows (a LiDAR, a plug-in without a kernel) have no calls: the loop stops
before a tick at which one is due, and `schedule` runs that tick piece by piece.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine import calls as _calls
from microsim.engine import delay_line as _delay_line
from microsim.engine import delayed_readings as _delayed_readings
from microsim.engine import multiples as _multiples
from microsim.engine import records as _records
from microsim.engine import sensor_calls as _sensor_calls
from microsim.engine.calls import CALL, Rows, has_checked, raise_broken
from microsim.engine.compiled import kernel
from microsim.engine.delay_line import next_leaving, pop_due
from microsim.engine.delayed_readings import DELAYED, DelayedReadings
from microsim.engine.geometry import Array, Grid
from microsim.engine.records import (
    ADDRESS,
    RANGE,
    RATIO,
    SPAN,
    Record,
    Records,
    address_of,
    record,
    record_at,
    records_in,
    rows_of,
    span_of,
)
from microsim.engine.sensor_calls import NO_WINDOWS, Call, Windows
from microsim.engine.timekeeper import Clock, Trigger

_copy, _call, _room, _table_address = _calls.copy, _calls.call, _calls.room, _calls.table_address
_floats_at, _singles_at, _words_at, _integers_at, _bytes_at = (
    _calls.floats_at, _calls.singles_at, _calls.words_at, _calls.integers_at, _calls.bytes_at,
)  # fmt: skip
_address_of_record, _floats_in = _records.address_of_record, _records.floats_in
_invoke, _is_within = _sensor_calls.invoke, _sensor_calls.is_within
_delay_at, _pop_due, _keep_motion = _delay_line.delay_at, _delay_line.pop_due, _delayed_readings.keep_motion
_line_at, _queues_at, _entries_at = _delay_line.line_at, _delay_line.queues_at, _delay_line.entries_at
_multiple, _next_firing = _multiples.multiple, _multiples.first_from

NEVER = 2**62  # a tick that does not come
DIGEST_BYTES = 32  # before each tick's messages there is room for the digest of the tick before
NS_PER_S = 1_000_000_000

OUTPUT = record(
    due=int,  # [tick]
    period=RATIO,  # [ticks]
    calls=RANGE,  # that fill its reading
    message=SPAN,  # encoded; 0: Python makes it. Bytes of a delayed reading are not in it
    message_bytes=int,  # of the message with its reading
    slots=RANGE,  # which bring the reading into the message
    name=SPAN,  # as in transcripts
    dropouts=SPAN,  # windows of time
    dropped=int,
    sent=int,
    head_bytes=int,  # of `message`, before a delayed reading
    tail_bytes=int,  # after it
    delayed=ADDRESS,  # a DELAYED; 0: it is sent at once
)
SLOT = record(
    numbers=SPAN,  # of a reading
    target=ADDRESS,  # in the message
    number_bytes=int,  # of a number there; 0: it is the stamp
)
TICK = record(  # what a tick works on
    robots=ADDRESS,  # `tick.ROBOTS`
    outputs=SPAN,  # in the order of sending
    calls=SPAN,
    slots=SPAN,
    trackers=SPAN,  # calls of every tick
    length=RATIO,  # of a tick [ns]
    room=int,  # [bytes] that a tick has at most, without delayed readings
    delayed=int,  # how many outputs have these
)

outputs_in, calls_in, slots_in = (records_in(each) for each in (OUTPUT, CALL, SLOT))
_outputs_in, _calls_in, _slots_in = outputs_in, calls_in, slots_in
tick_at, _delayed_at = record_at(TICK), record_at(DELAYED)
_tick_at, _MOTION_BYTES = tick_at, _delayed_readings.MOTION_BYTES


@kernel
def fill(slot: Record, stamp_ns: int) -> None:
    """Put numbers of a reading, or the stamp, into the message."""
    if slot.number_bytes == 0:
        stamp = _words_at(slot.target, 2)
        stamp[0], stamp[1] = stamp_ns // NS_PER_S, stamp_ns % NS_PER_S
    elif slot.number_bytes == 8:
        _copy(slot.target, slot.numbers.address, 8 * slot.numbers.count)
    elif slot.number_bytes == 1:
        octets, numbers = _bytes_at(slot.target, slot.numbers.count), _floats_in(slot.numbers)
        for i in range(slot.numbers.count):
            octets[i] = np.uint8(numbers[i])
    else:
        singles, numbers = _singles_at(slot.target, slot.numbers.count), _floats_in(slot.numbers)
        for i in range(slot.numbers.count):
            singles[i] = numbers[i]


@kernel
def write(output: Record, slots: Records, stamp_ns: int, buffer: int, position: int) -> int:
    """Put an output's reading into its message and append that to the transcript; gives where the next one goes."""
    for k in range(output.slots.first, output.slots.end):
        fill(slots[k], stamp_ns)
    place = buffer + position
    _copy(place, output.name.address, output.name.count)
    head = _room(2)  # an array on the heap would take as long as all else here
    numbers = _integers_at(_table_address(head), 2)
    numbers[0], numbers[1] = stamp_ns, output.message_bytes
    _copy(place + output.name.count, _table_address(head), 12)
    _copy(place + output.name.count + 12, output.message.address, output.head_bytes)
    end = position + output.name.count + 12 + output.message_bytes
    if output.tail_bytes != 0:  # after a delayed reading
        _copy(buffer + end - output.tail_bytes, output.message.address + output.head_bytes, output.tail_bytes)
    return end


@kernel
def leave(now: Record, call: Record, r: int, own: Record, place: int, buffer: int, position: int) -> int:
    """Write a reading that leaves its line, and its companions' messages; the reading is made where it is written."""
    outputs, slots, line = _outputs_in(now.outputs), _slots_in(now.slots), _line_at(own.line)
    tick = _entries_at(line.entries, line.capacity)[place].sampled_at
    stamp_ns = _multiple(now.length.whole, now.length.rest, now.length.parts, tick)
    for k in range(r, r + 1 + own.companions):
        position = write(outputs[k], slots, stamp_ns, buffer, position)
        if k == r:
            call.motion.address, call.tick = own.motions + _MOTION_BYTES * place, tick
            call.reading.address = buffer + position - outputs[r].tail_bytes - call.reading.count
            _call(call.function, _address_of_record(call))
    return position


@kernel
def sense_delayed(now: Record, call: Record, r: int, tick: int, buffer: int, position: int) -> int:
    """An output whose readings leave later: what it keeps at this tick, and what leaves."""
    output = _outputs_in(now.outputs)[r]
    own = _delayed_at(output.delayed)
    if own.next_sample <= tick:
        own.next_sample = _next_firing(output.period.whole, output.period.rest, output.period.parts, tick + 1)
        delay = _delay_at(own.line, 0, tick)
        if delay >= 0 and _is_within(output.dropouts, tick):
            output.dropped += 1
        elif delay >= 0:
            _keep_motion(own, call.seen, tick, delay)
    place = _pop_due(own.line, 0, tick)
    while place >= 0:
        position = leave(now, call, r, own, place, buffer, position)
        output.sent += 1 + own.companions
        place = _pop_due(own.line, 0, tick)
    output.due, line = own.next_sample, _line_at(own.line)
    queue = _queues_at(line.queues, 1)[0]
    if queue.count > 0:
        output.due = min(own.next_sample, _entries_at(line.entries, line.capacity)[queue.first].leaves)
    return position


@kernel
def delayed_room(outputs: Records, tick: int) -> int:
    """Bytes that delayed readings can have at a tick: all that is under way, and what is sampled then."""
    room = 0
    for r in range(outputs.shape[0]):
        if outputs[r].delayed != 0 and outputs[r].due <= tick:
            own = _delayed_at(outputs[r].delayed)
            room += (_queues_at(_line_at(own.line).queues, 1)[0].count + 1) * own.bytes
    return room


@kernel
def sense(tables: int, first: int, end: int, tick: int, stamp_ns: int, buffer: int, position: int) -> int:
    """Those of the outputs first … end that are due at a tick, written at `position`; gives where the next one goes."""
    now = _tick_at(tables)
    outputs, calls, slots = _outputs_in(now.outputs), _calls_in(now.calls), _slots_in(now.slots)
    for r in range(first, end):
        output = outputs[r]
        if output.due > tick or output.message.address == 0:
            continue
        if output.delayed != 0:
            position = sense_delayed(now, calls[output.calls.first], r, tick, buffer, position)
            continue
        whole, rest, parts = output.period.whole, output.period.rest, output.period.parts
        is_whole = rest == 0 and output.due == tick  # as `timekeeper.Trigger.after`: no division
        output.due = tick + whole if is_whole else _next_firing(whole, rest, parts, tick + 1)
        if _is_within(output.dropouts, tick):
            output.dropped += 1
            continue
        for c in range(output.calls.first, output.calls.end):
            _invoke(calls[c], tick)
        position = write(output, slots, stamp_ns, buffer, position)
        output.sent += 1
    return position


@kernel
def invoke_for(tables: int, output: int, tick: int) -> None:
    """Fill in an output's reading as it is now."""
    now = _tick_at(tables)
    calls, made_by = _calls_in(now.calls), _outputs_in(now.outputs)[output].calls
    for c in range(made_by.first, made_by.end):
        _invoke(calls[c], tick)


# ---- making the tables -----------------------------------------------------------------------------------------------

LAST_TICK = 2**31 * 10_000  # no run goes beyond it

_NOTHING: Array = np.zeros(1)


@dataclass
class Slot:
    """Numbers of a reading in a message; without a source, the stamp."""

    offset: int  # [byte] in the message
    size: int = 0  # [byte] of a number: 8 or 4 with a fraction, 1 without
    source: Array = field(default_factory=lambda: _NOTHING)
    first: int = 0
    count: int = 0

    def write(self, row: Record, message: int) -> None:
        row.numbers = address_of(self.source) + 8 * self.first, self.count
        row.target, row.number_bytes = message + self.offset, self.size


@dataclass
class CompiledOutput:
    """An output that needs no Python: calls fill a reading, slots bring it into an encoded message.

    A delayed reading is bytes, which are made in the transcript, within what its message has besides.
    """

    name: bytes  # as in transcripts
    trigger: Trigger | None  # None: sent with the delayed reading before it
    message: Grid  # encoded; its numbers are aligned in memory
    slots: Sequence[Slot]
    calls: Sequence[Call] = ()
    dropouts: Windows = NO_WINDOWS
    target: str = ""  # robot/sensor, for the counts of dropouts
    delayed: DelayedReadings | None = None
    delayed_bytes: int = 0  # of a delayed reading
    tail_bytes: int = 0  # of `message`, how many come after that reading

    @property
    def message_bytes(self) -> int:
        return self.message.size + self.delayed_bytes

    @property
    def bytes(self) -> int:
        return len(self.name) + 12 + self.message_bytes


def _sets(outputs: Sequence[CompiledOutput], transcript: bytes) -> Iterator[tuple[bytes, ...]]:
    """The messages of outputs that are sent together, one set after the other."""
    end, ready = 0, []
    while end < len(transcript):
        for each in outputs:
            end += each.bytes
            ready.append(transcript[end - each.message_bytes : end])
        yield tuple(ready)
        ready.clear()


class Tables:
    """The tables of a run, and everything their addresses point to."""

    def __init__(
        self,
        outputs: Sequence[CompiledOutput | None],
        trackers: Sequence[Call],
        robots: int,
        scene: Rows,
        clock: Clock,
    ) -> None:
        """None stands for an output that Python makes. `robots`: address of their `tick.ROBOTS`."""
        self.outputs, self._scene = outputs, scene
        self._calls: list[Call] = []
        self._slots: list[tuple[Slot, int]] = []  # with the address of the message
        self._names = [np.frombuffer(each.name, np.uint8) if each else np.zeros(1, np.uint8) for each in outputs]
        self.rows: Records = np.zeros(len(outputs), OUTPUT)
        for row, each, name in zip(self.rows, outputs, self._names, strict=True):
            self._write(row, each, name)
        self._due: Rows = self.rows["due"]
        self._timed = [(k, each.trigger) for k, each in enumerate(outputs) if each and each.trigger]
        self._trackers: Rows = np.array([self._add_call(each) for each in trackers], np.int64)
        rows = [call.row(address_of(scene)) for call in self._calls]
        self.calls, self._slot_rows = np.concatenate([np.zeros(0, CALL), *rows]), np.zeros(len(self._slots), SLOT)
        for row, (slot, message) in zip(self._slot_rows, self._slots, strict=True):
            slot.write(row, message)
        self.has_checked = has_checked(self.calls["function"])
        self._delayed = [(k, each.delayed) for k, each in enumerate(outputs) if each and each.delayed]
        self.has_delayed = bool(self._delayed)
        for k, delayed in self._delayed:
            delayed.rows["bytes"] = sum(each.bytes for each in self._sent_together(k))
        at_once = [each for each in outputs if each and not each.delayed and each.trigger]
        self._room = DIGEST_BYTES + sum(each.bytes for each in at_once)
        self.has_dropouts = any(each is not None and each.dropouts.size for each in outputs)
        self._tick = rows_of(
            TICK, robots=robots, outputs=span_of(self.rows), calls=span_of(self.calls),
            slots=span_of(self._slot_rows), trackers=span_of(self._trackers),
            length=clock.step_ns, room=self._room, delayed=len(self._delayed),
        )  # fmt: skip
        self.address = address_of(self._tick)

    def _write(self, row: Record, output: CompiledOutput | None, name: npt.NDArray[np.uint8]) -> None:
        if output is None:
            row.due = NEVER
            return
        row.due = NEVER if output.trigger is None else 0  # without a trigger it is sent with the one before it
        row.period = (1, 0, 1) if output.trigger is None else output.trigger.step
        first_call, first_slot = len(self._calls), len(self._slots)
        for each in output.calls:
            self._add_call(each)
        row.calls = first_call, len(self._calls)
        row.dropouts = output.dropouts.span
        row.message, row.message_bytes = span_of(output.message), output.message_bytes
        self._slots += [(slot, address_of(output.message)) for slot in output.slots]
        row.slots = first_slot, len(self._slots)
        row.name = address_of(name), len(output.name)
        row.head_bytes, row.tail_bytes = output.message.size - output.tail_bytes, output.tail_bytes
        row.delayed = 0 if output.delayed is None else address_of(output.delayed.rows)

    def _add_call(self, call: Call) -> int:
        self._calls.append(call)
        return len(self._calls) - 1

    def _sent_together(self, k: int) -> list[CompiledOutput]:
        """An output with delayed readings, and those that are sent with it."""
        own = self.outputs[k]
        count = 1 + int(own.delayed.rows["companions"][0]) if own and own.delayed else 1
        return [each for each in self.outputs[k : k + count] if each is not None]

    def resume(self, tick: int) -> None:
        """Every output is due at its first tick after this one, or when what is under way leaves."""
        due = self._due
        for k, trigger in self._timed:
            due[k] = trigger.next_tick(tick + 1)
        for k, delayed in self._delayed:
            delayed.rows["next_sample"] = due[k]
            leaves = next_leaving(delayed.line.address, 0)
            due[k] = due[k] if leaves < 0 else min(due[k], leaves)

    def room_at(self, tick: int) -> int:
        """The most bytes that this tick can have."""
        if not self.has_delayed:
            return self._room
        due = [delayed for k, delayed in self._delayed if self.rows[k].due <= tick]
        return self._room + sum(int(each.rows[0].bytes) * (each.line.count() + 1) for each in due)

    def make_delayed(self) -> None:
        """Make the readings that are under way: from then on they do not depend on these tables."""
        for k, delayed in self._delayed:
            line, row, own = delayed.line, self.rows[k], delayed.rows[0]
            queues = line.queues.copy()
            for _ in delayed.samples:  # made already
                pop_due(line.address, 0, LAST_TICK)
            count = line.count()
            sent, next_sample, due = int(row.sent), int(own.next_sample), int(row.due)
            room: Grid = np.empty(count * int(own.bytes), np.uint8)
            own.next_sample, row.due = NEVER, 0
            sense(self.address, k, k + 1, LAST_TICK, 0, address_of(room), 0)
            self.check()
            row.sent, own.next_sample, row.due = sent, next_sample, due
            line.queues[:] = queues
            delayed.hold([*delayed.samples, *_sets(self._sent_together(k), room.tobytes())])

    def raise_broken(self) -> None:
        """Raise an error if the kernel of a plug-in raised one."""
        if self.has_checked:  # else there is nothing to look for
            raise_broken(self.calls, lambda call: self._calls[call].owner)

    def check(self) -> None:
        """Finish readings that compiled code could not; raise an error if one could not be made."""
        for k, delayed in self._delayed:
            if delayed.needs_python[0]:
                output, tick = self.outputs[k], int(delayed.rows[0].broken_at) - 1
                if tick >= 0:
                    raise ValueError(f"{output and output.target}: the pose at tick {tick} is not finite")
                delayed.needs_python[0] = 0
                delayed.reading.finish(self.calls[int(self.rows[k].calls.first)])

    @property
    def sent(self) -> int:
        """Messages so far."""
        return int(self.rows["sent"].sum())

    def dropped(self) -> dict[str, int]:
        """Messages that dropouts kept back, by sensor."""
        return {
            each.target: int(self.rows[k].dropped)
            for k, each in enumerate(self.outputs)
            if each is not None and each.dropouts.size
        }

    def set_dropped(self, counts: Any) -> None:
        for k, each in enumerate(self.outputs):
            if each is not None and each.dropouts.size:
                self.rows[k].dropped = counts.get(each.target, 0)
