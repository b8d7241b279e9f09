"""Scenarios: YAML in, frozen and validated models out."""

from typing import Any

from microsim.documents.values import CLASS_NAMES
from microsim.scenario.loading import load_scenario
from microsim.scenario.models import Frames, Radio, Rssi, Scenario, Wind, WorldTopics
from microsim.scenario.robots import ROBOTS, Drone, Pose, Robot, Rover, Start
from microsim.scenario.sensors import (
    SENSORS,
    Camera,
    CameraLatency,
    CameraNoise,
    Distortion,
    Gps,
    Imu,
    Intrinsics,
    Mount,
    MountedSensor,
    Odometry,
    OdometryDrift,
    PluginSensor,
    Range,
    Resolution,
    Scan,
    SensorBlock,
)
from microsim.scenario.world import (
    Billboard,
    Box,
    Circle,
    CirclePatch,
    Cylinder,
    ElevationFile,
    FlatElevation,
    HillsElevation,
    Map,
    PolygonPatch,
    Rectangle,
    RectanglePatch,
    SurfaceTypes,
    Triangle,
)


def json_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of what `load_scenario` takes, for editors."""
    from microsim.scenario import schema

    return schema.json_schema()


__all__ = [
    "CLASS_NAMES",
    "ROBOTS",
    "SENSORS",
    "Billboard",
    "Box",
    "Camera",
    "CameraLatency",
    "CameraNoise",
    "Circle",
    "CirclePatch",
    "Cylinder",
    "Distortion",
    "Drone",
    "ElevationFile",
    "FlatElevation",
    "Frames",
    "Gps",
    "HillsElevation",
    "Imu",
    "Intrinsics",
    "Map",
    "Mount",
    "MountedSensor",
    "Odometry",
    "OdometryDrift",
    "PluginSensor",
    "PolygonPatch",
    "Pose",
    "Radio",
    "Range",
    "Rectangle",
    "RectanglePatch",
    "Resolution",
    "Robot",
    "Rover",
    "Rssi",
    "Scan",
    "Scenario",
    "SensorBlock",
    "Start",
    "SurfaceTypes",
    "Triangle",
    "Wind",
    "WorldTopics",
    "json_schema",
    "load_scenario",
]
