"""Where plug-ins written for version 0.1 import from; the class is in `microsim.robots`."""

from microsim.robots.car import Bicycle
from microsim.robots.declaration import ROBOTS as _REGISTRY
from microsim.robots.declaration import Robot
from microsim.robots.drone import Drone
from microsim.robots.rover import Rover

ROBOTS = _REGISTRY.built_in

__all__ = ["Bicycle", "Drone", "Robot", "Rover"]
