"""All fleets of a world, tick after tick, called through their tables; and what is kept of each tick."""

from microsim.engine import calls as _calls
from microsim.engine import motion as _motion
from microsim.engine.calls import (
    BEGIN,
    END,
    FLEET_COLUMNS,
    FLEET_SEEN,
    FLEET_TICK,
    FUNCTION,
    IS_BROKEN,
    STATE,
    STATE_ROWS,
    TICKS,
    WIDTH,
    Rows,
)
from microsim.engine.compiled import kernel
from microsim.engine.motion import FIELDS

_copy, _call, _table_address, _float_grid_at = _calls.copy, _calls.call, _calls.table_address, _calls.float_grid_at
_observe = _motion.observe

# columns of what is copied after each tick: from where, how many bytes, where to, and the end of the room there
COPIED, COPIED_BYTES, COPY_TO, COPY_END = range(4)
COPY_COLUMNS = 4


@kernel
def move(fleets: Rows, tick: int, ticks: int) -> None:
    """Every fleet from `tick` on by `ticks`, tick by tick: robots touch each other."""
    for k in range(tick, tick + ticks):
        for f in range(fleets.shape[0]):
            if fleets[f, IS_BROKEN] == 0:
                fleets[f, FLEET_TICK], fleets[f, TICKS] = k, 1
                _call(fleets[f, FUNCTION], _table_address(fleets) + 8 * FLEET_COLUMNS * f)


@kernel
def copy_states(copies: Rows) -> None:
    """After a tick: what is to be kept of it, while there is room."""
    for c in range(copies.shape[0]):
        row = copies[c]
        if row[COPY_TO] < row[COPY_END]:
            _copy(row[COPY_TO], row[COPIED], row[COPIED_BYTES])
            row[COPY_TO] += row[COPIED_BYTES]


@kernel
def move_and_copy(fleets: Rows, copies: Rows, tick: int, ticks: int) -> None:
    """`move`, with the states of each tick."""
    for k in range(tick, tick + ticks):
        move(fleets, k, 1)
        copy_states(copies)


@kernel
def look(fleets: Rows) -> None:
    """Bring every robot's motion up to date."""
    for f in range(fleets.shape[0]):
        row = fleets[f]
        count = row[END] - row[BEGIN]
        state = _float_grid_at(row[STATE], row[STATE_ROWS], row[WIDTH])
        _observe(state, _float_grid_at(row[FLEET_SEEN], count, FIELDS))
