"""What a run sends, as tables of numbers, and the compiled loops over them: whole ticks without Python.

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
from microsim.engine import late_readings as _late_readings
from microsim.engine import motion as _motion
from microsim.engine import pipeline as _pipeline
from microsim.engine.calls import (
    CALL_COLUMNS,
    END_JUMP,
    FIRST_JUMP,
    FUNCTION,
    MOTION,
    MOTION_SIZE,
    MOUNT,
    READING,
    READING_SIZE,
    SEEN,
    STRIDE,
    TICK,
    Rows,
)
from microsim.engine.compiled import kernel
from microsim.engine.fleet_loops import copy_states, look, move
from microsim.engine.geometry import Array, Grid
from microsim.engine.late_readings import (
    ALL_BYTES,
    ATTENTION,
    BEFORE,
    CAPACITY,
    FIRST,
    FOLLOWERS,
    KEPT_MOTION,
    LATE_COLUMNS,
    LATENCY,
    LATENCY_KEY,
    LEAVES,
    NEXT_SAMPLE,
    NOT_FINITE,
    SAMPLED_AT,
    STAMP_NS,
    LateReadings,
)
from microsim.engine.late_readings import COUNT as WAITING
from microsim.engine.motion import FIELDS, PLACE_X, PLACE_Y, PLACE_Z, SENSOR_FIELDS
from microsim.engine.timekeeper import Clock, Trigger

_copy, _call, _room = _calls.copy, _calls.call, _calls.room
_floats_at, _singles_at, _words_at, _integers_at, _bytes_at = (
    _calls.floats_at, _calls.singles_at, _calls.words_at, _calls.integers_at, _calls.bytes_at,
)  # fmt: skip
_table_address, _float_grid_at = _calls.table_address, _calls.float_grid_at
_observe, _place_of = _motion.observe, _motion.place_of
_first_entry, _keep_motion = _late_readings.first_entry, _late_readings.keep_motion
_delay_of = _pipeline.delay_of

NEVER = 2**62  # a tick that does not come
DIGEST_BYTES = 32  # before each tick's messages there is room for the digest of the tick before
NS_PER_S = 1_000_000_000

# columns of an output
DUE, PERIOD, PARTS, FIRST_CALL, END_CALL, BLOB, BYTES, FIRST_SLOT, END_SLOT = range(9)
NAME, NAME_BYTES, FIRST_WINDOW, END_WINDOW, DROPPED, SENT, HEAD_BYTES, TAIL_BYTES, LATE = range(9, 18)
OUTPUT_COLUMNS = 18
# columns of a slot: numbers of a reading, where they stand in the message, and bytes of each; 0 bytes: the stamp
SOURCE, TARGET, COUNT, SIZE = range(4)
SLOT_COLUMNS = 4
# columns of a window of time: the first tick, the first tick after it, and by how much a sensor jumps meanwhile
FROM, UNTIL, OFFSET = range(3)
WINDOW_COLUMNS = 5
# what `run_ticks` is given and gives back
AT_TICK, END_TICK, AT_BYTE, DONE, NEEDED = range(5)
# the clock: ticks per second as a fraction, the most bytes that a tick can have without late outputs, and their number
RATE, RATE_PARTS, ROOM, LATES = range(4)


@kernel
def next_tick(period: int, parts: int, at_least: int) -> int:
    """`timekeeper.Trigger.next_tick` of a period of `period / parts` ticks; 0 parts: never."""
    if parts == 0:
        return NEVER
    i = max((2 * at_least * parts - parts) // (2 * period), 0)
    tick = (2 * i * period + parts) // (2 * parts)
    while tick < at_least:
        i += 1
        tick = (2 * i * period + parts) // (2 * parts)
    return tick


@kernel
def time_ns(clock: Rows, tick: int) -> int:
    """`timekeeper.Clock.time_ns`, for clocks whose numbers are small enough."""
    whole = tick // clock[RATE]
    rest = (tick - whole * clock[RATE]) * clock[RATE_PARTS]
    return whole * clock[RATE_PARTS] * NS_PER_S + (2 * NS_PER_S * rest + clock[RATE]) // (2 * clock[RATE])


@kernel
def is_within(windows: Array, first: int, end: int, tick: int) -> bool:
    for k in range(first, end):  # noqa: SIM110 - numba compiles no generator
        if windows[k, FROM] <= tick < windows[k, UNTIL]:
            return True
    return False


@kernel
def invoke(calls: Rows, windows: Array, c: int, tick: int) -> None:
    """Make one call: a sensor is given its robot's motion and its own place, or its robot's state."""
    row = calls[c]
    motion = _floats_at(row[MOTION], row[MOTION_SIZE])
    if row[STRIDE] == 0:
        if row[SEEN] != row[MOTION]:  # else it is there already
            _copy(row[MOTION], row[SEEN], 8 * FIELDS)
        mount = _floats_at(row[MOUNT], 3)
        x, y, z = _place_of(motion, mount[0], mount[1], mount[2])
        for k in range(row[FIRST_JUMP], row[END_JUMP]):
            if windows[k, FROM] <= tick < windows[k, UNTIL]:
                x, y, z = x + windows[k, OFFSET], y + windows[k, OFFSET + 1], z + windows[k, OFFSET + 2]
        motion[PLACE_X], motion[PLACE_Y], motion[PLACE_Z] = x, y, z
    else:
        state = _floats_at(row[SEEN], (row[MOTION_SIZE] - 1) * row[STRIDE] + 1)
        for k in range(row[MOTION_SIZE]):
            motion[k] = state[k * row[STRIDE]]
    row[TICK] = tick
    _call(row[FUNCTION], _table_address(calls) + 8 * CALL_COLUMNS * c)


@kernel
def write(rows: Rows, slots: Rows, r: int, stamp_ns: int, buffer: int, position: int) -> int:
    """Put an output's reading into its message and append that to the transcript; gives where the next one goes."""
    row = rows[r]
    for k in range(row[FIRST_SLOT], row[END_SLOT]):
        slot = slots[k]
        if slot[SIZE] == 0:
            stamp = _words_at(slot[TARGET], 2)
            stamp[0], stamp[1] = stamp_ns // NS_PER_S, stamp_ns % NS_PER_S
        elif slot[SIZE] == 8:
            _copy(slot[TARGET], slot[SOURCE], 8 * slot[COUNT])
        elif slot[SIZE] == 1:
            octets, numbers = _bytes_at(slot[TARGET], slot[COUNT]), _floats_at(slot[SOURCE], slot[COUNT])
            for i in range(slot[COUNT]):
                octets[i] = np.uint8(numbers[i])
        else:
            singles, numbers = _singles_at(slot[TARGET], slot[COUNT]), _floats_at(slot[SOURCE], slot[COUNT])
            for i in range(slot[COUNT]):
                singles[i] = numbers[i]
    place = buffer + position
    _copy(place, row[NAME], row[NAME_BYTES])
    head = _room(2)  # an array on the heap would take as long as all else here
    numbers = _integers_at(_table_address(head), 2)
    numbers[0], numbers[1] = stamp_ns, row[BYTES]
    _copy(place + row[NAME_BYTES], _table_address(head), 12)
    _copy(place + row[NAME_BYTES] + 12, row[BLOB], row[HEAD_BYTES])
    end = position + row[NAME_BYTES] + 12 + row[BYTES]
    if row[TAIL_BYTES] != 0:  # after the reading of a late output
        _copy(buffer + end - row[TAIL_BYTES], row[BLOB] + row[HEAD_BYTES], row[TAIL_BYTES])
    return end


