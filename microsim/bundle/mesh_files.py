"""The static mesh, from a binary PLY, an OBJ or a GLB: vertices in the map frame, and triangles.

Polygons are triangulated: convex ones as fans, others by clipping ears. What is not a simple polygon is refused.

Of a GLB (binary glTF 2.0) the geometry is read, turned from its axes (y up) into those of the map frame (z up):
positions, indices, nodes with their transforms. Files that require an extension are refused.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_files import read_bytes
from microsim.bundle.bundle_model import StaticMesh, rotation_matrix
from microsim.bundle.rules import BundleFile
from microsim.documents.json_text import read_json
from microsim.errors import ScenarioError

Floats: TypeAlias = npt.NDArray[np.float64]
Corners: TypeAlias = npt.NDArray[np.int32]
Point2: TypeAlias = tuple[float, float]

MAX_VERTICES = 2**31 - 1  # what an int32 can count
MAX_CORNERS = 255  # of a face
MAX_COORDINATE_M = 1e7
MAX_OBJ_BYTES = 1_000_000_000
RECOMMENDED_TRIANGLES = 10_000_000
MAX_GLB_BYTES = 2_000_000_000
MAX_GLB_NODES = 100_000
MAX_GLB_VERTICES = 200_000_000  # a mesh that several nodes use counts for each
_FACES_AT_ONCE = 1 << 16
_IGNORED = {b"vn", b"vt", b"vp", b"o", b"g", b"s", b"usemtl", b"mtllib", b"l", b"p"}


_KINDS = {5120: "i1", 5121: "u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_INDEX_KINDS = (5121, 5123, 5125)


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


# ---- GLB -------------------------------------------------------------------------------------------------------------


def read_glb_mesh(source: BundleFile) -> RawMesh | None:
    """Vertices and triangles of the scene; None if the file could not be read."""
    raw = read_bytes(source, MAX_GLB_BYTES)
    if raw is None:
        return None
    tree, blob = _chunks(raw)
    try:
        return _GltfScene(tree, blob).mesh()
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise MeshError(f"the glTF inside is not well formed: {type(error).__name__}: {error}") from None


def _chunks(raw: bytes) -> tuple[Any, bytes]:
    """The JSON and the binary chunk."""
    if raw[:4] != b"glTF" or len(raw) < 20:
        raise MeshError("expected a GLB file, beginning with 'glTF'")
    version, length = struct.unpack_from("<II", raw, 4)
    if version != 2:
        raise MeshError(f"expected glTF version 2, found {version}")
    if length != len(raw):
        raise MeshError(f"the header says {length:,} bytes, the file has {len(raw):,}")
    found: dict[bytes, bytes] = {}
    offset = 12
    while offset + 8 <= length:
        size, kind = struct.unpack_from("<I4s", raw, offset)
        if offset + 8 + size > length:
            raise MeshError("a chunk does not fit into the file")
        found.setdefault(kind, raw[offset + 8 : offset + 8 + size])
        offset += 8 + size
    try:
        text = found[b"JSON"].decode("utf-8")
        return read_json(text, "glTF").data, found.get(b"BIN\0", b"")
    except (KeyError, UnicodeDecodeError):
        raise MeshError("the file has no JSON chunk") from None
    except ScenarioError as error:
        raise MeshError(f"in the JSON chunk: {error.problems[0].message}") from None


class _GltfScene:
    """Walks the nodes of a glTF and collects their triangles."""

    def __init__(self, tree: Any, blob: bytes) -> None:
        self.tree = tree
        self.blob = blob
        self.vertices: list[Floats] = []
        self.triangles: list[Corners] = []
        self.count = 0
        self.visits = 0

    def mesh(self) -> RawMesh:
        needed = [name for name in self.tree.get("extensionsRequired", ()) if name != "KHR_mesh_quantization"]
        if needed:
            raise MeshError(f"it requires unsupported glTF extensions: {', '.join(map(str, needed))}"[:300])
        for root in self._roots():
            self._node(root, np.eye(4), 0)
        if not self.vertices:
            raise MeshError("the scene has no mesh")
        x, y, z = np.concatenate(self.vertices).T
        return RawMesh(np.stack([x, -z, y], axis=1), [np.concatenate(self.triangles)])

    def _roots(self) -> list[int]:
        scenes, nodes = self.tree.get("scenes", []), self.tree.get("nodes", [])
        if scenes:
            return list(scenes[_index(self.tree.get("scene", 0), scenes)].get("nodes", []))
        children = {child for node in nodes for child in node.get("children", [])}
        return [index for index in range(len(nodes)) if index not in children]

    def _node(self, number: int, above: Floats, depth: int) -> None:
        self.visits += 1
        if self.visits > MAX_GLB_NODES or depth > 100:
            raise MeshError("it has too many nodes, or its nodes form a circle")
        node = self.tree["nodes"][_index(number, self.tree["nodes"])]
        here = _product(above, _transform(node))
        if "mesh" in node:
            meshes = self.tree["meshes"]
            for primitive in meshes[_index(node["mesh"], meshes)]["primitives"]:
                self._primitive(primitive, here)
        for child in node.get("children", []):
            self._node(child, here, depth + 1)

    def _primitive(self, primitive: Any, place: Floats) -> None:
        mode = primitive.get("mode", 4)
        if mode in (0, 1, 2, 3):
            return  # points and lines
        if mode != 4:
            raise MeshError("it has triangle strips or fans; export plain triangles")
        positions = self._accessor(primitive["attributes"]["POSITION"], "VEC3").astype(np.float64)
        self.count += len(positions)
        if self.count > MAX_GLB_VERTICES:
            raise MeshError(f"expected at most {MAX_GLB_VERTICES:,} vertices, found more")
        if "indices" in primitive:
            indices = self._accessor(primitive["indices"], "SCALAR").astype(np.int64).reshape(-1)
        else:
            indices = np.arange(len(positions), dtype=np.int64)
        if len(indices) % 3:
            raise MeshError(f"{len(indices)} indices are not triangles")
        if indices.size and int(indices.max()) >= len(positions):
            raise MeshError(f"an index refers to vertex {int(indices.max())} of {len(positions)}", rule="mesh-value")
        offset = self.count - len(positions)
        self.vertices.append(_placed(positions, place))
        self.triangles.append(corner_rows(indices.reshape(-1, 3) + offset))

    def _accessor(self, number: int, shape: str) -> Any:
        accessors, views = self.tree["accessors"], self.tree["bufferViews"]
        accessor = accessors[_index(number, accessors)]
        if "sparse" in accessor or accessor["type"] != shape:
            raise MeshError(f"expected a plain accessor of type {shape}, found {accessor.get('type')!r}"[:200])
        kind = np.dtype(_KINDS[accessor["componentType"]])
        if shape == "SCALAR" and accessor["componentType"] not in _INDEX_KINDS:
            raise MeshError("expected unsigned indices")
        view = views[_index(accessor["bufferView"], views)]
        if view["buffer"] != 0 or "uri" in self.tree["buffers"][0]:
            raise MeshError("its data is in another file; export everything into one GLB")
        columns = 3 if shape == "VEC3" else 1
        start = _size(view.get("byteOffset", 0)) + _size(accessor.get("byteOffset", 0))
        stride, count = _size(view.get("byteStride", 0)) or columns * kind.itemsize, _size(accessor["count"])
        end = start + (count - 1) * stride + columns * kind.itemsize if count else start
        limit = min(len(self.blob), _size(view.get("byteOffset", 0)) + _size(view["byteLength"]))
        if stride < columns * kind.itemsize or end > limit:
            raise MeshError("an accessor reaches beyond the data")
        rows = np.ndarray((count, columns), kind, self.blob, start, (stride, kind.itemsize))
        return _normalised(rows, kind) if accessor.get("normalized") and kind.kind != "f" else rows


def _normalised(rows: Any, kind: Any) -> Any:
    """Whole numbers that stand for -1 to 1, or 0 to 1."""
    return np.maximum(rows.astype(np.float64) / float(np.iinfo(kind).max), -1.0)


def _index(value: Any, items: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(items):
        raise MeshError(f"it refers to number {value!r} of {len(items)}"[:200])
    return value


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_GLB_BYTES:
        raise MeshError(f"expected a number of bytes, found {value!r}"[:200])
    return value


def _product(a: Floats, b: Floats) -> Floats:
    """a · b, summed in this order on every machine, as BLAS does not promise."""
    return np.array(
        [[math.fsum(float(a[i, k]) * float(b[k, j]) for k in range(4)) for j in range(4)] for i in range(4)]
    )


def _placed(points: Floats, place: Floats) -> Floats:
    x, y, z = points.T
    rows = [row[0] * x + row[1] * y + row[2] * z + row[3] for row in place[:3]]
    return np.stack(rows, axis=1)


def _transform(node: Any) -> Floats:
    """Of a node: its matrix (column by column), or translation · rotation · scale."""
    if "matrix" in node:
        matrix = np.array(node["matrix"], np.float64).reshape(4, 4).T
        return _finite(matrix)
    turn = np.eye(4)
    x, y, z, w = (float(part) for part in node.get("rotation", (0.0, 0.0, 0.0, 1.0)))
    length = math.sqrt(x * x + y * y + z * z + w * w) or 1.0
    x, y, z, w = x / length, y / length, z / length, w / length
    turn[:3, :3] = rotation_matrix(x, y, z, w) * np.array(node.get("scale", (1.0, 1.0, 1.0)), np.float64)[None, :]
    turn[:3, 3] = np.array(node.get("translation", (0.0, 0.0, 0.0)), np.float64)
    return _finite(turn)


def _finite(matrix: Floats) -> Floats:
    if not bool(np.isfinite(matrix).all()):
        raise MeshError("a transform is not finite", rule="mesh-value")
    return matrix
