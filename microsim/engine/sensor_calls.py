"""How a reading is made: calls of a sensor's kernel, in one world and in many.

A `Call` has the arrays of n worlds, a row for each. Compiled code is given its `CALL`, which is that of world 0, and
in a batch its `STEP`, which says how far it is to the next world's. `invoke` makes the call; the loops around it are
`compiled_tick.sense` in a single world, and `kernels.sense` in a batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from microsim.engine import calls as _calls
from microsim.engine import motion as _motion
from microsim.engine import records as _records
from microsim.engine.calls import CALL
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, SENSOR_FIELDS
from microsim.engine.records import (
    ADDRESS,
    SPAN,
    VEC3,
    Record,
    Records,
    address_of,
    record,
    records_in,
    rows_of,
    span_of,
)

_copy, _call, _floats_at = _calls.copy, _calls.call, _calls.floats_at
_address_of_record, _floats_in = _records.address_of_record, _records.floats_in
_place_of, _motion_in = _motion.place_of, _motion.motion_in

WINDOW = record(first=float, end=float, offset=VEC3)  # [ticks], by how much a sensor jumps meanwhile [m]
STEP = record(  # what differs from world to world in a call: bytes to the next world's, columns of worlds
    settings=int,
    memory=int,
    reading=int,
    singles=ADDRESS,  # of the reading as float32; 0: it stays as it is
    singles_step=int,
    keys=ADDRESS,
    sampled_at=ADDRESS,
    dropped=ADDRESS,
    dropouts=SPAN,  # windows of time
    is_tracker=int,
    reads_place=int,
    sample_many=ADDRESS,  # the form for a block of worlds; 0: there is none
)
windows_in = records_in(WINDOW)
_windows_in = windows_in


@kernel
def is_within(span: Record, tick: int) -> bool:
    """Whether the tick is in one of these windows of time."""
    windows = _windows_in(span)
    for k in range(windows.shape[0]):  # noqa: SIM110 - numba compiles no generator
        if windows[k].first <= tick < windows[k].end:
            return True
    return False


@kernel
def jumped(call: Record, tick: int, x: float, y: float, z: float) -> tuple[float, float, float]:
    """The sensor's place with the jumps of faults [m]."""
    windows = _windows_in(call.jumps)
    for k in range(windows.shape[0]):
        window = windows[k]
        if window.first <= tick < window.end:
            x, y, z = x + window.offset[0], y + window.offset[1], z + window.offset[2]
    return x, y, z


@kernel
def invoke(call: Record, tick: int) -> None:
    """Make a call: a sensor is given its robot's motion and its own place, or its robot's state."""
    if call.is_broken:
        return
    motion = _floats_in(call.motion)
    if call.stride == 0:
        if call.seen != call.motion.address:  # else it is there already
            _copy(call.motion.address, call.seen, 8 * FIELDS)
        x, y, z = _place_of(motion, call.mount[0], call.mount[1], call.mount[2])
        x, y, z = jumped(call, tick, x, y, z)
        sensor = _motion_in(motion)
        sensor.place_x, sensor.place_y, sensor.place_z = x, y, z
    else:
        state = _floats_at(call.seen, (call.motion.count - 1) * call.stride + 1)
        for k in range(call.motion.count):
            motion[k] = state[k * call.stride]
    call.tick = tick
    _call(call.function, _address_of_record(call))


# ---- making the records ----------------------------------------------------------------------------------------------

Window = tuple[float, float, float, float, float]  # from, until [ticks], offset x, y, z [m]


class Windows(NamedTuple):
    """Windows of time, in the memory where kernels read them."""

    table: Any
    size: int  # rows

    @property
    def span(self) -> tuple[int, int]:
        return address_of(self.table), self.size


def windows_of(windows: Sequence[Window], table: Callable[[Records], Any] = lambda rows: rows) -> Windows:
    return Windows(table(np.array([(first, end, offset) for first, end, *offset in windows], WINDOW)), len(windows))


NO_WINDOWS = windows_of(())


class CompiledReading(Protocol):
    """Readings made without Python, from the motion that the robot had when they were sampled.

    `address`: of a function, see `calls.picture_address`; `row`: its table, `bytes`: of a reading. Where the function
    sets `needs_python` in its call's memory, a `DELAYED`, `finish` is called with the call before it is sent.
    """

    address: int
    row: npt.NDArray[np.int64]
    bytes: int

    def finish(self, call: Record) -> None: ...


@dataclass
class Call:
    """One call of a kernel, with the arrays it works on; they live as long as this does.

    `settings`, `memory` and `reading` are those of one world, or have a row for each.
    """

    function: int  # address
    settings: Any
    reading: Any
    seen: int = 0  # address of the robot's motion, or of its column of the state; batches put it there
    key: int = 0  # of a single world
    stride: int = 0  # from one number of that column to the next; 0: it is a motion
    size: int = SENSOR_FIELDS  # numbers of the motion or the state
    mount: Any = (0.0, 0.0, 0.0)  # [m]
    memory: Any = field(default_factory=lambda: np.zeros(0))
    table: Any = field(default_factory=lambda: np.zeros(0))
    jumps: Windows = NO_WINDOWS
    picture: CompiledReading | None = None  # what makes a delayed reading, in place of a kernel
    owner: str = ""  # what it belongs to, for messages

    def __post_init__(self) -> None:
        self.motion: Array = np.zeros(self.size)

    def row(self, scene: int) -> Records:
        """A `CALL`, of world 0. scene: address."""
        picture = self.picture
        return rows_of(
            CALL, function=self.function, settings=_first_of(self.settings), motion=span_of(self.motion),
            memory=_first_of(self.memory), scene=scene, key=self.key, seen=self.seen, stride=self.stride,
            mount=self.mount, jumps=self.jumps.span,
            table=span_of(self.table) if picture is None else span_of(picture.row),
            reading=_first_of(self.reading) if picture is None else (0, picture.bytes),
        )  # fmt: skip

    def step(self, **others: Any) -> Records:
        """A `STEP`. others: its fields that are not of this call's arrays."""
        steps = {
            "settings": _step_of(self.settings),
            "memory": _step_of(self.memory),
            "reading": _step_of(self.reading),
        }
        return rows_of(STEP, **{**steps, **others})


def _first_of(array: Any) -> tuple[int, int]:
    return address_of(array), array.shape[-1]


def _step_of(array: Any) -> int:
    """Bytes to the next world's; 0: worlds share it."""
    return 0 if array.ndim == 1 or len(array) == 1 else int(array.strides[0])
