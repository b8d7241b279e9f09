"""The static mesh, from a binary PLY, an OBJ or a GLB: vertices in the map frame, and triangles."""

from __future__ import annotations

import numpy as np

from microsim.bundle.mesh_arrays import MAX_VERTICES, Corners, Floats, MeshError
from microsim.bundle.mesh_glb import read_glb_mesh
from microsim.bundle.mesh_obj import read_obj_mesh
from microsim.bundle.mesh_ply import read_ply_mesh
from microsim.bundle.models import Mesh
from microsim.bundle.report import Source

RECOMMENDED_TRIANGLES = 10_000_000
MAX_COORDINATE_M = 1e7
READERS = {".ply": read_ply_mesh, ".obj": read_obj_mesh, ".glb": read_glb_mesh}


def read_mesh(source: Source) -> Mesh | None:
    """The mesh; None and a problem when it cannot be used."""
    try:
        arrays = READERS[source.file.suffix](source)
        mesh = None if arrays is None else _checked(*arrays)
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


def _checked(vertices: Floats, triangles: Corners) -> Mesh:
    if len(vertices) > MAX_VERTICES:
        raise MeshError(f"expected at most {MAX_VERTICES:,} vertices, found {len(vertices):,}")
    if vertices.size and not (abs(float(vertices.min())) <= MAX_COORDINATE_M >= abs(float(vertices.max()))):
        row = int(np.flatnonzero(~(np.abs(vertices) <= MAX_COORDINATE_M).all(axis=1))[0])
        raise MeshError(f"vertex {row} is at {vertices[row].tolist()}, expected finite metres", rule="mesh-value")
    if triangles.size and not (int(triangles.min()) >= 0 and int(triangles.max()) < len(vertices)):
        row = int(np.flatnonzero(((triangles < 0) | (triangles >= len(vertices))).any(axis=1))[0])
        message = f"triangle {row} names the vertices {triangles[row].tolist()}, there are {len(vertices):,}"
        raise MeshError(message, rule="mesh-value")
    vertices.flags.writeable = triangles.flags.writeable = False
    return Mesh(vertices, triangles)
