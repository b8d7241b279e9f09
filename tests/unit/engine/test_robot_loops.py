"""The loops that move robots, on records alone: however many, from wherever, side by side or one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine.bodies import Body
from microsim.engine.calls import call_now
from microsim.engine.components import TRACE, Airflow, state_at, trace_at
from microsim.engine.contact_tables import Contacts, Mover
from microsim.engine.geodesy import tangent_plane
from microsim.engine.records import address_of, grid_of
from microsim.engine.robot_loops import FLEET, advance_address, advance_many_address
from microsim.engine.world import Shape, World
from microsim.engine.worlds import scene_of
from microsim.robots.drone import Drone
from microsim.robots.rover import Rover

DT, SIDE, CELL = 0.02, 40, 0.5
SETTINGS = {"drone": Drone(), "rover": Rover()}


def world(is_flat: bool, obstacles: int = 6) -> World:
    heights = np.zeros((SIDE, SIDE))
    if not is_flat:
        heights += np.sin(np.arange(SIDE) / 5.0)[:, None]
    shapes = [Shape("circle", 1, (3.0 * k + 2.0, 10.0), radius=1.0, height_m=2.0) for k in range(obstacles)]
    return World(CELL, heights, np.zeros((SIDE, SIDE), np.uint8), tuple(shapes), ())


class Robots:
    """Some of a model, at random, and what one call does to them."""

    def __init__(self, name: str, count: int, seed: int, is_flat: bool, gusts: float, is_shared: bool) -> None:
        dice, self.model = np.random.default_rng(seed), SETTINGS[name].engine_model
        self.state = np.zeros((self.model.rows, count))
        self.state[:4] = dice.random((4, count)) * np.array([[20.0], [20.0], [3.0], [6.0]])
        self.command = 4.0 * dice.random((len(self.model.inputs), count)) - 2.0
        numbers = self.model.numbers(SETTINGS[name], Airflow((0.3, -0.1, 0.0), gusts), DT)
        self.parameters = np.tile(np.array(numbers)[:, None], (1, 1 if is_shared else count))
        self.keys = dice.integers(0, 2**62, count)
        self.world = world(is_flat)
        self.plane = tangent_plane(0.0, 0.0, 0.0)
        self.scene = scene_of(self.world, DT, self.plane)
        self.traces = np.zeros((len(TRACE), count))
        self.traces[:3] = self.state[:3]
        self.row = np.zeros(1, FLEET)
        for key in ("state", "command", "parameters", "traces"):
            self.row[key] = grid_of(getattr(self, key))
        self.row["keys"], self.row["scene"] = address_of(self.keys), address_of(self.scene)
        self.row["needs_tick"] = self.model.needs_tick_with(self.parameters)

    def run(self, address: int, begin: int, end: int, tick: int, ticks: int) -> None:
        row, traces = self.row, np.ascontiguousarray(self.traces[:, begin:end])
        row["traces"] = grid_of(traces)
        row["begin"], row["end"], row["tick"], row["ticks"] = begin, end, tick, ticks
        call_now(address, address_of(row))
        self.traces[:, begin:end] = traces


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["drone", "rover"]),
    st.integers(1, 200),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([0.0, 0.7]),
    st.booleans(),
    st.data(),
)
def test_robots_side_by_side_move_as_one_by_one(name, count, ticks, is_flat, gusts, is_shared, data):
    begin = data.draw(st.integers(0, count - 1))
    end, seed = data.draw(st.integers(begin + 1, count)), data.draw(st.integers(0, 2**32))
    one, many = (Robots(name, count, seed, is_flat, gusts, is_shared) for _ in range(2))
    for tick in range(5, 5 + ticks):
        one.run(advance_address(one.model), begin, end, tick, 1)
        for i in range(begin, end):
            robot, trace = state_at(one.state, i), trace_at(one.traces, i)
            x, y, z = robot.x - trace.x, robot.y - trace.y, robot.z - trace.z
            trace.farthest = max(trace.farthest, x * x + y * y + z * z)
    many.run(advance_many_address(many.model), begin, end, 5, ticks)
    assert np.array_equal(one.state, many.state)
    assert np.array_equal(one.traces[:3], many.traces[:3])
    assert (one.traces[3] <= many.traces[3]).all()  # what goes one by one after all may be thought farther away
    if name == "drone":
        assert np.array_equal(one.traces, many.traces)


@pytest.mark.parametrize("name", ["drone", "rover"])
def test_ticks_in_one_call_are_ticks_one_by_one(name):
    one, many = (Robots(name, 7, 3, False, 0.5, False) for _ in range(2))
    for tick in range(30):
        one.run(advance_address(one.model), 0, 7, tick, 1)
    many.run(advance_address(many.model), 0, 7, 0, 30)
    assert np.array_equal(one.state, many.state)


def test_contacts_without_robots_and_without_a_scenario():
    """An empty world is a world."""
    here = world(True)
    contacts = Contacts([], {}, here, scene_of(here, DT, tangent_plane(0.0, 0.0, 0.0)), False)
    assert (contacts.names, contacts.has_news, contacts.take_news()) == ((), False, [])


def test_a_robot_that_nothing_stops_is_left_alone_and_one_that_is_stopped_stands():
    here, model = world(True), Drone.engine
    state = np.zeros((model.rows, 2))
    state[:3, 0], state[:3, 1] = (2.0, 2.0, 1.0), (2.0, 4.0, 1.0)
    bodies = {name: Body((0.0, 0.0, 0.0), (0.5, 0.5, 0.2)) for name in ("a", "b")}
    movers = [Mover(name, model, state, column) for column, name in enumerate(bodies)]
    scene = scene_of(here, DT, tangent_plane(0.0, 0.0, 0.0))
    contacts = Contacts(movers, bodies, here, scene, True)
    row = contacts._row[0]
    call_now(int(row.remember), contacts.address)
    state[1, 1] += 0.5
    state[1, 0] += 2.4  # into where the other was: it goes first
    call_now(int(row.settle), contacts.address)
    first, second = state_at(state, 0), state_at(state, 1)
    assert first.is_stopped == 1.0
    assert first.y == pytest.approx(4.0 - 0.5, abs=1e-6)
    assert second.is_stopped == 0.0
    assert second.y == 4.5
    assert first.contacts == 1.0
    assert contacts.touching(0) == ("b",)
