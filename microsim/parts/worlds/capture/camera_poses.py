"""Where a capture's photographs were taken: poses of COLMAP, nerfstudio and the original trainer, and GPS."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import rotation_matrix
from microsim.errors import UsageError, os_errors, show

Floats: TypeAlias = npt.NDArray[np.float64]

MAX_CAMERAS = 1_000_000
MAX_POSE_BYTES = 2_000_000_000
DATA_PARSER_FILE = "dataparser_transforms.json"
_NERFSTUDIO_COLMAP = "colmap/sparse/0"
_COLMAP_PLACES = ("", "sparse/0", _NERFSTUDIO_COLMAP, "sparse", "distorted/sparse/0")
NO_POSES = "there are no camera poses; expected transforms.json, COLMAP's images.bin or images.txt, or cameras.json"
_FROM_OPENGL = np.diag([1.0, -1.0, -1.0])  # cameras with y up and z backward, as nerfstudio writes them


@dataclass(frozen=True)
class CameraPoses:
    """Cameras in the frame of the capture. Camera axes: x right, y down, z forward."""

    names: tuple[str, ...]
    positions: Floats  # (n, 3)
    rotations: Floats  # (n, 3, 3) from camera axes to the capture's
    files: tuple[Path, ...] = field(default=())  # they were read from

    def __len__(self) -> int:
        return len(self.names)

    @property
    def words(self) -> str:
        """How many there are, and where they come from."""
        files = " and ".join(file.name for file in self.files)
        return f"{len(self)} in {files}" + (f", as they are (no {DATA_PARSER_FILE})" if self.is_bare else "")

    @property
    def is_bare(self) -> bool:
        """Whether they may be in another frame than the Gaussians: nerfstudio trains in one of its own."""
        return bool(self.files) and self.files[-1].name == "transforms.json"


def read_cameras(folder: Path) -> CameraPoses | None:
    """Those of the folder, sorted by name, in the frame of its Gaussians; None if there are none."""
    transforms = folder / "transforms.json"
    if transforms.is_file():
        return _sorted(_from_nerfstudio(transforms))
    for place in _COLMAP_PLACES:
        for name, read in (("images.bin", _colmap_binary), ("images.txt", _colmap_text)):
            file = folder / place / name
            if file.is_file():
                return _sorted(_trained_by_nerfstudio(folder, _from_colmap(file, read(file))))
    cameras = folder / "cameras.json"
    return _sorted(_from_original_trainer(cameras)) if cameras.is_file() else None


def _sorted(poses: CameraPoses) -> CameraPoses:
    order = sorted(range(len(poses)), key=lambda index: poses.names[index])
    names = tuple(poses.names[index] for index in order)
    return CameraPoses(names, poses.positions[order], poses.rotations[order], poses.files)


# ---- COLMAP ----------------------------------------------------------------------------------------------------------

_Entry: TypeAlias = tuple[
    str, tuple[float, ...]
]  # name; rotation w, x, y, z and translation, from the world to the camera


def _from_colmap(file: Path, entries: Iterator[_Entry]) -> CameraPoses:
    names, positions, rotations = [], [], []
    for name, (w, x, y, z, *shift) in entries:
        norm = float(np.sqrt(w * w + x * x + y * y + z * z))
        if not 1e-6 < norm < 1e6 or not np.isfinite(shift).all():
            raise UsageError(f"{file}: the pose of {name!r} is not a rotation and a translation")
        turn = rotation_matrix(x / norm, y / norm, z / norm, w / norm).T
        names.append(name)
        rotations.append(turn)
        positions.append(-turn @ np.array(shift))
    if not names:
        raise UsageError(f"{file}: it has no images")
    return CameraPoses(tuple(names), np.array(positions), np.array(rotations), (file,))


def _colmap_text(file: Path) -> Iterator[_Entry]:
    """Two lines for each image; the second one, which may be empty, lists its points."""
    is_pose = True
    for number, line in enumerate(_text(file).splitlines(), 1):
        if line.startswith("#"):
            continue
        if is_pose:
            words = line.split(maxsplit=9)
            if not words:
                continue
            try:
                yield words[9], tuple(float(word) for word in words[1:8])
            except (IndexError, ValueError):
                expected = "expected IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME"
                raise UsageError(f"{file}:{number}: {expected}, found {show(line[:80])}") from None
        is_pose = not is_pose


def _colmap_binary(file: Path) -> Iterator[_Entry]:
    data = _bytes(file)
    try:
        (count,), at = struct.unpack_from("<Q", data), 8
        if count > MAX_CAMERAS:
            raise UsageError(f"{file}: expected at most {MAX_CAMERAS:,} images, found {count:,}")
        for _ in range(count):
            numbers = struct.unpack_from("<i7di", data, at)
            end = data.index(b"\0", at + 64)
            name = data[at + 64 : end].decode("utf-8", "replace")
            (points,) = struct.unpack_from("<Q", data, end + 1)
            at = end + 9 + 24 * points
            if at > len(data):
                raise struct.error
            yield name, numbers[1:8]
    except (struct.error, ValueError):
        raise UsageError(f"{file}: the file is cut short or not a COLMAP model") from None


# ---- nerfstudio ------------------------------------------------------------------------------------------------------


def _from_nerfstudio(file: Path) -> CameraPoses:
    data = _json(file)
    frames = data.get("frames") if isinstance(data, dict) else None
    if not isinstance(frames, list) or not frames or len(frames) > MAX_CAMERAS:
        raise UsageError(f"{file}: expected 1 to {MAX_CAMERAS:,} entries under 'frames'")
    names, matrices = [], []
    for index, frame in enumerate(frames):
        matrix = frame.get("transform_matrix") if isinstance(frame, dict) else None
        names.append(str(frame.get("file_path", f"frame {index}")) if isinstance(frame, dict) else "")
        matrices.append(_matrix(file, f"frames[{index}].transform_matrix", matrix, (3, 4)))
    poses = np.array(matrices)
    turns, places = poses[:, :3, :3] @ _FROM_OPENGL, poses[:, :3, 3]
    files: tuple[Path, ...] = (file,)
    parser = file.with_name(DATA_PARSER_FILE)
    if parser.is_file():
        matrix, scale = _trained_frame(parser)
        scale /= _positive(file, "applied_scale", data.get("applied_scale", 1.0))  # the poses have it already
        turns, places = _as_trained((matrix, scale), *_as_found(file, data, turns, places))
        files = (file, parser)
    lengths = np.linalg.norm(turns, axis=1, keepdims=True)
    if not (lengths > 1e-9).all():
        raise UsageError(f"{file}: expected a rotation in the first three columns of every 'transform_matrix'")
    return CameraPoses(tuple(names), places, turns / lengths, files)


def _trained_by_nerfstudio(folder: Path, poses: CameraPoses) -> CameraPoses:
    """COLMAP's poses in the frame that nerfstudio trained in, if the folder says which one."""
    parser = folder / DATA_PARSER_FILE
    if not parser.is_file():
        return poses
    turns, places = _as_trained(_trained_frame(parser), poses.rotations, poses.positions)
    lengths = np.linalg.norm(turns, axis=1, keepdims=True)
    return CameraPoses(poses.names, places, turns / lengths, (*poses.files, parser))


