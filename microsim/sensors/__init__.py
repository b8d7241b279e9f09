"""Sensors, one file each. `SENSORS` finds them: built in, installed, or in a folder that the user named."""

from microsim.registry import Registry
from microsim.sensors.sensor import Sensor

SENSORS: Registry[Sensor] = Registry(
    "SENSOR",
    "microsim.sensors",
    "microsim.sensors",
    "PythonSensor(...), KernelSensor(...) or Instrument(...)",
    lambda part: isinstance(part, Sensor),
    order=lambda part: part.position,
)
