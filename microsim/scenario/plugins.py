"""Where plug-ins written for version 0.1 import from; see `microsim.sensors`, `microsim.generators`."""

from microsim.generators.declaration import Generator
from microsim.sensors.declaration import Sensor

__all__ = ["Generator", "Sensor"]