@kernel
def leave(rows: Rows, calls: Rows, slots: Rows, r: int, late: Rows, buffer: int, position: int) -> int:
    """Write the first reading in a late output's queue, and its followers' messages; the reading is made in place."""
    entry, call = _first_entry(late), calls[rows[r, FIRST_CALL]]
    for k in range(r, r + 1 + late[FOLLOWERS]):
        position = write(rows, slots, k, entry[STAMP_NS], buffer, position)
        if k == r:
            call[MOTION], call[TICK] = _table_address(entry) + 8 * KEPT_MOTION, entry[SAMPLED_AT]
            call[READING] = buffer + position - rows[r, TAIL_BYTES] - call[READING_SIZE]
            _call(call[FUNCTION], _table_address(call))
    return position


@kernel
def sense_late(
    rows: Rows, calls: Rows, slots: Rows, windows: Array, r: int, tick: int, stamp_ns: int, buffer: int, position: int
) -> int:
    """A late output: what it keeps at this tick, and what leaves."""
    late = _integers_at(rows[r, LATE], LATE_COLUMNS)
    if late[NEXT_SAMPLE] <= tick:
        late[NEXT_SAMPLE] = next_tick(rows[r, PERIOD], rows[r, PARTS], tick + 1)
        numbers, before = _floats_at(late[LATENCY], BEFORE), _floats_at(late[LATENCY] + 8 * BEFORE, 2)
        delay = _delay_of(numbers, late[LATENCY_KEY], tick, before)
        if delay >= 0 and is_within(windows, rows[r, FIRST_WINDOW], rows[r, END_WINDOW], tick):
            rows[r, DROPPED] += 1
        elif delay >= 0:
            _keep_motion(late, calls[rows[r, FIRST_CALL], SEEN], tick, delay, stamp_ns)
    while late[WAITING] > 0 and _first_entry(late)[LEAVES] <= tick:
        position = leave(rows, calls, slots, r, late, buffer, position)
        late[FIRST], late[WAITING] = (late[FIRST] + 1) % late[CAPACITY], late[WAITING] - 1
        rows[r, SENT] += 1 + late[FOLLOWERS]
    rows[r, DUE] = late[NEXT_SAMPLE]
    if late[WAITING] > 0:
        rows[r, DUE] = min(late[NEXT_SAMPLE], _first_entry(late)[LEAVES])
    return position


