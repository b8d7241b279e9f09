"""Where plug-ins written for version 0.1 import from; see `microsim.sensors`, `microsim.generators`."""

from microsim.generators.generator import Generator
from microsim.sensors.sensor import Sensor

__all__ = ["Generator", "Sensor"]