def _as_found(file: Path, data: dict[str, Any], turns: Floats, places: Floats) -> tuple[Floats, Floats]:
    """Poses as they were before `ns-process-data` turned their world: the data parser's file begins there."""
    applied = data.get("applied_transform")
    if applied is None and (file.parent / _NERFSTUDIO_COLMAP).is_dir():  # older versions turned it and did not say so
        applied = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, -1, 0]]
    if applied is None:
        return turns, places
    matrix = _matrix(file, "applied_transform", applied, (3, 4))
    turn, move = matrix[:, :3], matrix[:, 3]
    if abs(float(np.linalg.det(turn))) < 1e-9:
        raise UsageError(f"{file}: 'applied_transform': expected a rotation, found {show(applied)}")
    back = np.linalg.inv(turn)
    return back @ turns, (places - move) @ back.T


def _trained_frame(file: Path) -> tuple[Floats, float]:
    """What nerfstudio did to the world of COLMAP, or of another program, before training: a matrix and a scale."""
    data = _json(file)
    given = data if isinstance(data, dict) else {}
    matrix = _matrix(file, "transform", given.get("transform"), (3, 4))
    return matrix, _positive(file, "scale", given.get("scale"))


def _as_trained(frame: tuple[Floats, float], turns: Floats, places: Floats) -> tuple[Floats, Floats]:
    matrix, scale = frame
    return matrix[:, :3] @ turns, (places @ matrix[:, :3].T + matrix[:, 3]) * scale


# ---- the original trainer --------------------------------------------------------------------------------------------


