"""What is in a box leaves a world and becomes an actor: a file of its Gaussians, and the lines of a scenario."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import Bundle, Heightmap, NamedObject
from microsim.bundle.capture.similarity import Similarity, matrix_of_rpy

BACK_FILE = "actors/scenario.yaml"  # beside the actors: puts them back where they were


class CutOut(NamedTuple):
    """A box of the world before, and where its actor stands in the world after."""

    box: NamedObject
    x: float
    y: float
    ground: float  # [m] below its centre
    yaw: float
    size: tuple[float, float, float]  # of its body, from the ground up

    @property
    def name(self) -> str:
        return robot_name(self.box.name)

    @property
    def file(self) -> str:
        """In the world's folder, but not part of the bundle."""
        return f"actors/{self.name}.ply"

    @property
    def frame(self) -> Similarity:
        """From the map to the actor: x ahead, z up, origin on the ground below its centre."""
        back = matrix_of_rpy(0.0, 0.0, -self.yaw)
        x, y, z = (-back @ np.array([self.x, self.y, self.ground])).tolist()
        return Similarity(back, 1.0, (x, y, z))


def robot_name(text: str) -> str:
    """A name for topics that is like the text."""
    found = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:50]
    return found if found[:1].isalpha() else f"actor_{found}".rstrip("_")


def cut_outs(boxes: Sequence[NamedObject], frame: Similarity, ground: Heightmap) -> list[CutOut]:
    """`frame`: from the world before to the world after, whose ground is given."""
    found = []
    for box in boxes:
        x, y, z = frame.points([box.center])[0].round(4).tolist()
        ahead = frame.rotation @ np.array([math.cos(box.yaw), math.sin(box.yaw), 0.0])
        yaw = round(math.atan2(ahead[1], ahead[0]), 6) + 0.0
        level = float(ground.heights(np.array([x]), np.array([y]))[0])
        length, width, height = (frame.scale * side for side in box.size)
        top = z + 0.5 * height - level
        found.append(CutOut(box, x, y, level, yaw, (round(length, 4), round(width, 4), round(max(top, 0.01), 4))))
    return found


def inside_box(box: NamedObject, points: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of many points (n, 3) are in it."""
    x, y, z = (points.astype(np.float64) - np.array(box.center)).T
    sine, cosine = math.sin(box.yaw), math.cos(box.yaw)
    length, width, height = (0.5 * side for side in box.size)
    across = (np.abs(cosine * y - sine * x) <= width) & (np.abs(z) <= height)
    found: npt.NDArray[np.bool_] = across & (np.abs(cosine * x + sine * y) <= length)
    return found


def cut_problem(bundle: Bundle, box: NamedObject) -> str:
    """Why it cannot be cut out; empty: it can."""
    x, y, _ = box.center
    if not inside_box(box, bundle.gaussians.column("x", 3)).any():
        return "no Gaussian has its centre in this box; make it larger, or move it"
    if math.isnan(bundle.heightmap.heights(np.array([x]), np.array([y]))[0]):
        return "the map has no ground below the middle of this box; move the box to where the actor can stand"
    return ""


def scenario_of(cuts: Sequence[CutOut], folder: str) -> dict[str, Any]:
    """What puts the actors back where they were, in the world of that folder, from where it is called so."""
    robots: dict[str, Any] = {"ego": {}}
    for cut in cuts:
        robots[cut.name] = {
            "model": "actor",
            "shape": "box",
            "size": list(cut.size),
            "splats": {"file": f"{folder}/{cut.file}", "shadow": False},
            "start": {"map_pose": {"x": cut.x, "y": cut.y, "yaw": cut.yaw}},
        }
    return {"world": folder, "robots": robots}
