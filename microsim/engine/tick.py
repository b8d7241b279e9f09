"""The tick, on one page: from tick k to k + 1, in the order of this file.

What Python has to do comes before (`schedule`): commands, teleports and radio packets that arrived are taken. Then, in
one compiled call for as many ticks as need no Python:

1. **move**: every robot, by its model (`robot_loops`); then what they touched stops them, and is counted (`contacts`).
2. **advance**: the tick number. Time moves nowhere else.
3. **track**: what sensors add up from tick to tick.
4. **sense and send**: every output that is due, in the order of the topics (`compiled_tick.sense`).

A tick with an output that Python makes goes through the same functions, one by one (`schedule.Schedule`).
"""

from microsim.engine import calls as _calls
from microsim.engine import compiled_tick as _compiled_tick
from microsim.engine import motion as _motion
from microsim.engine import multiples as _multiples
from microsim.engine import records as _records
from microsim.engine import sensor_calls as _sensor_calls
from microsim.engine.calls import Rows
from microsim.engine.compiled import kernel
from microsim.engine.compiled_tick import DIGEST_BYTES
from microsim.engine.contacts import contacts_at
from microsim.engine.geometry import Grid
from microsim.engine.motion import FIELDS
from microsim.engine.records import ADDRESS, SPAN, record, record_at, records_in
from microsim.engine.robot_loops import FLEET

COPY = record(source=ADDRESS, bytes=int, target=ADDRESS, end=ADDRESS)  # after each tick, while there is room
ROBOTS = record(fleets=SPAN, contacts=ADDRESS, copies=SPAN)  # of a world

_copy, _call, _float_grid_at = _calls.copy, _calls.call, _calls.float_grid_at
_sense, _invoke, _delayed_room = _compiled_tick.sense, _sensor_calls.invoke, _compiled_tick.delayed_room
_calls_in, _outputs_in = _compiled_tick.calls_in, _compiled_tick.outputs_in
_address_of_record, _float_grid_in, _integers_in = (
    _records.address_of_record, _records.float_grid_in, _records.integers_in,
)  # fmt: skip
_tick_at, _robots_at, _contacts_at = _compiled_tick.tick_at, record_at(ROBOTS), contacts_at
_fleets_in, _copies_in = records_in(FLEET), records_in(COPY)
_observe, _multiple = _motion.observe, _multiples.multiple


@kernel
def run_ticks(tables: int, tick: int, end: int, buffer: Grid, ends: Rows) -> tuple[int, int, int]:
    """Whole ticks, until `end`, or until the buffer might not hold another; `ends`: where the messages of each end.

    Gives the tick that is reached, how many ticks that is, and how many bytes the next one needs.
    """
    now = _tick_at(tables)
    outputs, position, done, needed, start = _outputs_in(now.outputs), 0, 0, 0, buffer.ctypes.data
    while tick < end and done < ends.shape[0]:
        needed = now.room + (_delayed_room(outputs, tick + 1) if now.delayed else 0)
        if position + needed > buffer.shape[0]:
            break
        begin_tick(tables, tick)
        tick += 1
        stamp_ns = _multiple(now.length.whole, now.length.rest, now.length.parts, tick)
        position = _sense(tables, 0, outputs.shape[0], tick, stamp_ns, start, position + DIGEST_BYTES)
        ends[done] = position
        done += 1
    return tick, done, needed


@kernel
def begin_tick(tables: int, tick: int) -> None:
    """To the next tick, before anything is sensed."""
    robots = _tick_at(tables).robots
    move(robots, tick, 1)
    look(robots)
    track(tables, tick + 1)


@kernel
def move(robots: int, tick: int, ticks: int) -> None:
    """Every robot from `tick` on by `ticks`, tick by tick: they touch each other. `robots`: address of `ROBOTS`."""
    here = _robots_at(robots)
    fleets, copies, contacts = _fleets_in(here.fleets), _copies_in(here.copies), _contacts_at(here.contacts)
    for k in range(tick, tick + ticks):
        _call(contacts.remember, here.contacts)
        for f in range(fleets.shape[0]):
            fleet = fleets[f]
            if fleet.is_broken == 0:
                fleet.tick, fleet.ticks = k, 1
                _call(fleet.function, _address_of_record(fleet))
        contacts.tick = k
        _call(contacts.settle, here.contacts)
        for c in range(copies.shape[0]):
            row = copies[c]
            if row.target < row.end:
                _copy(row.target, row.source, row.bytes)
                row.target += row.bytes


@kernel
def look(robots: int) -> None:
    """Bring every robot's motion up to date: what sensors are given."""
    fleets = _fleets_in(_robots_at(robots).fleets)
    for f in range(fleets.shape[0]):
        fleet = fleets[f]
        _observe(_float_grid_in(fleet.state), _float_grid_at(fleet.motions, fleet.state.columns, FIELDS))


@kernel
def track(tables: int, tick: int) -> None:
    """Calls of every tick."""
    now = _tick_at(tables)
    calls, trackers = _calls_in(now.calls), _integers_in(now.trackers)
    for k in range(trackers.shape[0]):
        _invoke(calls[trackers[k]], tick)
