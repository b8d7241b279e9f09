"""Draws docs/pictures/ros_map.png: a map of map_server as a world, with one scan in it.

Run it again when either changes: `.venv/bin/python docs/draw/ros_map_picture.py` (needs matplotlib).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw

mpl.use("Agg")
from matplotlib import pyplot as plt

import microsim

PICTURE = Path(__file__).parents[1] / "pictures" / "ros_map.png"
CELL_M = 0.05
THRESHOLDS = "negate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.196\n"
RULES = f"image: plan.png\nresolution: {CELL_M}\norigin: [-6, -4, 0]\n{THRESHOLDS}"
WALLS = [(20, 20, 219, 139), (90, 20, 90, 60), (90, 85, 90, 139), (150, 20, 150, 75), (150, 100, 219, 100)]
START = (-3.8, -0.4, 0.3)


def plan() -> Image.Image:
    """A flat of four rooms; what is outside is unknown."""
    image = Image.new("L", (240, 160), 205)
    draw = ImageDraw.Draw(image)
    draw.rectangle(WALLS[0], fill=254, outline=0, width=3)
    for wall in WALLS[1:]:
        draw.line(wall, fill=0, width=3)
    draw.rectangle((115, 110, 130, 122), fill=0)
    draw.ellipse((55, 95, 67, 107), fill=0)
    return image


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan().save(Path(folder) / "plan.png")
        (Path(folder) / "plan.yaml").write_text(RULES)
        x, y, yaw = START
        rover = {"start": {"map_pose": {"x": x, "y": y, "yaw": yaw}}, "scan": {"hz": 10, "mount": {"xyz": [0, 0, 0.2]}}}
        sim = microsim.Simulation({"map": {"image": f"{folder}/plan.yaml"}, "robots": {"rover": rover}})
        first = {message.topic: message.message for message in sim.step(0)}
    grid, scan = first["/world/occupancy"], first["/rover/scan"]
    values = grid.data.reshape(grid.info.height, grid.info.width).astype(int)
    shades = np.where(values < 0, 0.82, 1.0 - values / 100.0)
    west, south, east, north = sim.world.extent_m
    figure, axes = plt.subplots(figsize=(7.2, 4.9))
    axes.imshow(shades, origin="lower", extent=(west, east, south, north), cmap="gray", vmin=0.0, vmax=1.0)
    angles = yaw + scan.angle_min + np.arange(len(scan.ranges)) * scan.angle_increment
    ranges = np.where(np.isfinite(scan.ranges), scan.ranges, np.nan)
    ends = x + np.cos(angles) * ranges, y + np.sin(angles) * ranges
    axes.plot([np.full_like(angles, x), ends[0]], [np.full_like(angles, y), ends[1]], color="#3b82f6", lw=0.3)
    axes.plot(*ends, ".", color="#dc2626", ms=3)
    axes.plot(x, y, "o", color="#15803d", ms=8)
    axes.set(xlabel="x in the map frame [m]", ylabel="y [m]", title="/world/occupancy and one /rover/scan")
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=100)


if __name__ == "__main__":
    main()
