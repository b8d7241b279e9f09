"""The static mesh, from a binary PLY, an OBJ or a GLB: vertices in the map frame, and triangles.

Polygons are triangulated: convex ones as fans, others by clipping ears. What is not a simple polygon is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_files import read_bytes
from microsim.bundle.bundle_model import StaticMesh
from microsim.bundle.rules import BundleFile

Floats: TypeAlias = npt.NDArray[np.float64]
Corners: TypeAlias = npt.NDArray[np.int32]
Point2: TypeAlias = tuple[float, float]

MAX_VERTICES = 2**31 - 1  # what an int32 can count
MAX_CORNERS = 255  # of a face
MAX_COORDINATE_M = 1e7
MAX_OBJ_BYTES = 1_000_000_000
RECOMMENDED_TRIANGLES = 10_000_000
_FACES_AT_ONCE = 1 << 16
_IGNORED = {b"vn", b"vt", b"vp", b"o", b"g", b"s", b"usemtl", b"mtllib", b"l", b"p"}


class MeshError(Exception):
    """Why a mesh cannot be used, with the line of its text if it has one."""

    def __init__(self, message: str, line: int | None = None, rule: str = "mesh-format") -> None:
        super().__init__(message)
        self.line = line
        self.rule = rule


@dataclass(frozen=True)
class RawMesh:
    """A mesh as its file describes it."""

    vertices: Floats  # (n, 3) [m], map frame
    faces: list[Corners]  # (m, k) rows of vertices, k corners each, in the order of the file; -1: no possible row
    lines: list[int] | None = None  # of each face, in a text


def corner_rows(rows: npt.NDArray[Any]) -> Corners:
    """Rows of vertices, of whatever kind of number, as int32; -1 for what cannot be one."""
    if rows.dtype == np.int32:
        return rows
    with np.errstate(invalid="ignore"):
        fits = (rows >= 0) & (rows < MAX_VERTICES)
        return np.where(fits, rows, -1).astype(np.int32)


def read_mesh(source: BundleFile) -> StaticMesh | None:
    """The mesh; None and a problem if it cannot be used."""
    from microsim.bundle.mesh_glb import read_glb_mesh
    from microsim.bundle.ply import read_ply_mesh

    readers = {".ply": read_ply_mesh, ".obj": read_obj_mesh, ".glb": read_glb_mesh}
    try:
        with np.errstate(all="ignore"):  # vertices that are not finite are refused, not warned of
            raw = readers[source.file.suffix](source)
            mesh = None if raw is None else _checked(raw)
    except MeshError as error:
        source.problem(error.rule, str(error), line=error.line)
        return None
    except OSError as error:
        source.problem("regular-file", f"cannot be read: {error.strerror or error}")
        return None
    except MemoryError:
        source.problem("regular-file", "does not fit into memory", (), "simplify the mesh")
        return None
    if mesh is not None and len(mesh.triangles) > RECOMMENDED_TRIANGLES:
        message = f"{len(mesh.triangles):,} triangles are more than the recommended {RECOMMENDED_TRIANGLES:,}"
        source.problem("limit-triangles", message, (), "simplify the mesh")
    return mesh


def _checked(raw: RawMesh) -> StaticMesh:
    vertices = raw.vertices
    if len(vertices) > MAX_VERTICES:
        raise MeshError(f"expected at most {MAX_VERTICES:,} vertices, found {len(vertices):,}")
    if vertices.size and not (abs(float(vertices.min())) <= MAX_COORDINATE_M >= abs(float(vertices.max()))):
        row = int(np.flatnonzero(~(np.abs(vertices) <= MAX_COORDINATE_M).all(axis=1))[0])
        raise MeshError(f"vertex {row} is at {vertices[row].tolist()}, expected finite metres", rule="mesh-value")
    first, parts = 0, []
    for faces in raw.faces:
        lines = None if raw.lines is None else raw.lines[first : first + len(faces)]
        if faces.size and not (int(faces.min()) >= 0 and int(faces.max()) < len(vertices)):
            row = int(np.flatnonzero(((faces < 0) | (faces >= len(vertices))).any(axis=1))[0])
            message = f"face {first + row} refers to the vertices {faces[row].tolist()}, there are {len(vertices):,}"
            raise MeshError(message, lines[row] if lines else None, "mesh-value")
        parts.append(faces if faces.shape[1] == 3 else _triangulated(vertices, faces, first, lines))
        first += len(faces)
    triangles = parts[0] if len(parts) == 1 else np.concatenate([np.zeros((0, 3), np.int32), *parts])
    vertices.flags.writeable = triangles.flags.writeable = False
    return StaticMesh(vertices, triangles)


# ---- polygons --------------------------------------------------------------------------------------------------------


def _triangulated(vertices: Floats, faces: Corners, first: int, lines: list[int] | None) -> Corners:
    """Triangles of polygons with equally many corners; `first` is the number of the first of them in the file."""
    count = faces.shape[1]
    if count < 3:
        return np.zeros((0, 3), np.int32)
    parts: list[Corners] = []
    for start in range(0, len(faces), _FACES_AT_ONCE):
        piece = faces[start : start + _FACES_AT_ONCE]
        fans = np.stack([piece[:, [0, index, index + 1]] for index in range(1, count - 1)], axis=1)
        normals, is_fan = _fan_fits(vertices[piece])
        begin = 0
        for row in np.flatnonzero(~is_fan).tolist():
            ears = _ears(vertices[piece[row]], normals[row])
            if ears is None:
                number = start + row
                message = f"face {first + number} with {count} corners is not a simple polygon: it crosses itself"
                raise MeshError(message, lines[number] if lines else None, "mesh-value")
            parts += [fans[begin:row].reshape(-1, 3), piece[row][ears]]
            begin = row + 1
        parts.append(fans[begin:].reshape(-1, 3))
    return np.concatenate(parts)


def _fan_fits(points: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(m, 3) normals of polygons (m, k, 3), and whether the triangles about the first corner all face that way."""
    spokes = points[:, 1:] - points[:, :1]
    a, b = spokes[:, :-1], spokes[:, 1:]
    crosses = np.stack(
        [
            a[:, :, 1] * b[:, :, 2] - a[:, :, 2] * b[:, :, 1],
            a[:, :, 2] * b[:, :, 0] - a[:, :, 0] * b[:, :, 2],
            a[:, :, 0] * b[:, :, 1] - a[:, :, 1] * b[:, :, 0],
        ],
        axis=2,
    )
    normals = np.zeros((len(points), 3))
    for index in range(crosses.shape[1]):  # in this order on every machine
        normals += crosses[:, index]
    n = normals[:, None]
    facing = crosses[:, :, 0] * n[:, :, 0] + crosses[:, :, 1] * n[:, :, 1] + crosses[:, :, 2] * n[:, :, 2]
    return normals, (facing >= 0.0).all(axis=1) & ((normals != 0.0).any(axis=1) | (crosses == 0.0).all(axis=(1, 2)))


