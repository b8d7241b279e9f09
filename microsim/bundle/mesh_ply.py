"""Triangles and polygons from a binary little endian PLY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from microsim.bundle import ply
from microsim.bundle.mesh_arrays import MAX_VERTICES, MeshError, fans
from microsim.bundle.report import Source

if TYPE_CHECKING:
    from microsim.bundle.mesh_arrays import Floats, Ints

FACE_LISTS = ("vertex_indices", "vertex_index")


def read_ply_mesh(source: Source) -> tuple[Floats, Ints] | None:
    """Vertices and triangles; None when the header's problem has been told already."""
    header = ply.read_header(source, "mesh-format")
    if header is None:
        return None
    size = source.file.stat().st_size
    vertices: Floats = np.zeros((0, 3))
    triangles: Ints = np.zeros((0, 3), np.int64)
    offset = header.length
    for element in header.elements:
        if element.name == "face":
            triangles, offset = _faces(source, element, offset, size)
        else:
            rows = _rows(source, element, offset, size)
            offset += rows.nbytes
            if element.name == "vertex":
                vertices = _positions(rows)
    if offset != size:
        raise MeshError(f"the header describes {offset:,} bytes, the file has {size:,}")
    return vertices, triangles


def _rows(source: Source, element: ply.Element, offset: int, size: int) -> Any:
    """An element without lists, mapped."""
    if any(each.count_kind for each in element.properties):
        raise MeshError(f"the element {element.name!r} has a list, which only faces may have")
    try:
        kind = np.dtype([(each.name, ply.KINDS[each.kind]) for each in element.properties])
    except ValueError as error:
        raise MeshError(f"the element {element.name!r} is strange: {error}") from None
    if element.count > MAX_VERTICES or offset + element.count * kind.itemsize > size:
        raise MeshError(f"the file is cut short: {element.count:,} of {element.name!r} do not fit into it")
    if element.count == 0 or kind.itemsize == 0:
        return np.zeros(0, kind)
    return np.memmap(source.file, kind, "r", offset, (element.count,))


def _positions(rows: Any) -> Floats:
    missing = [axis for axis in "xyz" if axis not in (rows.dtype.names or ())]
    if missing:
        raise MeshError(f"vertices have no property {', '.join(missing)}")
    return np.stack([rows[axis].astype(np.float64) for axis in "xyz"], axis=1)


def _faces(source: Source, element: ply.Element, offset: int, size: int) -> tuple[Ints, int]:
    """Triangles, and where the data goes on. Quick when all faces have as many corners as the first one."""
    lists = [each for each in element.properties if each.count_kind]
    if len(lists) != 1 or lists[0].name not in FACE_LISTS:
        raise MeshError("expected faces with the one list 'vertex_indices'")
    if element.count == 0:
        return np.zeros((0, 3), np.int64), offset
    if element.count > size:
        raise MeshError(f"the file is cut short: {element.count:,} faces do not fit into it")
    corners = _first_count(source, element, offset, size)
    kind = _face_kind(element, corners)
    if offset + element.count * kind.itemsize <= size:
        rows = np.memmap(source.file, kind, "r", offset, (element.count,))
        if bool((rows["count"] == corners).all()):
            return fans(rows["corners"].astype(np.int64)), offset + rows.nbytes
    return _mixed_faces(source, element, offset, size)


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
    with source.file.open("rb") as stream:
        stream.seek(offset)
        count = int(np.frombuffer(stream.read(width), ply.KINDS[each.count_kind])[0])
    if not 0 <= count <= 255:
        raise MeshError(f"expected faces of 3 to 255 corners, found {count}")
    return count


def _mixed_faces(source: Source, element: ply.Element, offset: int, size: int) -> tuple[Ints, int]:
    """Faces of different numbers of corners, one after the other."""
    data = source.file.read_bytes()
    kinds = {count: _face_kind(element, count) for count in range(256)}
    list_at = _face_kind(element, 0).fields["count"][1]
    count_kind = np.dtype(next(ply.KINDS[each.count_kind] for each in element.properties if each.count_kind))
    triangles: list[Any] = []
    for _ in range(element.count):
        if offset + list_at + count_kind.itemsize > size:
            raise MeshError("the file is cut short in the middle of its faces")
        count = int(np.frombuffer(data, count_kind, 1, offset + list_at)[0])
        if not 0 <= count <= 255 or offset + kinds[count].itemsize > size:
            raise MeshError(f"a face of {count} corners does not fit into the file")
        corners = np.frombuffer(data, kinds[count], 1, offset)["corners"].astype(np.int64).reshape(1, count)
        triangles.append(fans(corners))
        offset += kinds[count].itemsize
    return np.concatenate(triangles), offset
