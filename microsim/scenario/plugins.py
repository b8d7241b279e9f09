"""Where plug-ins written for version 0.1 import from; the classes are in `microsim.sensors` and `microsim.generators`."""

from microsim.generators import GENERATORS
from microsim.generators.declaration import Generator
from microsim.robots.declaration import ROBOTS
from microsim.sensors import SENSORS
from microsim.sensors.declaration import Sensor

find_sensor, sensor_names = SENSORS.find, SENSORS.plugin_names
find_generator, generator_names = GENERATORS.find, GENERATORS.names
find_robot, robot_names = ROBOTS.find, ROBOTS.plugin_names

__all__ = ["Generator", "Sensor"]
