from microsim.robots.declaration import COMMON_SENSORS
from microsim.sensors.camera import Camera
from microsim.sensors.declaration import Mount, MountedSensor, SensorBlock
from microsim.sensors.gps import Gps
from microsim.sensors.lidar import Lidar
from microsim.sensors.odometry import Odometry
from microsim.sensors.plugin import PluginSensor
from microsim.sensors.range import Range
from microsim.sensors.scan import Scan

SENSORS = {name: sensor.settings for name, sensor in COMMON_SENSORS.items()}
__all__ = [
    "Camera",
    "Gps",
    "Lidar",
    "Mount",
    "MountedSensor",
    "Odometry",
    "PluginSensor",
    "Range",
    "Scan",
    "SensorBlock",
]
