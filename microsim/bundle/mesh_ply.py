"""Triangles and polygons from a binary little endian PLY, piece by piece: memory holds the result and little more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from microsim.bundle import ply
from microsim.bundle.mesh_arrays import MAX_VERTICES, Corners, Floats, MeshError, fans
from microsim.bundle.report import Source

FACE_LISTS = ("vertex_indices", "vertex_index")
_ROWS_AT_ONCE = 1 << 18


def read_ply_mesh(source: Source) -> tuple[Floats, Corners] | None:
    """Vertices and triangles; None when the header's problem has been told already."""
    header = ply.read_header(source, "mesh-format")
    if header is None:
        return None
    size = source.file.stat().st_size
    vertices: Floats = np.zeros((0, 3))
    triangles: Corners = np.zeros((0, 3), np.int32)
    offset = header.length
    for element in header.elements:
        if element.name == "face":
            triangles, offset = _faces(source, element, offset, size)
        else:
            kind = _kind(element, offset, size)
            if element.name == "vertex":
                vertices = _positions(source, element.count, kind, offset)
            offset += element.count * kind.itemsize
    if offset != size:
        raise MeshError(f"the header describes {offset:,} bytes, the file has {size:,}")
    return vertices, triangles


def _kind(element: ply.Element, offset: int, size: int) -> Any:
    """What a row of an element without lists looks like."""
    if any(each.count_kind for each in element.properties):
        raise MeshError(f"the element {element.name!r} has a list, which only faces may have")
    try:
        kind = np.dtype([(each.name, ply.KINDS[each.kind]) for each in element.properties])
    except ValueError as error:
        raise MeshError(f"the element {element.name!r} is strange: {error}") from None
    if element.count > MAX_VERTICES or offset + element.count * kind.itemsize > size:
        raise MeshError(f"the file is cut short: {element.count:,} of {element.name!r} do not fit into it")
    return kind


def _pieces(source: Source, kind: Any, offset: int, count: int) -> Iterator[tuple[int, Any]]:
    """(number of the first row, rows)."""
    for start in range(0, count, _ROWS_AT_ONCE):
        wanted = min(_ROWS_AT_ONCE, count - start)
        rows = np.fromfile(source.file, kind, wanted, offset=offset + start * kind.itemsize)
        if len(rows) != wanted:
            raise MeshError("the file is cut short")
        yield start, rows


def _positions(source: Source, count: int, kind: Any, offset: int) -> Floats:
    missing = [axis for axis in "xyz" if axis not in (kind.names or ())]
    if missing:
        raise MeshError(f"vertices have no property {', '.join(missing)}")
    vertices = np.empty((count, 3))
    for start, rows in _pieces(source, kind, offset, count):
        for column, axis in enumerate("xyz"):
            vertices[start : start + len(rows), column] = rows[axis]
    return vertices


def _faces(source: Source, element: ply.Element, offset: int, size: int) -> tuple[Corners, int]:
    """Triangles, and where the data goes on. Quick when all faces have as many corners as the first one."""
    lists = [each for each in element.properties if each.count_kind]
    if len(lists) != 1 or lists[0].name not in FACE_LISTS:
        raise MeshError("expected faces with the one list 'vertex_indices'")
    if element.count == 0:
        return np.zeros((0, 3), np.int32), offset
    if element.count > size:
        raise MeshError(f"the file is cut short: {element.count:,} faces do not fit into it")
    corners = _first_count(source, element, offset, size)
    kind = _face_kind(element, corners)
    if corners >= 3 and offset + element.count * kind.itemsize <= size:
        triangles = _equal_faces(source, element.count, kind, corners, offset)
        if triangles is not None:
            return triangles, offset + element.count * kind.itemsize
    return _mixed_faces(source, element, offset, size)


def _equal_faces(source: Source, count: int, kind: Any, corners: int, offset: int) -> Corners | None:
    """None when one has another number of corners."""
    each = corners - 2
    triangles = np.empty((count * each, 3), np.int32)
    for start, rows in _pieces(source, kind, offset, count):
        if not bool((rows["count"] == corners).all()):
            return None
        triangles[start * each : (start + len(rows)) * each] = fans(rows["corners"])
    return triangles


def _face_kind(element: ply.Element, corners: int) -> Any:
    parts: list[Any] = []
    for index, each in enumerate(element.properties):
        if each.count_kind:
            parts += [("count", ply.KINDS[each.count_kind]), ("corners", ply.KINDS[each.kind], (corners,))]
        else:
            parts.append((f"other_{index}", ply.KINDS[each.kind]))
    return np.dtype(parts)


def _first_count(source: Source, element: ply.Element, offset: int, size: int) -> int:
    for each in element.properties:
        if each.count_kind:
            break
        offset += ply.SIZES[each.kind]
    width = ply.SIZES[each.count_kind]
    if offset + width > size:
        raise MeshError("the file is cut short: no faces in it")
    count = float(np.fromfile(source.file, ply.KINDS[each.count_kind], 1, offset=offset)[0])
    if not 0 <= count <= 255:
        raise MeshError(f"expected faces of 3 to 255 corners, found {count:g}")
    return int(count)


def _mixed_faces(source: Source, element: ply.Element, offset: int, size: int) -> tuple[Corners, int]:
    """Faces of different numbers of corners, one after the other."""
    data = source.file.read_bytes()
    kinds = {count: _face_kind(element, count) for count in range(256)}
    list_at = _face_kind(element, 0).fields["count"][1]
    count_kind = np.dtype(next(ply.KINDS[each.count_kind] for each in element.properties if each.count_kind))
    triangles: list[Any] = []
    for _ in range(element.count):
        if offset + list_at + count_kind.itemsize > size:
            raise MeshError("the file is cut short in the middle of its faces")
        found = float(np.frombuffer(data, count_kind, 1, offset + list_at)[0])
        count = int(found) if 0 <= found <= 255 else 256
        if count == 256 or offset + kinds[count].itemsize > size:
            raise MeshError(f"a face of {found:g} corners does not fit into the file")
        triangles.append(fans(np.frombuffer(data, kinds[count], 1, offset)["corners"].reshape(1, count)))
        offset += kinds[count].itemsize
    return np.concatenate(triangles), offset
