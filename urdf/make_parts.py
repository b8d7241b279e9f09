"""Writes urdf/parts.json: the visuals of every robot model here, as splat cameras draw them.

    .venv/bin/python urdf/make_parts.py     (needs the extra `view`)

Cameras must give the same bytes with and without a reader of URDF installed, so the models are kept as plain numbers:
for each part its shape, half its size [m], its middle [m] and axes (rows) in base_link, and its colour, 0 to 1. Joints
are at zero; parts that let light through and those smaller than a centimetre are left out.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
SMALLEST_M = 0.01


def parts_of(file: Path) -> list[list[Any]]:
    import xacrodoc
    import yourdfpy

    text = xacrodoc.XacroDoc.from_file(str(file)).to_urdf_string()
    urdf = yourdfpy.URDF.load(io.StringIO(text), build_scene_graph=False, load_meshes=False)
    colours = {each.name: each.color.rgba for each in urdf.robot.materials if each.color is not None}
    joints = {joint.child: joint for joint in urdf.robot.joints}
    found = []
    for link in urdf.robot.links:
        place, at = np.eye(4), link.name
        while at in joints:
            joint = joints[at]
            place, at = (np.eye(4) if joint.origin is None else joint.origin) @ place, joint.parent
        for visual in link.visuals:
            part = _part(visual, place, colours)
            if part is not None:
                found.append(part)
    return found


def _part(visual: Any, place: Any, colours: dict[str, Any]) -> list[Any] | None:
    material, shape = visual.material, visual.geometry
    rgba = material.color.rgba if material is not None and material.color is not None else None
    rgba = (
        (colours.get(material.name, (0.7, 0.7, 0.7, 1.0)) if material is not None else None) if rgba is None else rgba
    )
    if shape.box is not None:
        kind, half = "box", 0.5 * np.array(shape.box.size)
    elif shape.cylinder is not None:
        kind, half = "cylinder", np.array([shape.cylinder.radius, shape.cylinder.radius, 0.5 * shape.cylinder.length])
    elif shape.sphere is not None:
        kind, half = "sphere", np.full(3, shape.sphere.radius)
    else:
        return None
    if rgba is None or rgba[3] < 1.0 or 2.0 * float(np.sort(half)[1]) < SMALLEST_M:
        return None
    whole = place if visual.origin is None else place @ visual.origin
    return [kind, _rounded(half), _rounded(whole[:3, 3]), _rounded(whole[:3, :3].reshape(-1)), _rounded(rgba[:3])]


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 6) + 0.0 for value in values]


def made() -> str:
    models = {file.name.removesuffix(".urdf.xacro"): parts_of(file) for file in sorted(HERE.glob("*.urdf.xacro"))}
    lines = (
        f'"{name}": [\n' + ",\n".join(json.dumps(part) for part in parts) + "\n]" for name, parts in models.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    (HERE / "parts.json").write_text(made(), encoding="utf-8")
