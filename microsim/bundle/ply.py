"""PLY files: their headers, read with bounds and errors by line; and meshes, read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from microsim.bundle.mesh_files import MAX_CORNERS, MAX_VERTICES, Corners, Floats, MeshError, RawMesh, corner_rows
from microsim.bundle.rules import BundleFile

MAX_HEADER_BYTES = 64_000
MAX_COUNT = 2**40
LITTLE_ENDIAN = "binary_little_endian"
FORMATS = (LITTLE_ENDIAN, "binary_big_endian", "ascii")
KINDS = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "<i2", "int16": "<i2", "ushort": "<u2",
    "uint16": "<u2", "int": "<i4", "int32": "<i4", "uint": "<u4", "uint32": "<u4", "float": "<f4", "float32": "<f4",
    "double": "<f8", "float64": "<f8",
}  # fmt: skip
FACE_LISTS = ("vertex_indices", "vertex_index")
_ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class PlyProperty:
    """One number, or a list of numbers with its length in front."""

    name: str
    kind: str
    count_kind: str = ""  # of a list: the type of its length
    line: int = 0


@dataclass(frozen=True)
class PlyElement:
    name: str
    count: int
    properties: tuple[PlyProperty, ...]


@dataclass(frozen=True)
class PlyHeader:
    elements: tuple[PlyElement, ...]
    length: int  # bytes before the data
    format: str = LITTLE_ENDIAN


class _HeaderError(Exception):
    def __init__(self, message: str, line: int, remedy: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.remedy = remedy


def read_header(source: BundleFile, rule: str, formats: tuple[str, ...] = (LITTLE_ENDIAN,)) -> PlyHeader | None:
    """The header, or None and a problem of that rule; what bundles take is little endian alone."""
    try:
        with source.file.open("rb") as stream:
            raw = stream.read(MAX_HEADER_BYTES)
    except OSError as error:
        source.problem("regular-file", f"cannot be read: {error.strerror or error}")
        return None
    try:
        return _parse(raw, formats)
    except _HeaderError as error:
        source.problem(rule, str(error), (), error.remedy, line=error.line or None)
        return None


def _parse(raw: bytes, formats: tuple[str, ...]) -> PlyHeader:
    if raw[:2] == b"PK":
        raise _HeaderError("this is an NPZ (or ZIP) file, not a PLY", 0, "write it as a PLY")
    added = 0
    if raw.startswith(b"ply\r\n") and len(formats) > 1:  # other programs' files may come from Windows
        head, end_line, _ = raw.partition(b"\r\nend_header\r\n")
        added = (head + end_line).count(b"\r\n")
        raw = (head + end_line).replace(b"\r\n", b"\n")
    if not raw.startswith(b"ply\n"):
        found = "nothing" if not raw else repr(raw[:12])[1:]
        raise _HeaderError(f"expected a PLY file, beginning with the line 'ply', found {found}", 1)
    end = raw.find(b"\nend_header\n")
    if end < 0:
        raise _HeaderError(f"no line 'end_header' in the first {MAX_HEADER_BYTES:,} bytes", 1)
    try:
        lines = raw[:end].decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise _HeaderError("the header holds bytes that are not ASCII", 1) from None
    return PlyHeader(_elements(lines), end + len(b"\nend_header\n") + added, _format(lines, formats))


def _elements(lines: list[str]) -> tuple[PlyElement, ...]:
    elements: list[PlyElement] = []
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        if not words or words[0] in ("comment", "obj_info"):
            continue
        if words[0] == "element":
            elements.append(_element(words, number))
        elif words[0] == "property" and elements:
            last, found = elements[-1], _property(words, number)
            if any(each.name == found.name for each in last.properties):
                raise _HeaderError(f"the element {last.name!r} has two properties {found.name!r}", number)
            elements[-1] = PlyElement(last.name, last.count, (*last.properties, found))
        else:
            raise _HeaderError(f"unexpected line {line[:60]!r}", number)
    return tuple(elements)


def _format(lines: list[str], formats: tuple[str, ...]) -> str:
    found = lines[1].strip() if len(lines) > 1 else "nothing"
    name = found.removeprefix("format ").removesuffix(" 1.0")
    if found == f"format {name} 1.0" and name in formats:
        return name
    remedy = "write it as binary_little_endian; `microsim bundle import-splat` converts splats"
    if found in ("format ascii 1.0", "format binary_big_endian 1.0"):
        kind = "ASCII" if "ascii" in found else "big endian"
        raise _HeaderError(f"{kind} PLY is not supported", 2, remedy)
    raise _HeaderError(f"expected the line 'format binary_little_endian 1.0', found {found[:60]!r}", 2, remedy)


def _element(words: list[str], line: int) -> PlyElement:
    if len(words) != 3 or not words[2].isdecimal() or len(words[2]) > 13 or int(words[2]) > MAX_COUNT:
        raise _HeaderError(f"expected 'element NAME COUNT', found {' '.join(words)[:60]!r}", line)
    return PlyElement(words[1], int(words[2]), ())


def _property(words: list[str], line: int) -> PlyProperty:
    if len(words) == 3 and words[1] in KINDS:
        return PlyProperty(words[2], words[1], line=line)
    if len(words) == 5 and words[1] == "list" and words[2] in KINDS and words[3] in KINDS:
        return PlyProperty(words[4], words[3], words[2], line)
    raise _HeaderError(f"expected 'property TYPE NAME', found {' '.join(words)[:60]!r}", line)


# ---- meshes ----------------------------------------------------------------------------------------------------------


def read_ply_mesh(source: BundleFile) -> RawMesh | None:
    """Vertices and faces; None if the header has a problem. Memory holds the result and little more."""
    header = read_header(source, "mesh-format")
    if header is None:
        return None
    size = source.file.stat().st_size
    vertices: Floats = np.zeros((0, 3))
    faces: list[Corners] = []
    offset = header.length
    for element in header.elements:
        if element.name == "face":
            faces, offset = _faces(source, element, offset, size)
        else:
            kind = _kind(element, offset, size)
            if element.name == "vertex":
                vertices = _positions(source, element.count, kind, offset)
            offset += element.count * kind.itemsize
    if offset != size:
        raise MeshError(f"the header describes {offset:,} bytes, the file has {size:,}")
    return RawMesh(vertices, faces)


def _kind(element: PlyElement, offset: int, size: int) -> Any:
    """What a row of an element without lists looks like."""
    if any(each.count_kind for each in element.properties):
        raise MeshError(f"the element {element.name!r} has a list, which only faces may have")
    try:
        kind = np.dtype([(each.name, KINDS[each.kind]) for each in element.properties])
    except ValueError as error:
        raise MeshError(f"the element {element.name!r} is malformed: {error}") from None
    if element.count > MAX_VERTICES or offset + element.count * kind.itemsize > size:
        raise MeshError(f"the file is cut short: {element.count:,} of {element.name!r} do not fit into it")
    return kind


def _pieces(source: BundleFile, kind: Any, offset: int, count: int) -> Iterator[tuple[int, Any]]:
    """(number of the first row, rows)."""
    for start in range(0, count, _ROWS_AT_ONCE):
        wanted = min(_ROWS_AT_ONCE, count - start)
        rows = np.fromfile(source.file, kind, wanted, offset=offset + start * kind.itemsize)
        if len(rows) != wanted:
            raise MeshError("the file is cut short")
        yield start, rows


def _positions(source: BundleFile, count: int, kind: Any, offset: int) -> Floats:
    missing = [axis for axis in "xyz" if axis not in (kind.names or ())]
    if missing:
        raise MeshError(f"vertices have no property {', '.join(missing)}")
    vertices = np.empty((count, 3))
    for start, rows in _pieces(source, kind, offset, count):
        for column, axis in enumerate("xyz"):
            vertices[start : start + len(rows), column] = rows[axis]
    return vertices


def _faces(source: BundleFile, element: PlyElement, offset: int, size: int) -> tuple[list[Corners], int]:
    """Faces, and where the data continues. Quick when all faces have as many corners as the first one."""
    lists = [each for each in element.properties if each.count_kind]
    if len(lists) != 1 or lists[0].name not in FACE_LISTS:
        raise MeshError("expected faces with the one list 'vertex_indices'")
    if element.count == 0:
        return [], offset
    if element.count > size:
        raise MeshError(f"the file is cut short: {element.count:,} faces do not fit into it")
    corners = _first_count(source, element, offset, size)
    kind = _face_kind(element, corners)
    if corners >= 3 and offset + element.count * kind.itemsize <= size:
        faces = _equal_faces(source, element.count, kind, corners, offset)
        if faces is not None:
            return [faces], offset + element.count * kind.itemsize
    return _mixed_faces(source, element, offset, size)


def _equal_faces(source: BundleFile, count: int, kind: Any, corners: int, offset: int) -> Corners | None:
    """None if one has another number of corners."""
    faces = np.empty((count, corners), np.int32)
    for start, rows in _pieces(source, kind, offset, count):
        if not bool((rows["count"] == corners).all()):
            return None
        faces[start : start + len(rows)] = corner_rows(rows["corners"])
    return faces


def _face_kind(element: PlyElement, corners: int) -> Any:
    parts: list[Any] = []
    for index, each in enumerate(element.properties):
        if each.count_kind:
            parts += [("count", KINDS[each.count_kind]), ("corners", KINDS[each.kind], (corners,))]
        else:
            parts.append((f"other_{index}", KINDS[each.kind]))
    return np.dtype(parts)


def _first_count(source: BundleFile, element: PlyElement, offset: int, size: int) -> int:
    before, count_kind = _list_place(element)
    if offset + before + count_kind.itemsize > size:
        raise MeshError("the file is cut short: it has no faces")
    count = float(np.fromfile(source.file, count_kind, 1, offset=offset + before)[0])
    if not 0 <= count <= MAX_CORNERS:
        raise MeshError(f"expected faces of 3 to {MAX_CORNERS} corners, found {count:g}")
    return int(count)


def _list_place(element: PlyElement) -> tuple[int, Any]:
    """Bytes of a face before the length of its list, and the type of that length."""
    count_kind = next(each.count_kind for each in element.properties if each.count_kind)
    return _face_kind(element, 0).fields["count"][1], np.dtype(KINDS[count_kind])


def _mixed_faces(source: BundleFile, element: PlyElement, offset: int, size: int) -> tuple[list[Corners], int]:
    """Faces with different numbers of corners, one after the other; neighbours with equally many in one array."""
    data = source.file.read_bytes()
    kinds = {count: _face_kind(element, count) for count in range(MAX_CORNERS + 1)}
    before, count_kind = _list_place(element)
    runs: list[list[Corners]] = []
    for _ in range(element.count):
        if offset + before + count_kind.itemsize > size:
            raise MeshError("the file is cut short in the middle of its faces")
        found = float(np.frombuffer(data, count_kind, 1, offset + before)[0])
        kind = kinds[int(found)] if 0 <= found <= MAX_CORNERS else None
        if kind is None or offset + kind.itemsize > size:
            raise MeshError(f"a face of {found:g} corners does not fit into the file")
        face = corner_rows(np.frombuffer(data, kind, 1, offset)["corners"].reshape(1, int(found)))
        if not runs or runs[-1][0].shape != face.shape:
            runs.append([])
        runs[-1].append(face)
        offset += kind.itemsize
    return [np.concatenate(run) for run in runs], offset
