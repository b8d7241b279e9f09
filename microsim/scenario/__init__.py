"""Scenarios: YAML in, frozen and validated models out."""

from typing import Any

from microsim.documents.values import CLASS_NAMES
from microsim.robots.robot import Pose, Robot, Start
from microsim.scenario.loading import load_scenario
from microsim.scenario.models import Frames, Radio, Rssi, Scenario, Wind, WorldTopics
from microsim.scenario.world_models import (
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
    from microsim.scenario import scenario_schema

    return scenario_schema.json_schema()


__all__ = [
    "CLASS_NAMES",
    "Billboard",
    "Box",
    "Circle",
    "CirclePatch",
    "Cylinder",
    "ElevationFile",
    "FlatElevation",
    "Frames",
    "HillsElevation",
    "Map",
    "PolygonPatch",
    "Pose",
    "Radio",
    "Rectangle",
    "RectanglePatch",
    "Robot",
    "Rssi",
    "Scenario",
    "Start",
    "SurfaceTypes",
    "Triangle",
    "Wind",
    "WorldTopics",
    "json_schema",
    "load_scenario",
]
