from microsim.sensors.declaration import SensorContext
from microsim.sensors.plugin import PluginMemory

__all__ = ["PluginMemory", "SensorContext"]
