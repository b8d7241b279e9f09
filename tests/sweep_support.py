"""A small world and mission for tests of sweeps: a rover in a walled yard, a drone above it."""

from pathlib import Path
from typing import Any

from microsim.parts.sweep.plan import Plan, load_sweep, make_plan

YARD = """
name: yard
map: {size_xy_cells: [20, 20]}
obstacles: [{type: box, center: [15.5, 10.5, 0], size: [1, 8, 1]}]
world_topics: {occupancy_hz: 0, markers_hz: 0}
wind: {gust_sigma: 0.5}
robots:
  drone: {start: {map_pose: {x: 5, y: 5, z: 5}}, camera: null}
  rover: {start: {map_pose: {x: 5, y: 10.5, yaw: 0}}}
"""
DRIVE = """
duration: 2
do:
  - {robot: drone, command: {vx: 1, yaw_rate: 0.3}}
  - {robot: rover, command: {v: 1.5}}
  - {at: 0.5, robot: drone, radio: "ping {n}", every: 0.1, times: 10}
"""
METRICS = ["path_length", "collisions", "displacement.drone", "radio_drop", "digest"]

# A sensor that does what BODY says when it is read for the first time in a run.
PLUGIN = """
import os, signal, time
from pathlib import Path
from pydantic import BaseModel
from microsim.sensors.sensor import PythonSensor

class Options(BaseModel):
    folder: str = "."

class Odd:
    def __init__(self, context):
        self.first, self.context = True, context

    def update(self, dt):
        pass

    def publish(self):
        if self.first:
            self.first = False
            folder, noise = Path(self.context.options["folder"]), self.context.normals()[0]
            BODY
        return {"fluid_pressure": 7.0, "variance": 0.0}

SENSOR = PythonSensor(name="odd", message_type="sensor_msgs/msg/FluidPressure", create=Odd, options=Options)
"""


def write_yard(folder: Path, body: str | None = None) -> None:
    """`yard.yaml` and `drive.yaml`; with a plug-in sensor if it has something to do."""
    world = YARD
    if body is not None:
        (folder / "odd.py").write_text(PLUGIN.replace("BODY", body))
        world = world.replace("camera: null", f"camera: null, sensors: {{odd: {{type: odd, hz: 1, folder: {folder}}}}}")
        world += "plugins: [.]\n"
    (folder / "yard.yaml").write_text(world)
    (folder / "drive.yaml").write_text(DRIVE)


def plan_of(folder: Path, **keys: Any) -> Plan:
    """Of a sweep in the yard."""
    written = {"scenario": str(folder / "yard.yaml"), "mission": str(folder / "drive.yaml"), "metrics": METRICS, **keys}
    return make_plan(load_sweep(written))
