"""Draws docs/_static/splats_cpu.png: worlds/oval through its three cameras, with another car, depth and classes.

And splats_actor.png: a tree is cut out of the world, and moves.

Run it again when the world or the renderer changes: `.venv/bin/python docs/splat_picture.py` (needs Pillow). With
a GPU, `--render gpu` draws splats_gpu.png, which must be the same to the byte.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import microsim
from microsim.bundle import load_bundle
from microsim.bundle.cut_out import cut_outs, scenario_of
from microsim.bundle.edited_world import write_edited
from microsim.bundle.world_edits import WorldEdits
from microsim.render.render_options import render_request

STATIC = Path(__file__).parent / "_static"
PANEL, GAP = (480, 360), 6
FARTHEST_M = 60.0
CAMERAS = ("front_left", "front", "front_right")
SCENARIO: dict[str, Any] = {
    "world": "oval",
    "robots": {
        "ego": {
            "sensors": {
                "lidar_top": None,
                "camera_front": {"render": {"type": "splat", "depth": True, "segmentation": True}},
            }
        },
        "other": {"model": "bicycle", "start": {"map_pose": {"x": -8.0, "y": -28.0, "yaw": 0.3}}},
    },
}


def views() -> dict[str, np.ndarray[Any, Any]]:
    """Every image of tick 0, as the topics carry them."""
    found = {}
    for message in microsim.Simulation(SCENARIO).step(0):
        if message.type == "sensor_msgs/msg/Image":
            image = message.message
            kind = np.float32 if image.encoding == "32FC1" else np.uint8
            pixels = np.frombuffer(bytes(image.data), kind).reshape(image.height, image.width, -1)
            found[message.topic.removeprefix("/ego/camera_")] = pixels
    return found


def shaded(depths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Near is light, far is dark, nothing is black."""
    light = 1.0 - np.minimum(depths, FARTHEST_M) / FARTHEST_M
    grey = np.where(np.isfinite(depths), 30.0 + 225.0 * np.sqrt(light), 0.0).astype(np.uint8)
    return np.broadcast_to(grey, (*grey.shape[:2], 3))


def assembled(panels: list[np.ndarray[Any, Any]], columns: int) -> Image.Image:
    rows = -(-len(panels) // columns)
    size = columns * (PANEL[0] + GAP) - GAP, rows * (PANEL[1] + GAP) - GAP
    sheet = Image.new("RGB", size, "white")
    for index, panel in enumerate(panels):
        place = (index % columns) * (PANEL[0] + GAP), (index // columns) * (PANEL[1] + GAP)
        sheet.paste(Image.fromarray(np.ascontiguousarray(panel)).resize(PANEL, Image.Resampling.LANCZOS), place)
    return sheet


def cut_out() -> list[np.ndarray[Any, Any]]:
    """The oval, without the tree, and with the tree somewhere else."""
    tree = {"name": "Tree", "center": [12, -48, 3.7], "size": [6, 6, 7], "yaw": 0.3, "cut_out": True}
    edits = WorldEdits.model_validate({"objects": [tree]})
    ego = {"start": {"map_pose": {"x": 32, "y": -30, "yaw": -2.6}}, "sensors": {"lidar_top": None}}
    with tempfile.TemporaryDirectory() as folder:
        without = f"{folder}/without"
        after = write_edited(load_bundle("oval"), edits, Path(without))
        moved = scenario_of(cut_outs(edits.cut_out, edits.frame, after.heightmap), without)
        moved["robots"]["ego"] = ego
        moved["robots"]["tree"]["start"] = {"map_pose": {"x": 12, "y": -33, "yaw": 1.6}}
        moved["robots"]["tree"]["splats"]["shadow"] = True
        worlds = {"world": "oval", "robots": {"ego": ego}}, {"world": without, "robots": {"ego": ego}}, moved
        return [microsim.Simulation(each).render("ego", "camera_front") for each in worlds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--render", choices=("cpu", "gpu"), default="cpu")
    render_request.choice = parser.parse_args().render
    found = views()
    panels = [found[f"{name}/image_raw"] for name in CAMERAS]
    assembled(panels, 3).save(STATIC / f"splats_{render_request.choice}.png", optimize=True)
    extra = [found["front/image_raw"], shaded(found["front/depth"]), found["front/segmentation"]]
    if render_request.choice == "cpu":
        assembled(extra, 3).save(STATIC / "splats_outputs.png", optimize=True)
        assembled(cut_out(), 3).save(STATIC / "splats_actor.png", optimize=True)


if __name__ == "__main__":
    main()
