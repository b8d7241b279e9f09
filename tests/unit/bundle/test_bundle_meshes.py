"""Static meshes as PLY, OBJ and GLB: a cube in each of them, and what must be refused."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from microsim.bundle import StaticMesh
from microsim.bundle.bundle_writing import mesh_ply
from microsim.bundle.mesh_files import read_mesh
from microsim.bundle.rules import BundleFile, BundleReport
from tests.bundle_support import CUBE_TRIANGLES, CUBE_VERTICES


def cube_obj() -> bytes:
    lines = ["# a cube", "o cube", "vn 0 0 1"]
    lines += [f"v {x} {y} {z}" for x, y, z in CUBE_VERTICES.tolist()]
    lines += [f"f {a + 1}//1 {b + 1}//1 {c + 1}//1" for a, b, c in CUBE_TRIANGLES.tolist()]
    return "\n".join(lines).encode()


def glb(tree: dict, blob: bytes) -> bytes:
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    blob += bytes(-len(blob) % 4)
    chunks = struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(blob), b"BIN\0") + blob
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def cube_tree(**node: object) -> tuple[dict, bytes]:
    """The cube with y up, as glTF has it."""
    x, y, z = CUBE_VERTICES.T
    positions = np.stack([x, z, -y], axis=1).astype("<f4").tobytes()
    indices = CUBE_TRIANGLES.astype("<u2").tobytes()
    tree = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, **node}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 8, "type": "VEC3"},
            {"bufferView": 1, "componentType": 5123, "count": 36, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": len(positions)},
            {"buffer": 0, "byteOffset": len(positions), "byteLength": len(indices)},
        ],
        "buffers": [{"byteLength": len(positions) + len(indices)}],
    }
    return tree, positions + indices


def cube_glb(**node: object) -> bytes:
    return glb(*cube_tree(**node))


def mesh_of(tmp_path: Path, name: str, raw: bytes) -> tuple[StaticMesh | None, list[str]]:
    file = tmp_path / name
    file.write_bytes(raw)
    report = BundleReport()
    mesh = read_mesh(BundleFile(report, name, file))
    assert (mesh is None) == bool(report.error_count)
    return mesh, [str(problem) for problem in report.problems]


def corners(mesh: StaticMesh | None) -> np.ndarray:
    assert mesh is not None
    return mesh.vertices[mesh.triangles]


CUBES = {"cube.ply": mesh_ply(CUBE_VERTICES, CUBE_TRIANGLES), "cube.obj": cube_obj(), "cube.glb": cube_glb()}


@pytest.mark.parametrize("name", CUBES)
def test_every_format_gives_the_same_cube(tmp_path, name):
    mesh, said = mesh_of(tmp_path, name, CUBES[name])
    assert said == []
    assert (corners(mesh) == CUBE_VERTICES[CUBE_TRIANGLES]).all()
    assert mesh is not None
    assert (mesh.vertices.dtype, mesh.triangles.dtype) == (np.float64, np.int32)
    assert not mesh.vertices.flags.writeable


def test_convex_polygons_become_fans_of_triangles(tmp_path):
    header = b"ply\nformat binary_little_endian 1.0\nelement vertex 5\n"
    header += b"property double x\nproperty double y\nproperty double z\nproperty uchar red\n"
    header += b"element face 2\nproperty uchar flags\nproperty list uchar uint vertex_index\nend_header\n"
    places = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 2.0))
    rows = b"".join(struct.pack("<dddB", x, y, 0.0, 9) for x, y in places)
    faces = struct.pack("<BB4I", 0, 4, 0, 1, 2, 3) + struct.pack("<BB3I", 0, 3, 2, 3, 4)
    mesh, said = mesh_of(tmp_path, "mixed.ply", header + rows + faces)
    assert said == []
    assert mesh is not None
    assert mesh.triangles.tolist() == [[0, 1, 2], [0, 2, 3], [2, 3, 4]]
    obj, _ = mesh_of(tmp_path, "square.obj", b"v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3 4\nf -4 -3 -1\n")
    assert obj is not None
    assert obj.triangles.tolist() == [[0, 1, 2], [0, 2, 3], [0, 1, 3]]


L_SHAPE = [(0, 0), (4, 0), (4, 1), (1, 1), (1, 4), (0, 4)]  # a fan about some of its corners has the wrong area
SPIRAL = [(0, 0), (5, 0), (5, 5), (1, 5), (1, 2), (3, 2), (3, 3), (2, 3), (2, 4), (4, 4), (4, 1), (0, 1)]
KEYHOLE = [(0, 0), (4, 0), (4, 4), (0, 4), (0, 0), (1, 1), (1, 3), (3, 3), (3, 1), (1, 1)]  # a hole behind a slit


def polygon_obj(points: list[tuple[float, ...]]) -> bytes:
    lines = [f"v {' '.join(map(str, point))}" for point in points]
    return "\n".join([*lines, f"f {' '.join(str(index + 1) for index in range(len(points)))}"]).encode()


def areas(mesh: StaticMesh | None) -> np.ndarray:
    a, b, c = corners(mesh).transpose(1, 0, 2)
    return 0.5 * np.sqrt((np.cross(b - a, c - a) ** 2).sum(axis=1))


@pytest.mark.parametrize(("shape", "area"), [(L_SHAPE, 7.0), (SPIRAL, 15.0), (KEYHOLE, 12.0)])
@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("tilt", [(0.0, 0.0), (1.0, -2.0)])
@pytest.mark.parametrize("reverse", [False, True])
def test_concave_polygons_are_covered_exactly_whichever_corner_comes_first(tmp_path, shape, area, first, tilt, reverse):
    turned = shape[first:] + shape[:first] if shape != KEYHOLE else shape
    points = [(x, y, tilt[0] * x + tilt[1] * y) for x, y in (turned[::-1] if reverse else turned)]
    mesh, said = mesh_of(tmp_path, "shape.obj", polygon_obj(points))
    assert said == []
    slope = float(np.sqrt(1.0 + tilt[0] ** 2 + tilt[1] ** 2))
    assert areas(mesh).sum() == pytest.approx(area * slope)


def test_concave_and_convex_polygons_keep_their_order_in_the_file(tmp_path):
    lines = [f"v {x} {y} 0" for x, y in [*L_SHAPE, (9, 9)]]
    raw = "\n".join([*lines, "f 1 2 7 5 6 1", "f 4 5 6 1 2 3", "f 1 2 7 5 6 6"]).encode()
    mesh, said = mesh_of(tmp_path, "three.obj", raw)
    assert said == []
    assert mesh is not None
    assert areas(mesh)[4:8].sum() == pytest.approx(7.0)
    assert mesh.triangles[0].tolist() == [0, 1, 6]
    assert mesh.triangles[8].tolist() == [0, 1, 6]


@pytest.mark.parametrize("shape", [[(0, 0), (2, 2), (2, 0), (0, 2)], [(0, 0), (3, 0), (3, 3), (1, -1), (0, 3)]])
def test_polygons_that_cross_themselves_are_refused_with_their_line(tmp_path, shape):
    mesh, said = mesh_of(tmp_path, "crossing.obj", polygon_obj([(x, y, 1.0) for x, y in shape]))
    assert mesh is None
    assert f"crossing.obj:{len(shape) + 1}: face 0 with {len(shape)} corners is not a simple polygon" in said[0]
    assert "[mesh-value]" in said[0]


def test_the_nodes_of_a_glb_move_turn_and_scale_what_is_below_them(tmp_path):
    half = 0.7071067811865476
    turned = cube_glb(translation=[10.0, 0.0, 0.0], rotation=[0.0, half, 0.0, half], scale=[2.0, 2.0, 2.0])
    mesh, _ = mesh_of(tmp_path, "turned.glb", turned)
    # a quarter turn about glTF's y, which is z here: x to y, y to -x
    x, y, z = CUBE_VERTICES[CUBE_TRIANGLES].transpose(2, 0, 1).astype(float)
    expected = np.stack([10.0 - 2.0 * y, 2.0 * x, 2.0 * z], axis=-1)
    assert corners(mesh) == pytest.approx(expected, abs=1e-12)
    matrix = [2.0, 0, 0, 0, 0, 2.0, 0, 0, 0, 0, 2.0, 0, 0.0, 3.0, 0.0, 1.0]
    tree, blob = cube_tree(matrix=matrix)
    tree["nodes"].append({"children": [0], "translation": [0.0, 1.0, 0.0]})
    tree["scenes"] = [{"nodes": [1]}]
    mesh, _ = mesh_of(tmp_path, "matrix.glb", glb(tree, blob))
    assert corners(mesh) == pytest.approx(2.0 * CUBE_VERTICES[CUBE_TRIANGLES] + [0.0, 0.0, 4.0], abs=1e-12)


def broken_glb(edit) -> bytes:
    tree, blob = cube_tree()
    edit(tree)
    return glb(tree, blob)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (broken_glb(lambda tree: tree["nodes"][0].update(children=[0])), "circle"),
        (broken_glb(lambda tree: tree.update(extensionsRequired=["KHR_draco_mesh_compression"])), "draco"),
        (broken_glb(lambda tree: tree["buffers"][0].update(uri="cube.bin")), "another file"),
        (broken_glb(lambda tree: tree["accessors"][0].update(count=9)), "beyond the data"),
        (broken_glb(lambda tree: tree["accessors"][0].update(count=10**12)), "number of bytes"),
        (broken_glb(lambda tree: tree["accessors"][1].update(componentType=5126)), "unsigned"),
        (broken_glb(lambda tree: tree["meshes"][0]["primitives"][0].update(mode=5)), "strips"),
        (broken_glb(lambda tree: tree["nodes"][0].update(mesh=4)), "number 4 of 1"),
        (broken_glb(lambda tree: tree["nodes"][0].update(rotation=["a"])), "not well formed"),
        (broken_glb(lambda tree: tree["nodes"][0].update(scale=[1e308, 1e308, 1e308])), "expected finite metres"),
        (cube_glb()[:-4], "the file has"),
        (b"glTF", "expected a GLB"),
    ],
)
def test_a_glb_that_cannot_be_read_says_why(tmp_path, raw, said):
    mesh, messages = mesh_of(tmp_path, "broken.glb", raw)
    assert mesh is None
    assert said in messages[0]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"v 0 0\nf 1 1 1\n", "broken.obj:1: expected 'v X Y Z'"),
        (b"v 0 0 nan\nv 0 0 0\nv 1 0 0\nf 1 2 3\n", "vertex 0"),
        (b"v 0 0 0\nf 1 2 3\n", "refers to the vertices"),
        (b"v 0 0 0\nf 0 0 0\n", "broken.obj:2:"),
        (b"v 0 0 0\nf 1 1\n", "3 to 255"),
        (b"v 0 0 0\nsurface 1 1\n", "unexpected line"),
        (b"# nothing\n", "no vertices"),
        (b"\xff\xfe\x00", "unexpected line"),
    ],
)
def test_an_obj_that_cannot_be_read_says_where(tmp_path, raw, said):
    mesh, messages = mesh_of(tmp_path, "broken.obj", raw)
    assert mesh is None
    assert said in messages[0]


def test_a_face_list_longer_than_the_file_is_refused_at_once(tmp_path):
    header = b"ply\nformat binary_little_endian 1.0\nelement face 99999999999\n"
    header += b"property list uint int vertex_indices\nend_header\n"
    mesh, messages = mesh_of(tmp_path, "endless.ply", header + bytes(64))
    assert mesh is None
    assert "cut short" in messages[0]
