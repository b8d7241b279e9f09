"""Calibrations for worlds that are made: a block for `calibration.yaml`, and the sensors it describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from microsim.bundle.calibration import Sensors, read_calibration
from microsim.bundle.report import Report, Source
from microsim.documents.yaml_text import Document

FORWARD = (-0.5, 0.5, -0.5, 0.5)  # from x right, y down, z forward to base_link: the optical axis along x


def camera(xyz: tuple[float, float, float], quat: tuple[float, ...] = FORWARD, **changes: Any) -> dict[str, Any]:
    """A plain camera of 640 x 480 that looks forward."""
    return {
        "camera_convention": "opencv",
        "width": 640,
        "height": 480,
        "intrinsics": {"fx": 400.0, "fy": 400.0, "cx": 319.5, "cy": 239.5},
        "rate_hz": 12,
        "extrinsics": {"parent": "base_link", "translation": list(xyz), "rotation_quat": list(quat)},
        **changes,
    }


def lidar(xyz: tuple[float, float, float], elevations_deg: list[float], columns: int, **changes: Any) -> dict[str, Any]:
    return {
        "elevations_deg": elevations_deg,
        "columns": columns,
        "rate_hz": 20,
        "range_min_m": 0.5,
        "range_max_m": 100.0,
        "range_sigma_m": 0.02,
        "dropout_probability": 0.0,
        "extrinsics": {"parent": "base_link", "translation": list(xyz), "rotation_quat": [0.0, 0.0, 0.0, 1.0]},
        **changes,
    }


def sensors_of(calibration: Mapping[str, Any]) -> Sensors:
    """The sensors that a calibration describes."""
    report = Report()
    source = Source(report, "calibration", Path("calibration"), Document(dict(calibration)))
    sensors = read_calibration(source)
    assert not report.error_count, report.problems
    return sensors
