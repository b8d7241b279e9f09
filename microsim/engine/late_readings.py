"""Readings that leave later, without Python: images, which their pipeline delays and loses.

When a reading is due, the robot's motion is kept in a queue. When its delay is over, the reading is made from that
motion, in the transcript where it is sent: no image is copied. So it must depend on nothing else that changes.
`pipeline.Delayed` does the same in Python, and draws at once.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from microsim.engine import calls as _calls
from microsim.engine.calls import Rows
from microsim.engine.compiled import kernel
from microsim.engine.motion import FIELDS, SENSOR_FIELDS
from microsim.engine.pipeline import NOTHING_BEFORE, Latency
from microsim.engine.timekeeper import Trigger

_copy, _floats_at, _integers_at = _calls.copy, _calls.floats_at, _calls.integers_at

# columns of a late output: its times, its queue, its delay, the rows that are sent with it; whether Python is to look,
# and a tick, plus one, whose motion was not finite
NEXT_SAMPLE, LAST_LEAVES, QUEUE, CAPACITY, FIRST, COUNT, LATENCY, LATENCY_KEY, FOLLOWERS, ALL_BYTES = range(10)
ATTENTION, NOT_FINITE = 10, 11
LATE_COLUMNS = 12
# columns of what waits in the queue: when it leaves, when it was sampled, its stamp, then the motion
LEAVES, SAMPLED_AT, STAMP_NS, KEPT_MOTION = range(4)
ENTRY_COLUMNS = KEPT_MOTION + SENSOR_FIELDS

BEFORE = 4  # a late output's delay: four numbers of its latency, then what `pipeline.delay_of` keeps

MOST_WAITING = 4096  # a longer queue is Python's


@kernel
def first_entry(late: Rows) -> Rows:
    return _integers_at(late[QUEUE] + 8 * ENTRY_COLUMNS * late[FIRST], ENTRY_COLUMNS)


@kernel
def keep_motion(late: Rows, seen: int, tick: int, delay: int, stamp_ns: int) -> None:
    """Put the motion at `seen` into the queue, never before what waits already."""
    motion, sum_of_zeros = _floats_at(seen, FIELDS), 0.0
    for k in range(FIELDS):
        sum_of_zeros += 0.0 * motion[k]
    if sum_of_zeros != 0.0:  # NaN
        late[ATTENTION], late[NOT_FINITE] = 1, tick + 1
        return
    place = (late[FIRST] + late[COUNT]) % late[CAPACITY]
    entry = _integers_at(late[QUEUE] + 8 * ENTRY_COLUMNS * place, ENTRY_COLUMNS)
    late[LAST_LEAVES] = max(tick + delay, late[LAST_LEAVES])
    entry[LEAVES], entry[SAMPLED_AT], entry[STAMP_NS] = late[LAST_LEAVES], tick, stamp_ns
    _copy(late[QUEUE] + 8 * (ENTRY_COLUMNS * place + KEPT_MOTION), seen, 8 * FIELDS)
    late[COUNT] += 1


def most_waiting(latency: Latency, trigger: Trigger) -> int:
    """How many readings can be under way at once."""
    period, parts = trigger.period
    return (latency.longest + 1) * parts // period + 2


@dataclass
class LateReadings:
    """The queue of a late output; as an output of Python, what was made before it left, for a snapshot."""

    latency: Latency
    trigger: Trigger
    send: Callable[[int, Any], None]  # when it was sampled, the messages
    followers: int  # rows that are sent with it
    due: float = math.inf
    waiting: list[tuple[int, int, Any]] = field(default_factory=list)  # as `Delayed.waiting`: before all in the queue

    def __post_init__(self) -> None:
        capacity, latency = most_waiting(self.latency, self.trigger), self.latency
        self._delay = np.array([*latency.numbers, *NOTHING_BEFORE])
        self._queue = np.zeros((capacity, ENTRY_COLUMNS), np.int64)
        self.numbers: Rows = np.zeros(LATE_COLUMNS, np.int64)
        self.numbers[[QUEUE, LATENCY]] = self._queue.ctypes.data, self._delay.ctypes.data
        self.numbers[[CAPACITY, LATENCY_KEY, FOLLOWERS]] = capacity, latency.key, self.followers

    def fire(self, tick: int, stamp_ns: int) -> None:
        while self.waiting and self.waiting[0][0] <= tick:
            _, sampled_at, messages = self.waiting.pop(0)
            self.send(sampled_at, messages)
        self._set_due()

    def _set_due(self) -> None:
        self.due = self.waiting[0][0] if self.waiting else math.inf

    def in_queue(self) -> Iterator[tuple[int, int]]:
        """When each leaves, and when it was sampled."""
        first, count, capacity = (int(self.numbers[column]) for column in (FIRST, COUNT, CAPACITY))
        for k in range(first, first + count):
            leaves, sampled_at = self._queue[k % capacity, :2].tolist()
            yield leaves, sampled_at

    def add_made(self, made: list[tuple[int, int, Any]]) -> None:
        """What was in the queue."""
        self.waiting += made
        self._set_due()

    def memory(self) -> Any:
        return list(self.waiting), tuple(self._delay[BEFORE:].tolist()), None

    def recall(self, memory: Any, tick: int) -> None:
        waiting, self._delay[BEFORE:], _ = memory or ((), NOTHING_BEFORE, None)
        self.waiting = list(waiting)
        self.numbers[COUNT] = 0
        self.numbers[LAST_LEAVES] = self.waiting[-1][0] if self.waiting else 0
        self._set_due()