@kernel
def late_room(rows: Rows, tick: int) -> int:
    """Bytes that late outputs can send at a tick: all that waits, and what is sampled then."""
    room = 0
    for r in range(rows.shape[0]):
        if rows[r, LATE] != 0 and rows[r, DUE] <= tick:
            late = _integers_at(rows[r, LATE], LATE_COLUMNS)
            room += (late[WAITING] + 1) * late[ALL_BYTES]
    return room


@kernel
def sense(
    rows: Rows, calls: Rows, slots: Rows, windows: Array, span: tuple[int, int], tick: int, stamp_ns: int, buffer: int,
    position: int,
) -> int:  # fmt: skip
    """The outputs of a span that are due at a tick, written at `position`; gives where the next one goes."""
    for r in range(span[0], span[1]):
        if rows[r, DUE] > tick or rows[r, BLOB] == 0:
            continue
        if rows[r, LATE] != 0:
            position = sense_late(rows, calls, slots, windows, r, tick, stamp_ns, buffer, position)
            continue
        period, parts = rows[r, PERIOD], rows[r, PARTS]
        is_whole = parts == 1 and rows[r, DUE] == tick  # as `timekeeper.Trigger.after`: no division
        rows[r, DUE] = tick + period if is_whole else next_tick(period, parts, tick + 1)
        if is_within(windows, rows[r, FIRST_WINDOW], rows[r, END_WINDOW], tick):
            rows[r, DROPPED] += 1
            continue
        for c in range(rows[r, FIRST_CALL], rows[r, END_CALL]):
            invoke(calls, windows, c, tick)
        position = write(rows, slots, r, stamp_ns, buffer, position)
        rows[r, SENT] += 1
    return position


@kernel
def begin_tick(fleets: Rows, copies: Rows, calls: Rows, windows: Array, trackers: Rows, tick: int) -> None:
    """Move to the next tick; then what sensors keep track of from tick to tick."""
    move(fleets, tick, 1)
    copy_states(copies)
    look(fleets)
    track(calls, windows, trackers, tick + 1)


@kernel
def track(calls: Rows, windows: Array, trackers: Rows, tick: int) -> None:
    for k in range(trackers.shape[0]):
        invoke(calls, windows, trackers[k], tick)


@kernel
def run_ticks(
    fleets: Rows, copies: Rows, rows: Rows, calls: Rows, slots: Rows, windows: Array, trackers: Rows, clock: Rows,
    progress: Rows, buffer: Grid, ends: Rows,
) -> None:  # fmt: skip
    """Whole ticks, until `progress[END_TICK]` or until the buffer might not hold another, which is `NEEDED` bytes."""
    tick, position, done = progress[AT_TICK], progress[AT_BYTE], 0
    start, everything = buffer.ctypes.data, (0, rows.shape[0])
    while tick < progress[END_TICK] and done < ends.shape[0]:
        needed = clock[ROOM] + (late_room(rows, tick + 1) if clock[LATES] else 0)
        progress[NEEDED] = needed
        if position + needed > buffer.shape[0]:
            break
        begin_tick(fleets, copies, calls, windows, trackers, tick)
        tick += 1
        stamp_ns = time_ns(clock, tick)
        position = sense(rows, calls, slots, windows, everything, tick, stamp_ns, start, position + DIGEST_BYTES)
        ends[done] = position
        done += 1
    progress[AT_TICK], progress[AT_BYTE], progress[DONE] = tick, position, done


# ---- making the tables -----------------------------------------------------------------------------------------------

LAST_TICK = 2**31 * 10_000  # no run goes beyond it

Window = tuple[float, float, float, float, float]  # from, until [ticks], offset x, y, z [m]
_NOTHING: Array = np.zeros(1)


