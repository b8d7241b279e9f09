"""Triangles from a GLB (binary glTF 2.0), turned from its axes (y up) into those of the map frame (z up).

Geometry only: positions, indices, nodes with their transforms. Files that require an extension are refused.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from microsim.bundle.bundle_files import read_bytes
from microsim.bundle.bundle_model import rotation_matrix
from microsim.bundle.mesh_files import Corners, Floats, MeshError, RawMesh, corner_rows
from microsim.bundle.rules import BundleFile
from microsim.documents.json_text import read_json
from microsim.errors import ScenarioError

MAX_BYTES = 2_000_000_000
MAX_NODES = 100_000
MAX_GLB_VERTICES = 200_000_000  # a mesh that several nodes use counts for each
_KINDS = {5120: "i1", 5121: "u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_INDEX_KINDS = (5121, 5123, 5125)


def read_glb_mesh(source: BundleFile) -> RawMesh | None:
    """Vertices and triangles of the scene; None if the file could not be read."""
    raw = read_bytes(source, MAX_BYTES)
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
        if self.visits > MAX_NODES or depth > 100:
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
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_BYTES:
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
