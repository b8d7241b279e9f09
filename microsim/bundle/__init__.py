"""World bundles: a folder with Gaussians, heights, a drivable area, sensors; read-only, mapped, checked before use.

    load_bundle("oval") -> Bundle           a shipped name, a folder, or its world.yaml; BundleError lists every problem
    check_bundle("my_world") -> [Problem]   errors and warnings (`is_warning`), each with file, line, rule and remedy

`microsim.bundle.bundle_model` describes a Bundle, `microsim.bundle.rules` lists every rule; `bundle.drivable`
(`microsim.engine.drivable`) says whether a point is on a road.
"""

from microsim.bundle.bundle_loading import check_bundle, find_bundle, is_bundle, load_bundle
from microsim.bundle.bundle_model import (
    Bundle,
    Gaussians,
    Heightmap,
    RenderConfig,
    StartPose,
    StaticMesh,
    Timebase,
    Vehicle,
)
from microsim.bundle.calibration import CameraCalibration, Extrinsics, LidarCalibration
from microsim.bundle.rules import RULES

__all__ = [
    "RULES",
    "Bundle",
    "CameraCalibration",
    "Extrinsics",
    "Gaussians",
    "Heightmap",
    "LidarCalibration",
    "RenderConfig",
    "StartPose",
    "StaticMesh",
    "Timebase",
    "Vehicle",
    "check_bundle",
    "find_bundle",
    "is_bundle",
    "load_bundle",
]
