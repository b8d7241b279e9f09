"""Where plug-ins written for version 0.1 import from; the class is in `microsim.robots`."""

from microsim.robots.declaration import Robot

__all__ = ["Robot"]