def _ears(points: Floats, normal: Floats) -> npt.NDArray[np.int64] | None:
    """Triangles of one polygon, seen along the largest part of its normal; None if it crosses itself."""
    if not normal.any():
        return None  # what runs one way round is undone by what runs the other
    axis = int(np.argmax(np.abs(normal)))
    u, v = (axis + 1) % 3, (axis + 2) % 3
    sign = 1.0 if normal[axis] >= 0.0 else -1.0
    flat = [(float(point[u]), sign * float(point[v])) for point in points]
    if _crosses_itself(flat):
        return None
    left, triangles = list(range(len(flat))), []
    while len(left) > 3:
        ear = next((place for place in range(len(left)) if _is_ear(flat, left, place)), None)
        if ear is None:
            return None
        triangles.append((left[ear - 1], left[ear], left[(ear + 1) % len(left)]))
        del left[ear]
    return np.array([*triangles, tuple(left)])


def _is_ear(flat: list[Point2], left: list[int], place: int) -> bool:
    """Whether the corner can be cut off: it does not bend inwards, and no other corner is in its triangle."""
    a, b, c = flat[left[place - 1]], flat[left[place]], flat[left[(place + 1) % len(left)]]
    if _turn(a, b, c) < 0.0:
        return False
    others = (flat[index] for index in left)
    return not any(
        point not in (a, b, c) and min(_turn(a, b, point), _turn(b, c, point), _turn(c, a, point)) >= 0.0
        for point in others
    )


def _turn(a: Point2, b: Point2, c: Point2) -> float:
    """Positive if c is to the left of the line from a to b."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _crosses_itself(flat: list[Point2]) -> bool:
    """Whether two edges cross. Edges that only touch are allowed: faces with holes are written with such slits."""
    edges = list(zip(flat, [*flat[1:], flat[0]], strict=True))
    return any(
        _turn(a, b, c) * _turn(a, b, d) < 0.0 and _turn(c, d, a) * _turn(c, d, b) < 0.0
        for index, (a, b) in enumerate(edges)
        for c, d in edges[index + 2 :]
    )


# ---- OBJ -------------------------------------------------------------------------------------------------------------


def read_obj_mesh(source: BundleFile) -> RawMesh | None:
    """Vertices and faces, z up; everything but v and f is ignored. None if the file could not be read."""
    raw = read_bytes(source, MAX_OBJ_BYTES)
    if raw is None:
        return None
    vertices: list[tuple[float, float, float]] = []
    runs: list[list[list[int]]] = []  # consecutive faces with equally many corners
    lines: list[int] = []
    for number, line in enumerate(raw.replace(b"\\\n", b" ").split(b"\n"), 1):
        words = line.split()
        if not words or words[0].startswith(b"#") or words[0] in _IGNORED:
            continue
        if words[0] == b"v":
            vertices.append(_vertex(words, number))
        elif words[0] == b"f":
            corners = [_corner(word, len(vertices), number) for word in words[1 : MAX_CORNERS + 2]]
            if not 3 <= len(corners) <= MAX_CORNERS:
                raise MeshError(f"expected a face of 3 to {MAX_CORNERS} corners, found {len(words) - 1}", number)
            if not runs or len(runs[-1][0]) != len(corners):
                runs.append([])
            runs[-1].append(corners)
            lines.append(number)
        else:
            raise MeshError(f"unexpected line {line[:40].decode('ascii', 'replace')!r}", number)
    if not vertices:
        raise MeshError("the file has no vertices")
    return RawMesh(np.array(vertices, np.float64), [np.array(run, np.int32) for run in runs], lines)


def _vertex(words: list[bytes], line: int) -> tuple[float, float, float]:
    try:
        return float(words[1]), float(words[2]), float(words[3])
    except (ValueError, IndexError):
        found = b" ".join(words)[:60].decode("ascii", "replace")
        raise MeshError(f"expected 'v X Y Z', found {found!r}", line) from None


def _corner(word: bytes, count: int, line: int) -> int:
    """The row of a vertex; OBJ counts from 1, or from the last one backwards."""
    try:
        index = int(word.split(b"/", 1)[0])
    except ValueError:
        found = word[:30].decode("ascii", "replace")
        raise MeshError(f"expected the number of a vertex, found {found!r}", line) from None
    row = index - 1 if index > 0 else count + index
    if index == 0 or not 0 <= row < MAX_VERTICES:
        raise MeshError(f"a face refers to vertex {index}, there are {count:,} before it", line, "mesh-value")
    return row
