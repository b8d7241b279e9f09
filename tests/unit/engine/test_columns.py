"""Views of columns by name: what they read and write is the array, compiled and not."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine.columns import clear, column_at, column_from, column_in, number_of
from microsim.engine.compiled import kernel
from microsim.engine.records import address_of

NAMES = ("x", "y", "speed")
_at, _from, _in = column_at(NAMES), column_from(NAMES), column_in(NAMES)


@kernel
def go(state, i, dt):
    robot = _at(state, i)
    robot.x += robot.speed * dt
    robot.y = 1 if robot.x > 0.0 else robot.x


@kernel
def go_there(address, step, dt):
    robot = _from(address, step)
    robot.x += robot.speed * dt
    robot.y = 1 if robot.x > 0.0 else robot.x


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70), st.data())
def test_a_view_of_a_column_is_its_numbers(width, data):
    i, seed = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, 2**32 - 1))
    wide = np.random.default_rng(seed).normal(size=(3, width + 3))
    state = wide[:, 1 : width + 1] if seed % 2 else wide[:, :width]
    expected = wide.copy()
    column = expected[:, 1:] if seed % 2 else expected
    column[0, i] += column[2, i] * 0.1
    column[1, i] = 1.0 if column[0, i] > 0.0 else column[0, i]
    before = wide.copy()
    go(state, i, 0.1)
    assert np.array_equal(wide, expected)
    wide[:] = before
    go_there(address_of(state) + 8 * i, wide.strides[0], 0.1)
    assert np.array_equal(wide, expected)


@kernel
def speed_up(robot, by):
    robot.speed += by
    return robot.x


def test_compiled_code_takes_a_view_that_plain_python_made():
    state = np.arange(24.0).reshape(4, 6)[:3]
    for k, view in enumerate(
        (_at(state, 2), _at(state[:, ::2], 1), _in(state[:, 2]), _from(address_of(state) + 16, 48))
    ):
        assert speed_up(view, 1.0) == 2.0
        assert state[2].tolist() == [12.0, 13.0, 15.0 + k, 15.0, 16.0, 17.0]


@kernel
def last_and_clear(numbers):
    found = number_of(_in(numbers), 3)
    clear(_in(numbers))
    return found


def test_numbers_after_those_with_names_are_read_but_not_cleared():
    for form in (last_and_clear, last_and_clear.py_func if hasattr(last_and_clear, "py_func") else last_and_clear):
        for numbers in (np.arange(1.0, 5.0), np.arange(1.0, 9.0)[::2]):
            last = numbers[3]
            assert form(numbers) == last
            assert numbers.tolist() == [0.0, 0.0, 0.0, last]


def test_plain_python_makes_the_same_views():
    state = np.arange(12.0).reshape(3, 4)
    views = _at(state, 2), _from(address_of(state) + 16, 32), _in(state[:, 2]), _in(state[:, 2].tolist())
    for robot in views:
        assert (robot.x, robot.y, robot.speed) == tuple(state[:, 2])
    for robot in views[:3]:
        robot.speed += 1.0
    assert state[2, 2] == 13.0
    with pytest.raises(AttributeError):
        views[0].sped = 1.0
    code = f"import sys; sys.path[:0] = {[str(Path(__file__).parent)]!r}; import test_columns as t; t.once()"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})


def once():
    state = np.arange(12.0).reshape(3, 4)
    go(state, 2, 0.5)
    assert state[:, 2].tolist() == [7.0, 1.0, 10.0]
