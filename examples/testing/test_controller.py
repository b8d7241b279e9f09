"""These tests pass."""

import pytest
from controller import Controller


@pytest.mark.microsim("obstacles_arena", seed=3)
def test_the_rover_keeps_its_distance(sim):
    sim.pilot = Controller(sim)
    sim.never_closer_than("rover", 0.4)
    sim.always(lambda: not sim.touching("rover"), "the rover touches nothing")
    sim.run(30)


@pytest.mark.microsim("obstacles_arena", seed=3)
def test_the_rover_leaves_its_corner(sim):
    start = sim.state("rover")
    sim.pilot = Controller(sim)
    sim.eventually(lambda: sim.state("rover").x > start.x + 3.0, within=30)
    sim.assert_digest()


@pytest.mark.microsim("flat")
def test_a_mission_from_python(sim):
    sim.fly("hover")
