"""World bundles for tests: a small valid one, and ways to break it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from microsim import paths
from microsim.bundle import load_bundle
from microsim.bundle.bundle_writing import mesh_ply
from microsim.documents.yaml_text import read_yaml, to_yaml
from microsim.errors import BundleError, Problem

CUBE_VERTICES = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float32)
CUBE_TRIANGLES = np.array(
    [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
     [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]], np.int32,
)  # fmt: skip


def small_bundle(folder: Path) -> Path:
    """The minimal world, with a cube as its static mesh."""
    shutil.copytree(paths.world_folder("minimal_test"), folder)
    (folder / "geometry/static_mesh.ply").write_bytes(mesh_ply(CUBE_VERTICES, CUBE_TRIANGLES))
    world = folder / "world.yaml"
    world.write_text(
        world.read_text().replace("geometry:\n", "geometry:\n  static_mesh: geometry/static_mesh.ply\n", 1)
    )
    return folder


def change(file: Path, edit: Callable[[Any], Any]) -> None:
    """Edits the data of a YAML, JSON or GeoJSON file in place."""
    text = file.read_text()
    if file.suffix == ".yaml":
        data = read_yaml(text, str(file)).data
        edit(data)
        file.write_text(to_yaml(data))
    else:
        data = json.loads(text)
        edit(data)
        file.write_text(json.dumps(data, indent=1))


def problems(folder: Path) -> list[Problem]:
    """What is wrong, as loading reports it: it refuses exactly when any of it is an error."""
    try:
        bundle = load_bundle(folder)
    except BundleError as error:
        found = list(error.problems)
        refused = True
    else:
        found = list(bundle.warnings)
        refused = False
    assert refused == any(not problem.is_warning for problem in found)
    return found


def assert_breaks(folder: Path, rule: str, *words: str, count: int | None = 1) -> list[Problem]:
    """This bundle breaks that rule and no other; the words are in what is said about it."""
    found = problems(folder)
    assert {problem.rule for problem in found} == {rule}, [str(problem) for problem in found]
    assert count is None or len(found) == count, [str(problem) for problem in found]
    for problem in found:
        assert problem.file is not None
        assert problem.message
        assert problem.remedy
    text = "\n".join(map(str, found))
    for word in words:
        assert word in text, f"{word!r} not in {text}"
    return found
