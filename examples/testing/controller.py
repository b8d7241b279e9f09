"""A rover's controller, as a project of yours might have one: drives on, and turns away from what is ahead."""

import math


class Controller:
    """Call it with each tick's messages, as a pilot of a simulation."""

    NEAR_M, CLEAR_M = 3.0, 5.0  # turns below one, drives on above the other

    def __init__(self, sim):
        self.sim, self.is_turning = sim, False

    def __call__(self, messages):
        for message in messages:
            if message.topic == "/rover/range/front":
                self.drive(message.message.range)

    def drive(self, distance):
        if math.isnan(distance):  # a dropout: no news
            return
        self.is_turning = self.is_blocked(distance)
        self.sim.command("rover", v=0.0 if self.is_turning else 1.0, omega=0.8 if self.is_turning else 0.0)

    def is_blocked(self, distance):
        return distance < (self.CLEAR_M if self.is_turning else self.NEAR_M)
