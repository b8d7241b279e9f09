"""Triangles and polygons from an OBJ text, in the map frame (z up); everything but v and f is passed over."""

from __future__ import annotations

import numpy as np

from microsim.bundle.files import read_bytes
from microsim.bundle.mesh_arrays import Corners, Floats, MeshError, fans
from microsim.bundle.report import Source

MAX_BYTES = 1_000_000_000
MAX_CORNERS = 255
_PASSED_OVER = {b"vn", b"vt", b"vp", b"o", b"g", b"s", b"usemtl", b"mtllib", b"l", b"p"}


def read_obj_mesh(source: Source) -> tuple[Floats, Corners] | None:
    """Vertices and triangles; None when the file itself could not be read."""
    raw = read_bytes(source, MAX_BYTES)
    if raw is None:
        return None
    vertices: list[tuple[float, float, float]] = []
    triangles: list[tuple[int, int, int]] = []
    for number, line in enumerate(raw.replace(b"\\\n", b" ").split(b"\n"), 1):
        words = line.split()
        if not words or words[0].startswith(b"#") or words[0] in _PASSED_OVER:
            continue
        if words[0] == b"v":
            vertices.append(_vertex(words, number))
        elif words[0] == b"f":
            corners = [_corner(word, len(vertices), number) for word in words[1 : MAX_CORNERS + 2]]
            if not 3 <= len(corners) <= MAX_CORNERS:
                raise MeshError(f"expected a face of 3 to {MAX_CORNERS} corners, found {len(words) - 1}", number)
            triangles += [(corners[0], corners[i], corners[i + 1]) for i in range(1, len(corners) - 1)]
        else:
            raise MeshError(f"unexpected line {line[:40].decode('ascii', 'replace')!r}", number)
    if not vertices:
        raise MeshError("there is no vertex in it")
    return np.array(vertices, np.float64), fans(np.array(triangles, np.int64).reshape(-1, 3))


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
        raise MeshError(
            f"expected the number of a vertex, found {word[:30].decode('ascii', 'replace')!r}", line
        ) from None
    row = index - 1 if index > 0 else count + index
    if index == 0 or not 0 <= row < 2**31:
        raise MeshError(f"a face names the vertex {index}, there are {count:,} before it", line, "mesh-value")
    return row
