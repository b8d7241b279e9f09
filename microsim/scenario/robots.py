"""Where plug-ins written for version 0.1 import from; the class is in `microsim.robots`."""

from microsim.robots.robot import Robot

__all__ = ["Robot"]
