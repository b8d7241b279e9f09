"""Commands that grow old: a robot that receives nothing for a while is stopped.

A model takes part by a number of its state that counts ticks since the last command, named in
`RobotModel.command_age`. `Fleet.take` sets it to 0 with every command; the model's kernel calls `expire` once a tick,
before it reads the command. A model without it keeps its command until the next.
"""

import math

from microsim.engine import columns
from microsim.engine.columns import Column
from microsim.engine.compiled import kernel

_clear = columns.clear


def timeout_ticks(timeout_s: float, dt: float) -> float:
    """For how many ticks a command acts: the nearest number, at least 1. A timeout of 0 means for ever."""
    return max(math.floor(timeout_s / dt + 0.5), 1.0) if timeout_s > 0.0 else math.inf


@kernel
def expire(robot: Column, command: Column, limit: float) -> None:
    """A command grows one tick older; one that has acted for `limit` ticks becomes 0. For models with `command_age`."""
    if robot.command_age >= limit:
        _clear(command)
    robot.command_age += 1.0
