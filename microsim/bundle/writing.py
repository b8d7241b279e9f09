"""Writes bundles: the same content gives the same bytes, on every machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.bundle.calibration import Sensors, tf_static
from microsim.bundle.files import ENTRY
from microsim.bundle.gaussians import columns_of
from microsim.documents.yaml_text import to_yaml
from microsim.errors import UsageError

Floats = npt.NDArray[np.float64]

VERSION = "1.0.0"


@dataclass
class Content:
    """What a bundle is to be made of; mappings are written as they are, with their version in front."""

    name: str
    description: str
    heights: npt.NDArray[np.float32]  # (ny, nx) [m] row 0 in the south
    resolution_m: float
    west: float
    south: float
    polygons: Sequence[tuple[Sequence[Floats], int]]  # rings (outer first, closed), priority
    gaussians: npt.NDArray[np.float32]  # (n, 14 + rest)
    sh_degree: int
    calibration: Mapping[str, Any]
    sensors: Sensors
    origin_wgs84: tuple[float, float, float] = (35.6586, 139.7454, 40.0)
    mesh: tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]] | None = None  # vertices, triangles
    timebase: Mapping[str, Any] = field(default_factory=lambda: {"physics_hz": 100})
    vehicle: Mapping[str, Any] | None = None
    render: Mapping[str, Any] = field(default_factory=dict)


def write_bundle(folder: Path, content: Content) -> None:
    """A new bundle in a folder that does not exist yet, or is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already; name a new folder")
    for name, data in bundle_files(content).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def bundle_files(content: Content) -> dict[str, bytes]:
    """Name and bytes of every file of the bundle."""
    geometry = {
        "heightmap": "geometry/heightmap.bin",
        "heightmap_config": "geometry/heightmap.yaml",
        "drivable": "geometry/drivable.geojson",
    }
    files: dict[str, bytes] = {}
    if content.mesh is not None:
        geometry["static_mesh"] = "geometry/static_mesh.ply"
        files["geometry/static_mesh.ply"] = mesh_ply(*content.mesh)
    world = {
        "version": VERSION,
        "name": content.name,
        "metadata": "metadata.json",
        "gaussians": {
            "background": "gaussians/background.splat.ply",
            "render_config": "gaussians/render_config.json",
        },
        "geometry": geometry,
        "sensors": {"calibration": "sensors/calibration.yaml", "tf_static": "sensors/tf_static.json"},
        "sim": {"timebase": "sim/timebase.yaml"},
        **({"vehicle": dict(content.vehicle)} if content.vehicle else {}),
    }
    rows, columns = content.heights.shape
    heightmap = {
        "version": VERSION, "width": columns, "height": rows, "resolution_m": content.resolution_m,
        "origin": [content.west, content.south], "dtype": "float32", "byte_order": "little",
        "row_order": "south_to_north",
    }  # fmt: skip
    return {
        ENTRY: to_yaml(world, one_line=False).encode(),
        "metadata.json": json_bytes(_metadata(content)),
        "gaussians/background.splat.ply": splat_ply(content.gaussians, content.sh_degree),
        "gaussians/render_config.json": json_bytes(
            {"version": VERSION, "sh_degree": content.sh_degree, **content.render}
        ),
        "geometry/heightmap.bin": content.heights.astype("<f4").tobytes(),
        "geometry/heightmap.yaml": _yaml(heightmap),
        "geometry/drivable.geojson": geojson_bytes(content.polygons),
        **files,
        "sensors/calibration.yaml": _yaml({"version": VERSION, **content.calibration}),
        "sensors/tf_static.json": json_bytes(tf_static(content.sensors)),
        "sim/timebase.yaml": _yaml({"version": VERSION, **content.timebase}),
    }


def _metadata(content: Content) -> dict[str, Any]:
    latitude, longitude, altitude = content.origin_wgs84
    return {
        "version": VERSION,
        "name": content.name,
        "description": content.description,
        "coordinate_system": "ENU",
        "units": "m",
        "origin": {"latitude_deg": latitude, "longitude_deg": longitude, "altitude_m": altitude},
    }


def _yaml(data: Any) -> bytes:
    return to_yaml(data).encode()


def json_bytes(data: Any) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def geojson_bytes(polygons: Sequence[tuple[Sequence[Floats], int]]) -> bytes:
    """One feature a line: readable, and differences show."""
    lines = [
        json.dumps(
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [ring.tolist() for ring in rings]},
                "properties": {"type": "drivable", "priority": priority},
            }
        )
        for rings, priority in polygons
    ]
    crs = json.dumps({"type": "name", "properties": {"name": "map_frame"}})
    features = ",\n".join(lines)
    return f'{{"type": "FeatureCollection",\n"crs": {crs},\n"features": [\n{features}\n]}}\n'.encode()


def splat_ply(gaussians: npt.NDArray[np.float32], sh_degree: int) -> bytes:
    columns = columns_of(sh_degree)
    if gaussians.ndim != 2 or gaussians.shape[1] != len(columns):
        raise UsageError(f"sh_degree {sh_degree} needs {len(columns)} columns, found the shape {gaussians.shape}")
    return splat_header(len(gaussians), sh_degree) + gaussians.astype("<f4").tobytes()


def splat_header(count: int, sh_degree: int) -> bytes:
    return _header([f"element vertex {count}", *(f"property float {name}" for name in columns_of(sh_degree))])


def mesh_ply(vertices: npt.NDArray[np.float32], triangles: npt.NDArray[np.int32]) -> bytes:
    lines = [f"element vertex {len(vertices)}", *(f"property float {axis}" for axis in "xyz")]
    lines += [f"element face {len(triangles)}", "property list uchar int vertex_indices"]
    faces = np.zeros(len(triangles), [("count", "u1"), ("corners", "<i4", 3)])
    faces["count"], faces["corners"] = 3, triangles
    return _header(lines) + vertices.astype("<f4").tobytes() + faces.tobytes()


def _header(lines: Sequence[str]) -> bytes:
    """Padded with a comment, so that the data begins at a multiple of 64 bytes and can be mapped aligned."""
    before, after = "ply\nformat binary_little_endian 1.0\ncomment ", "\n" + "\n".join([*lines, "end_header\n"])
    words = "MicroSim"
    length = len(before) + len(words) + len(after)
    return (before + words + "." * (64 * math.ceil(length / 64) - length) + after).encode("ascii")
