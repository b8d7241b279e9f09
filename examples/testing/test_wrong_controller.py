"""This test fails, on purpose: see what it leaves in microsim-artefacts/."""

import pytest
from wrong_controller import WrongController


@pytest.mark.microsim("obstacles_arena", seed=3)
def test_the_rover_keeps_its_distance(sim):
    sim.pilot = WrongController(sim)
    sim.never_closer_than("rover", 0.4)
    sim.run(30)
