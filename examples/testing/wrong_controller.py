"""The same with a mistake, on purpose: centimetres where the sensor reports metres."""

from controller import Controller


class WrongController(Controller):
    NEAR_M, CLEAR_M = 0.03, 0.05