@dataclass
class Call:
    """One call of a kernel, with the arrays it works on; they live as long as this does."""

    function: int  # address
    settings: Array
    seen: int  # address of the robot's motion, or of its column of the state
    reading: Array
    key: int = 0
    stride: int = 0  # from one number of that column to the next; 0: it is a motion
    size: int = SENSOR_FIELDS  # numbers of the motion or the state
    mount: Array = field(default_factory=lambda: np.zeros(3))  # [m]
    memory: npt.NDArray[Any] = field(default_factory=lambda: np.zeros(1))  # of a late output: its columns
    table: Array = field(default_factory=lambda: np.zeros(1))
    jumps: Sequence[Window] = ()
    picture: Any = None  # of a late output: its readings, see `sensors.sensor.CompiledReading`

    def __post_init__(self) -> None:
        self.motion = np.zeros(self.size)

    def row(self, scene: int, first_jump: int) -> list[int]:
        at = _calls.address_of
        table = self.table if self.picture is None else self.picture.row
        reading_size = self.reading.size if self.picture is None else self.picture.bytes
        return [
            self.function, at(self.settings), self.settings.size, at(self.motion), self.size, at(self.memory),
            self.memory.size, scene, 0, at(table), table.size, self.key, 0, at(self.reading),
            reading_size, self.seen, self.stride, at(self.mount), first_jump, first_jump + len(self.jumps),
        ]  # fmt: skip


@dataclass
class Slot:
    """Numbers of a reading in a message; without a source, the stamp."""

    offset: int  # [byte] in the message
    size: int = 0  # [byte] of a number: 8 or 4 with a fraction, 1 without
    source: Array = field(default_factory=lambda: _NOTHING)
    first: int = 0
    count: int = 0

    def row(self, blob: int) -> list[int]:
        return [_calls.address_of(self.source) + 8 * self.first, blob + self.offset, self.count, self.size]


@dataclass
class CompiledOutput:
    """An output that needs no Python: calls fill a reading, slots bring it into an encoded message.

    The reading of a late output is bytes, which are made in the transcript, within what its message has besides.
    """

    name: bytes  # as in transcripts
    trigger: Trigger | None  # None: sent with the late output before it
    message: Grid  # encoded; its numbers are aligned in memory
    slots: Sequence[Slot]
    calls: Sequence[Call] = ()
    dropouts: Sequence[Window] = ()
    target: str = ""  # robot/sensor, for the counts of dropouts
    late: LateReadings | None = None
    late_bytes: int = 0  # of the reading of a late output
    tail_bytes: int = 0  # of `message`, how many come after that reading

    @property
    def is_timed(self) -> bool:
        return self.trigger is None or is_computable(self.trigger)

    @property
    def message_bytes(self) -> int:
        return self.message.size + self.late_bytes

    @property
    def bytes(self) -> int:
        return len(self.name) + 12 + self.message_bytes


