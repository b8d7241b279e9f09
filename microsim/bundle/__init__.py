"""World bundles: a folder with Gaussians, heights, a drivable area, sensors; read-only, mapped, checked before use.

    load_bundle("oval") -> Bundle           a shipped name, a folder, or its world.yaml; BundleError lists every problem
    check_bundle("my_world") -> [Problem]   errors and warnings (`is_warning`), each with file, line, rule and remedy

What a Bundle holds is in `microsim.bundle.models`; who may drive where is asked of `bundle.drivable`
(`microsim.engine.drivable`); every rule is in `microsim.bundle.rules`.
"""

from microsim.bundle.loading import check_bundle, find_bundle, is_bundle, load_bundle
from microsim.bundle.models import (
    Bundle,
    CameraCalibration,
    Extrinsics,
    Gaussians,
    Heightmap,
    LidarCalibration,
    Mesh,
    RenderConfig,
    StartPose,
    Timebase,
    Vehicle,
)
from microsim.bundle.rules import RULES

__all__ = [
    "RULES",
    "Bundle",
    "CameraCalibration",
    "Extrinsics",
    "Gaussians",
    "Heightmap",
    "LidarCalibration",
    "Mesh",
    "RenderConfig",
    "StartPose",
    "Timebase",
    "Vehicle",
    "check_bundle",
    "find_bundle",
    "is_bundle",
    "load_bundle",
]
