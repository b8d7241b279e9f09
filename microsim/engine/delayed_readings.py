"""Readings that leave later, without Python: images, which their pipeline delays and loses.

When a reading is due, the robot's motion is kept in a delay line. When its delay is over, the reading is made from that
motion, in the transcript where it is sent: no image is copied. So it must depend on nothing else that changes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine import delay_line as _delay_line
from microsim.engine.calls import copy, floats_at
from microsim.engine.compiled import kernel
from microsim.engine.delay_line import DelayLine, Latency, most_under_way
from microsim.engine.motion import FIELDS, SENSOR_FIELDS
from microsim.engine.pipeline import Delayed
from microsim.engine.records import ADDRESS, Record, address_of, record, rows_of
from microsim.engine.sensor_calls import CompiledReading
from microsim.engine.timekeeper import Trigger

_copy, _floats_at, _push = copy, floats_at, _delay_line.push

DELAYED = record(  # readings of an output that are made when they leave
    needs_python=int,  # 1: what was made is not finished, or could not be made
    next_sample=int,  # [tick]
    line=ADDRESS,
    motions=ADDRESS,  # what the line keeps
    companions=int,  # rows that are sent with it
    bytes=int,  # of one reading in a transcript, with its companions
    broken_at=int,  # the tick after the one whose motion was not finite; 0: there was none
)

MOTION_BYTES = 8 * SENSOR_FIELDS
MOST_UNDER_WAY = 4096  # a pipeline with more is Python's


@kernel
def keep_motion(own: Record, seen: int, tick: int, delay: int) -> None:
    """Put the motion at `seen` into the line."""
    motion, sum_of_zeros = _floats_at(seen, FIELDS), 0.0
    for k in range(FIELDS):
        sum_of_zeros += 0.0 * motion[k]
    if sum_of_zeros != 0.0:  # NaN
        own.needs_python, own.broken_at = 1, tick + 1
        return
    place = _push(own.line, 0, tick, delay)
    if place >= 0:  # always: there is room for all that can be under way
        _copy(own.motions + MOTION_BYTES * place, seen, 8 * FIELDS)


class DelayedReadings(Delayed):
    """The line of a compiled output. As an output of Python it sends what was made before it left, see `Tables`."""

    def __init__(
        self,
        latency: Latency,
        key: int,
        trigger: Trigger,
        reading: CompiledReading,
        send: Callable[[int, Any], None],  # when it was sampled, the messages
        companions: int,
    ) -> None:
        self._most = most_under_way(latency, trigger)
        line = DelayLine(latency, np.array([key], np.int64), self._most, motion=((SENSOR_FIELDS,), np.float64))
        super().__init__(trigger, line, lambda tick: None, send)
        self.reading, self.due = reading, np.inf
        self.rows = rows_of(DELAYED, line=line.address, companions=companions)
        self.needs_python: npt.NDArray[np.int64] = self.rows["needs_python"]  # one number
        self._point_at_motions()

    def _point_at_motions(self) -> None:
        self.rows["motions"] = address_of(self.line.kept["motion"])

    def fire(self, tick: int, stamp_ns: int) -> None:
        self._send_due(tick)
        self.due = self._leaving(np.inf)

    def hold(self, messages: list[Any]) -> None:
        """Messages made of all that is under way."""
        self.samples = messages
        self.due = self._leaving(np.inf)

    def load(self, saved: Any, tick: int) -> None:
        super().load(saved, tick)
        self.due = self._leaving(np.inf)
        if count := self.line.count():  # until the last has left, nothing that is sampled from now on leaves
            period, parts = self.trigger.period
            last = int(self.line.entries[0, count - 1, 0])  # `load` puts them there from the first place on
            room = count + max(last - tick, 0) * parts // period + self._most
            self.line.make_room(room)
            if room > MOST_UNDER_WAY:  # there will be more than compiled code can leave to Python
                self.reading.finish(self.rows[0])
        self._point_at_motions()