def is_computable(trigger: Trigger) -> bool:
    """Whether `next_tick` can compute it in 64 bits."""
    period, parts = trigger.period
    return 2 * LAST_TICK * parts + parts < 2**62 and 4 * LAST_TICK * parts < 2**62 and period < 2**40


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
        fleets: Rows,
        scene: Rows,
        clock: Clock,
    ) -> None:
        """None stands for an output that Python makes."""
        self.outputs, self.fleets, self._scene = outputs, fleets, scene
        self._calls: list[Call] = []
        self._slots: list[list[int]] = []
        self._windows: list[Window] = []
        self._call_rows: list[list[int]] = []
        self._names = [np.frombuffer(each.name, np.uint8) if each else np.zeros(1, np.uint8) for each in outputs]
        rows = [self._output(each, name) for each, name in zip(outputs, self._names, strict=True)]
        self.trackers: Rows = np.array([self._call(each) for each in trackers], np.int64)
        self.rows: Rows = np.array(rows, np.int64).reshape(-1, OUTPUT_COLUMNS)
        self.calls: Rows = np.array(self._call_rows, np.int64).reshape(-1, CALL_COLUMNS)
        self.slots: Rows = np.array(self._slots, np.int64).reshape(-1, SLOT_COLUMNS)
        self.windows: Array = np.array(self._windows, np.float64).reshape(-1, WINDOW_COLUMNS)
        self._lates = [(k, each.late) for k, each in enumerate(outputs) if each is not None and each.late is not None]
        self.has_lates = bool(self._lates)
        for k, late in self._lates:
            late.numbers[ALL_BYTES] = sum(each.bytes for each in outputs[k : k + 1 + late.followers] if each)
        at_once = [each for each in outputs if each is not None and each.late is None and each.trigger is not None]
        self._room = DIGEST_BYTES + sum(each.bytes for each in at_once)
        self.clock: Rows = np.array([*clock.fraction, self._room, len(self._lates)], np.int64)
        self.has_dropouts = any(each is not None and each.dropouts for each in outputs)
        self.manual = [k for k, each in enumerate(outputs) if each is not None and not each.is_timed]

    def _output(self, output: CompiledOutput | None, name: npt.NDArray[np.uint8]) -> list[int]:
        if output is None:
            return [NEVER, 1, *[0] * (OUTPUT_COLUMNS - 2)]
        first_call, first_slot = len(self._call_rows), len(self._slots)
        for each in output.calls:
            self._call(each)
        first_window = len(self._windows)
        self._windows += output.dropouts
        blob = _calls.address_of(output.message)
        self._slots += [slot.row(blob) for slot in output.slots]
        is_led, late = output.trigger is None, 0 if output.late is None else _calls.address_of(output.late.numbers)
        period, parts = output.trigger.period if output.trigger is not None and output.is_timed else (1, 0)
        spans = first_call, len(self._call_rows), blob, output.message_bytes, first_slot, len(self._slots)
        names, windows = (_calls.address_of(name), len(output.name)), (first_window, len(self._windows))
        around = output.message.size - output.tail_bytes, output.tail_bytes
        return [NEVER if is_led else 0, period, parts, *spans, *names, *windows, 0, 0, *around, late]

    def _call(self, call: Call) -> int:
        first_jump = len(self._windows)
        self._windows += call.jumps
        self._calls.append(call)
        self._call_rows.append(call.row(_calls.address_of(self._scene), first_jump))
        return len(self._call_rows) - 1

    def resume(self, tick: int) -> None:
        """Every output is due at its first tick after this one."""
        for k, output in enumerate(self.outputs):
            if output is not None and output.trigger is not None:
                self.rows[k, DUE] = output.trigger.next_tick(tick + 1)
                if output.late is not None:
                    output.late.numbers[NEXT_SAMPLE] = self.rows[k, DUE]

    def room_at(self, tick: int) -> int:
        """The most bytes that this tick can have."""
        if not self.has_lates:
            return self._room
        due = [late.numbers for k, late in self._lates if self.rows[k, DUE] <= tick]
        return self._room + sum(int((each[WAITING] + 1) * each[ALL_BYTES]) for each in due)

    def make_late(self) -> None:
        """Make what waits in the queues of late outputs: from then on it does not depend on these tables."""
        for k, late in self._lates:
            waiting = list(late.in_queue())
            if not waiting:
                continue
            sent, next_sample, due = int(self.rows[k, SENT]), int(late.numbers[NEXT_SAMPLE]), int(self.rows[k, DUE])
            room: Grid = np.empty(len(waiting) * int(late.numbers[ALL_BYTES]), np.uint8)
            late.numbers[NEXT_SAMPLE], self.rows[k, DUE] = NEVER, 0
            tables = self.rows, self.calls, self.slots, self.windows
            sense(*tables, (k, k + 1), LAST_TICK, 0, _calls.address_of(room), 0)
            self.check()
            self.rows[k, SENT], late.numbers[NEXT_SAMPLE], self.rows[k, DUE] = sent, next_sample, due
            group = [each for each in self.outputs[k : k + 1 + late.followers] if each is not None]
            sets = zip(waiting, _sets(group, room.tobytes()), strict=True)
            late.add_made([(*times, messages) for times, messages in sets])

    def check(self) -> None:
        """Finish readings that compiled code could not; raise an error if one could not be made."""
        if not any(late.numbers[ATTENTION] for _, late in self._lates):
            return
        for k, late in self._lates:
            call, tick = int(self.rows[k, FIRST_CALL]), int(late.numbers[NOT_FINITE]) - 1
            if tick >= 0:
                output = self.outputs[k]
                raise ValueError(f"{output and output.target}: the pose at tick {tick} is not finite")
            if late.numbers[ATTENTION]:
                late.numbers[ATTENTION] = 0
                self._calls[call].picture.finish(self.calls[call])

    @property
    def sent(self) -> int:
        """Messages so far."""
        return int(self.rows[:, SENT].sum())

    def dropped(self) -> dict[str, int]:
        """Messages that dropouts kept back, by sensor."""
        return {
            each.target: int(self.rows[k, DROPPED])
            for k, each in enumerate(self.outputs)
            if each is not None and each.dropouts
        }

    def set_dropped(self, counts: Any) -> None:
        for k, each in enumerate(self.outputs):
            if each is not None and each.dropouts:
                self.rows[k, DROPPED] = counts.get(each.target, 0)
