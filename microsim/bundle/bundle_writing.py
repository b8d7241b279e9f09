"""Writes bundles as folders and as single files: the same content gives the same bytes, on every machine."""

from __future__ import annotations

import json
import math
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_files import ENTRY, MAX_TEXT_BYTES, name_problem
from microsim.bundle.bundle_loading import load_bundle
from microsim.bundle.bundle_model import Bundle, Heightmap
from microsim.bundle.calibration import CalibrationFile
from microsim.bundle.mapped_arrays import ROTATION, ROTATION_W_FIRST, columns_of
from microsim.bundle.road_map import LANES_FILE
from microsim.documents.yaml_text import read_yaml, to_yaml
from microsim.errors import MicroSimError, UsageError

Floats: TypeAlias = npt.NDArray[np.float64]
Progress: TypeAlias = Callable[[int, int], None]  # bytes done, bytes in total

VERSION = "1.0.0"
MAX_ARCHIVED_FILES = 1000
MAX_UNPACKED_BYTES = 4_000_000_000  # twice the recommended size of a bundle
_PIECE = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a ZIP


@dataclass
class BundleContent:
    """What a new bundle consists of; mappings are written as they are, with their version in front."""

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
    origin_wgs84: tuple[float, float, float] | None = (35.6586, 139.7454, 40.0)  # None: not known
    mesh: tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]] | None = None  # vertices, triangles
    timebase: Mapping[str, Any] = field(default_factory=lambda: {"physics_hz": 100})
    vehicle: Mapping[str, Any] | None = None
    lanes: str | None = None  # the text of lanes.geojson
    render: Mapping[str, Any] = field(default_factory=dict)


def write_bundle(folder: Path, content: BundleContent) -> None:
    """A new bundle in a folder that does not exist yet, or is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} already exists; choose another folder")
    with complete_or_absent(folder) as part:
        for name, data in bundle_files(content).items():
            file = part / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def copy_bundle(model: Bundle, folder: Path, name: str) -> None:
    """Every file of a bundle, under its new name."""
    for target, file in model.files.items():
        place = folder / target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    with changed_entry(folder) as data:
        data["name"] = name


@contextmanager
def changed_entry(folder: Path) -> Iterator[dict[str, Any]]:
    """What `world.yaml` of a bundle says, to be changed: it is written again in the end."""
    world = folder / ENTRY
    data = read_yaml(world.read_text(encoding="utf-8"), str(world)).data
    yield data
    world.write_text(to_yaml(data, one_line=False), encoding="utf-8")


@contextmanager
def complete_or_absent(folder: Path) -> Iterator[Path]:
    """A place beside `folder` to write into, which becomes `folder` in the end; a failure leaves nothing behind."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished_", dir=folder.parent) as beside:
            part = Path(beside) / "bundle"
            yield part
            part.rename(folder)
    except OSError as error:  # of a full disk it names no file, of others one that is gone
        raise OSError(error.errno, error.strerror or str(error), str(folder)) from None


def bundle_files(content: BundleContent) -> dict[str, bytes]:
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
    if content.lanes is not None:
        geometry["lanes"] = LANES_FILE
        files[LANES_FILE] = content.lanes.encode()
    world = {
        "version": VERSION,
        "name": content.name,
        "metadata": "metadata.json",
        "gaussians": {"background": "gaussians/background.splat.ply", "render_config": "gaussians/render_config.json"},
        "geometry": geometry,
        "sensors": {"calibration": "sensors/calibration.yaml", "tf_static": "sensors/tf_static.json"},
        "sim": {"timebase": "sim/timebase.yaml"},
        **({"vehicle": dict(content.vehicle)} if content.vehicle else {}),
    }
    sensors = CalibrationFile.model_validate(content.calibration)
    grid = Heightmap(content.heights, content.resolution_m, content.west, content.south)
    return {
        ENTRY: to_yaml(world, one_line=False).encode(),
        "metadata.json": json_bytes(_metadata(content)),
        "gaussians/background.splat.ply": splat_ply(content.gaussians, content.sh_degree),
        "gaussians/render_config.json": json_bytes(
            {"version": VERSION, "sh_degree": content.sh_degree, **content.render}
        ),
        "geometry/heightmap.bin": grid.values.astype("<f4").tobytes(),
        "geometry/heightmap.yaml": heightmap_yaml(grid),
        "geometry/drivable.geojson": geojson_bytes(content.polygons),
        **files,
        "sensors/calibration.yaml": yaml_bytes({"version": VERSION, **content.calibration}),
        "sensors/tf_static.json": json_bytes(sensors.tf_static()),
        "sim/timebase.yaml": yaml_bytes({"version": VERSION, **content.timebase}),
    }


