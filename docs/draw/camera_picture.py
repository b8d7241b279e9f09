"""Draws docs/pictures/cameras.png: one view of worlds/oval by day, at dusk, in rain and through a fisheye.

Run it again when the world or the renderer changes: `.venv/bin/python docs/draw/camera_picture.py` (needs Pillow).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import microsim
from microsim.render.renderer_choice import render_request

PICTURES = Path(__file__).parents[1] / "pictures"
PANEL, GAP = (640, 480), 6
FISHEYE = {
    "projection": "fisheye",
    "distortion": {"model": "equidistant", "D": [-0.02, 0.005, 0, 0]},
    "intrinsics": {"fx": 215.0, "fy": 215.0},
}
VIEWS: tuple[dict[str, Any], ...] = (
    {},
    {"appearance": {"dusk": 1.0, "vignetting": 0.35}},
    {"appearance": {"rain": 0.8, "vignetting": 0.25}},
    FISHEYE,
)


def view(camera: dict[str, Any]) -> Image.Image:
    sensors = {"lidar_top": None, "camera_front_left": None, "camera_front_right": None, "camera_front": camera}
    other = {"model": "bicycle", "start": {"map_pose": {"x": -8.0, "y": -28.0, "yaw": 0.3}}}
    sim = microsim.Simulation({"world": "oval", "robots": {"ego": {"sensors": sensors}, "other": other}})
    return Image.fromarray(np.ascontiguousarray(sim.render("ego", "camera_front")))


def main() -> None:
    render_request.choice = "cpu"
    sheet = Image.new("RGB", (2 * PANEL[0] + GAP, 2 * PANEL[1] + GAP), "white")
    for index, camera in enumerate(VIEWS):
        place = (index % 2) * (PANEL[0] + GAP), (index // 2) * (PANEL[1] + GAP)
        sheet.paste(view(camera).resize(PANEL, Image.Resampling.LANCZOS), place)
    sheet.save(PICTURES / "cameras.png", optimize=True)


if __name__ == "__main__":
    main()
