"""Calls of sensors' kernels, on records: what a kernel is given, and how far it is to the next world's arrays."""

from typing import Any

import numpy as np
import pytest

from microsim.engine.calls import Scene, sample_address
from microsim.engine.compiled import kernel
from microsim.engine.geodesy import tangent_plane
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, motion_in
from microsim.engine.records import address_of
from microsim.engine.sensor_calls import Call, invoke, is_within, windows_of
from microsim.engine.world import World
from microsim.engine.worlds import scene_of

_motion_in = motion_in

FLAT = World(1.0, np.zeros((4, 4)), np.zeros((4, 4), np.uint8), (), ())
PLANE = tangent_plane(0.0, 0.0, 0.0)
SCENE = scene_of(FLAT, 0.1, PLANE)


@kernel
def place(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Where the sensor is, and how often it was read."""
    seen = _motion_in(motion)
    memory[0] += 1.0
    reading[0], reading[1], reading[2] = settings[0] + seen.place_x, seen.place_y, seen.place_z
    reading[3], reading[4] = memory[0], tick


@kernel
def numbers(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    for k in range(motion.shape[0]):
        reading[k] = motion[k]


def seen(x: float, y: float, yaw: float) -> Array:
    motion = np.zeros(FIELDS)
    robot = _motion_in(motion)
    robot.x, robot.y, robot.yaw, robot.cos_yaw, robot.sin_yaw = x, y, yaw, np.cos(yaw), np.sin(yaw)
    return motion


def read(call: Call, tick: int) -> Any:
    row = call.row(address_of(SCENE))
    invoke(row[0], tick)
    return call.reading


def test_a_sensor_is_given_its_own_place_on_the_robot() -> None:
    motion = seen(3.0, 4.0, np.pi / 2)
    call = Call(sample_address(place), np.zeros(1), np.zeros(5), address_of(motion), mount=(1.0, 0.0, 0.5))
    call.memory = np.zeros(1)
    assert read(call, 7).tolist() == pytest.approx([3.0, 5.0, 0.5, 1.0, 7.0])
    assert motion.tolist() == seen(3.0, 4.0, np.pi / 2).tolist()  # the robot's own is not written to


@pytest.mark.parametrize(("tick", "x"), [(9, 3.0), (10, 13.0), (19, 13.0), (20, 3.0)])
def test_a_jump_moves_the_place_from_its_first_tick_until_its_end(tick: int, x: float) -> None:
    jumps, motion = windows_of([(10.0, 20.0, 10.0, 0.0, 0.0)]), seen(3.0, 4.0, 0.0)
    call = Call(sample_address(place), np.zeros(1), np.zeros(5), address_of(motion), jumps=jumps, memory=np.zeros(1))
    assert read(call, tick)[0] == x


def test_a_sensor_of_the_state_is_given_the_column_of_its_robot() -> None:
    state = np.arange(12.0).reshape(4, 3)
    call = Call(sample_address(numbers), np.zeros(0), np.zeros(4), address_of(state) + 8, stride=3, size=4)
    assert read(call, 0).tolist() == [1.0, 4.0, 7.0, 10.0]


def test_steps_lead_to_the_rows_of_the_next_world_and_stay_where_worlds_share_one() -> None:
    call = Call(0, np.zeros((1, 2)), np.zeros((5, 4)), memory=np.zeros((5, 3)))
    (step,) = call.step()
    assert (step.settings, step.memory, step.reading) == (0, 24, 32)


def test_what_many_worlds_keep_is_kept_in_the_row_of_each() -> None:
    """As `batch.kernels` does it: the address of the first, and the step to the next."""
    motion, n = seen(1.0, 2.0, 0.0), 3
    call = Call(
        sample_address(place), np.array([[0.0], [10.0], [20.0]]), np.zeros((n, 5)), address_of(motion),
        memory=np.zeros((n, 1)),
    )  # fmt: skip
    (row,), (step,) = call.row(address_of(SCENE)), call.step()
    for world in (0, 2, 2):
        own = row.copy()
        own.settings.address += world * step.settings
        own.memory.address += world * step.memory
        own.reading.address += world * step.reading
        rows = np.array([own], row.dtype)
        invoke(rows[0], 5)
    assert call.memory[:, 0].tolist() == [1.0, 0.0, 2.0]
    assert call.reading[:, 0].tolist() == [1.0, 0.0, 21.0]


def test_a_tick_is_within_a_window_from_its_first_until_before_its_end() -> None:
    call = Call(0, np.zeros(1), np.zeros(1), jumps=windows_of([(2.0, 4.0, 0.0, 0.0, 0.0), (6.0, 7.0, 0.0, 0.0, 0.0)]))
    jumps = call.row(0)[0].jumps
    assert [tick for tick in range(9) if is_within(jumps, tick)] == [2, 3, 6]