def _from_original_trainer(file: Path) -> CameraPoses:
    """`cameras.json` of a trained model: a list of positions and of rotations from camera axes to the world."""
    data = _json(file)
    if not isinstance(data, list) or not data or len(data) > MAX_CAMERAS:
        raise UsageError(f"{file}: expected a list of 1 to {MAX_CAMERAS:,} cameras; leave it out with --ignore-cameras")
    names, positions, rotations = [], [], []
    for index, entry in enumerate(data):
        given = entry if isinstance(entry, dict) else {}
        names.append(str(given.get("img_name", f"camera {index:06}")))
        positions.append(_numbers(file, f"[{index}].position", given.get("position"), (3,)))
        rotations.append(_numbers(file, f"[{index}].rotation", given.get("rotation"), (3, 3)))
    lengths = np.linalg.norm(np.array(rotations), axis=1, keepdims=True)
    if not (lengths > 1e-9).all():
        raise UsageError(f"{file}: expected a rotation as every 'rotation'")
    return CameraPoses(tuple(names), np.array(positions), np.array(rotations) / lengths, (file,))


# ---- numbers and text ------------------------------------------------------------------------------------------------


def _positive(file: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-9 < value < 1e9:
        raise UsageError(f"{file}: '{key}': expected a positive number, found {show(value)}")
    return float(value)


def _numbers(file: Path, key: str, value: Any, shape: tuple[int, ...]) -> Floats:
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.zeros(0)
    if array.shape != shape or not (np.abs(array) < 1e9).all():
        size = " x ".join(map(str, shape))
        raise UsageError(f"{file}: '{key}': expected {size} finite numbers, found {show(value)}")
    return array


def _matrix(file: Path, key: str, value: Any, rows: tuple[int, int]) -> Floats:
    try:
        matrix = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        matrix = np.zeros(0)
    if matrix.ndim != 2 or matrix.shape[0] not in rows or matrix.shape[1] != 4 or not (np.abs(matrix) < 1e9).all():
        raise UsageError(f"{file}: '{key}': expected a matrix of 4 x 4 finite numbers, found {show(value)}")
    return matrix[:3]


def _json(file: Path) -> Any:
    try:
        return json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON: {error}") from None


def _text(file: Path) -> str:
    return _bytes(file).decode("utf-8", "replace")


def _bytes(file: Path) -> bytes:
    with os_errors(f"{file} cannot be read"):
        if file.stat().st_size > MAX_POSE_BYTES:
            raise UsageError(f"{file}: expected at most {MAX_POSE_BYTES:,} bytes")
        return file.read_bytes()


# ---- GPS of the photographs ------------------------------------------------------------------------------------------

_GPS_BLOCK = 0x8825  # EXIF
_PHOTO_FOLDERS = ("images", "input", "")


def photo_positions(folder: Path, poses: CameraPoses) -> dict[int, tuple[float, float, float]]:
    """WGS 84 latitude and longitude [deg] and altitude [m] of the photographs that state it, by the camera's number."""
    found = {}
    for index, name in enumerate(poses.names):
        places = [folder / name, *(folder / place / Path(name).name for place in _PHOTO_FOLDERS)]
        file = next((place for place in places if _inside(folder, place) and place.is_file()), None)
        position = None if file is None else _exif_position(file)
        if position is not None:
            found[index] = position
    return found


def _inside(folder: Path, file: Path) -> bool:
    return file.resolve().is_relative_to(folder.resolve())


def _exif_position(file: Path) -> tuple[float, float, float] | None:
    from PIL import Image

    try:
        with Image.open(file) as image:
            block = image.getexif().get_ifd(_GPS_BLOCK)
        latitude, longitude = _degrees(block[2]), _degrees(block[4])
        altitude = float(block.get(6, 0.0)) * (-1.0 if block.get(5) in (1, b"\1") else 1.0)
    except Exception:  # Pillow raises anything on damaged photographs, which then have no position
        return None
    latitude *= -1.0 if block.get(1) == "S" else 1.0
    longitude *= -1.0 if block.get(3) == "W" else 1.0
    good = abs(latitude) <= 90.0 and abs(longitude) <= 180.0 and abs(altitude) < 1e5
    return (latitude, longitude, altitude) if good else None


def _degrees(parts: Any) -> float:
    degrees, minutes, seconds = (float(part) for part in parts)
    return degrees + minutes / 60.0 + seconds / 3600.0
