"""Commands that grow old: a robot that receives nothing for a while is stopped.

A model takes part by a row of its state that counts ticks since the last command, named in `RobotModel.command_age`.
`Fleet.take` sets it to 0 with every command; the model's kernel calls `expire` once a tick, before it reads the
command. A model without such a row keeps its command until the next.
"""

import math

from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array


def timeout_ticks(timeout_s: float, dt: float) -> float:
    """For how many ticks a command acts: the nearest number, at least 1. A timeout of 0 means for ever."""
    return max(math.floor(timeout_s / dt + 0.5), 1.0) if timeout_s > 0.0 else math.inf


@kernel
def expire(state: Array, command: Array, i: int, row: int, limit: float) -> None:
    """Column i grows one tick older; a command that has acted for `limit` ticks becomes 0."""
    if state[row, i] >= limit:
        for k in range(command.shape[0]):
            command[k, i] = 0.0
    state[row, i] += 1.0
