"""Kernels over worlds, on records alone."""

import numpy as np

from microsim.batch import kernels
from tests.unit.engine.test_worlds import facts, many, single


def test_robots_move_among_many_worlds_as_in_one() -> None:
    """The same function moves a column of either."""
    alone, worlds, ticks = single(), many(3), np.zeros(3, np.int64)
    for robot, x, command in (("one", 10.0, (1.0, 0.5)), ("two", 20.0, (0.5, -0.5))):
        alone.place(robot, x, 5.0, 0.0, 0.3)
        alone.command(robot, command)
    worlds.load(alone.save(), lambda array: np.array([1]))
    kernels.move(worlds.table_at, 2, 0, True, worlds.contacts.address, worlds.contacts.marks_size, ticks, 25, 0, 3)
    alone.move(0, 25)
    assert facts(worlds, 1) == facts(alone, 0)