def _metadata(content: BundleContent) -> dict[str, Any]:
    latitude, longitude, altitude = content.origin_wgs84 or (0.0, 0.0, 0.0)
    return {
        "version": VERSION,
        "name": content.name,
        "description": content.description,
        "coordinate_system": "ENU",
        "units": "m",
        "origin": {"latitude_deg": latitude, "longitude_deg": longitude, "altitude_m": altitude},
        **({} if content.origin_wgs84 else {"origin_is_known": False}),
    }


def heightmap_yaml(grid: Heightmap) -> bytes:
    rows, columns = grid.values.shape
    shape = {"width": columns, "height": rows, "resolution_m": grid.resolution_m, "origin": [grid.west, grid.south]}
    return yaml_bytes({"version": VERSION, **shape, "dtype": "float32", "byte_order": "little",
                       "row_order": "south_to_north"})  # fmt: skip


def yaml_bytes(data: Any) -> bytes:
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


def splat_header(count: int, sh_degree: int, w_first: bool = False) -> bytes:
    """Of rows whose rotations are [x, y, z, w]; `w_first`: as other programs name them, with w as `rot_0`."""
    columns = list(columns_of(sh_degree))
    if w_first:
        columns[ROTATION] = ROTATION_W_FIRST
    return _header([f"element vertex {count}", *(f"property float {name}" for name in columns)])


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


# ---- a bundle as one file --------------------------------------------------------------------------------------------


def pack(source: str | Path, file: Path, progress: Progress | None = None) -> int:
    """Writes the files of a valid bundle, and no others, into a ZIP without compression; returns its size."""
    bundle = load_bundle(source)
    if file.exists():
        raise UsageError(f"{file} already exists; choose another file")
    total = sum(path.stat().st_size for path in bundle.files.values())
    done = 0
    unfinished = file.with_name(file.name + ".part")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in sorted(bundle.files):
                info = zipfile.ZipInfo(name, _EPOCH)
                info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                info.file_size = bundle.files[name].stat().st_size
                with bundle.files[name].open("rb") as reading, archive.open(info, "w") as writing:
                    while piece := reading.read(_PIECE):
                        writing.write(piece)
                        done += len(piece)
                        if progress is not None:
                            progress(done, total)
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return file.stat().st_size


def unpack(file: Path, folder: Path, max_bytes: int = MAX_UNPACKED_BYTES, progress: Progress | None = None) -> None:
    """Into a new folder, which appears only once it is complete and valid; sizes are checked before writing."""
    if folder.exists():
        raise UsageError(f"{folder} already exists; choose another folder")
    try:
        with zipfile.ZipFile(file) as archive:
            entries = _checked(file, archive, max_bytes)
            folder.parent.mkdir(parents=True, exist_ok=True)
            needed, free = sum(entry.file_size for entry in entries), shutil.disk_usage(folder.parent).free
            if needed > free:
                raise UsageError(f"{file}: unpacked it takes {needed:,} bytes, {folder.parent} has {free:,} left")
            with complete_or_absent(folder) as part:
                _extract(archive, entries, part, progress)
                load_bundle(part)
    except MicroSimError:
        raise
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise UsageError(f"{file}: not a readable ZIP archive: {error}") from None
    except OSError as error:
        raise UsageError(f"{error.filename or file}: {error.strerror or error}") from None


def _checked(file: Path, archive: zipfile.ZipFile, max_bytes: int) -> list[zipfile.ZipInfo]:
    """The files of the archive, if every name follows the rules of bundles and the declared sizes are within bounds."""
    if not all(entry.filename for entry in archive.infolist()):
        raise UsageError(f"{file}: damaged: an entry has no name")
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > MAX_ARCHIVED_FILES:
        raise UsageError(f"{file}: expected at most {MAX_ARCHIVED_FILES} files, found {len(entries)}")
    if sum(entry.file_size for entry in entries) > max_bytes:
        raise UsageError(f"{file}: unpacked it is larger than {max_bytes:,} bytes; allow more with --max-size")
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise UsageError(f"{file}: {entry.filename!r} is not a regular file")
        problem = name_problem(entry.filename)
        if problem is not None:
            raise UsageError(f"{file}: {problem[1]} [{problem[0]}]")
        most = MAX_TEXT_BYTES.get(Path(entry.filename).suffix, max_bytes)
        if entry.file_size > most:
            found = f"found {entry.file_size:,}"
            raise UsageError(f"{file}: expected at most {most:,} bytes of {entry.filename!r}, {found}")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise UsageError(f"{file}: a name occurs twice")
    if ENTRY not in names:
        raise UsageError(f"{file}: it has no {ENTRY}")
    return entries


def _extract(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], folder: Path, progress: Progress | None) -> None:
    """Stops as soon as an entry has more bytes than it declares."""
    total, done = sum(entry.file_size for entry in entries), 0
    for entry in entries:
        target = folder / entry.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        left = entry.file_size
        with archive.open(entry) as reading, target.open("xb") as writing:
            while piece := reading.read(_PIECE):
                left -= len(piece)
                if left < 0:
                    raise UsageError(f"{entry.filename!r} is larger than the archive declares")
                writing.write(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, total)
