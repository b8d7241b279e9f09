"""Draws docs/pictures/lidar.png: one turn of the LiDAR in worlds/oval, from above and as the sensor sees it.

Run it again when the world changes: `.venv/bin/python docs/draw/lidar_picture.py` (needs Pillow, nothing else).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import microsim
from microsim.sensors.lidar import POINT

OUT = Path(__file__).parents[1] / "pictures" / "lidar.png"
WIDTH, HEIGHT, STRIP = 1200, 640, 160  # [px]
METRES = 90.0  # across the view from above
NIGHT, TEXT = (17, 24, 39), (229, 231, 235)
LOW, HIGH = np.array((59, 130, 246.0)), np.array((250, 204, 21.0))  # of the ground and of what stands on it


def turn() -> Any:
    """The points of one turn, after two seconds of driving."""
    cameras = dict.fromkeys(("camera_front", "camera_front_left", "camera_front_right"))
    start = {"map_pose": {"x": -36.0, "y": -31.0, "yaw": 0.1}}
    sim = microsim.Simulation({"world": "oval", "robots": {"ego": {"start": start, "sensors": cameras}}})
    sim.command("ego", speed=4.0)
    sent = [each for each in sim.step(90) if each.topic == "/ego/lidar_top/points"]
    return np.frombuffer(sent[-1].message.data.tobytes(), POINT)


def colours(points: Any) -> Any:
    """By height, brighter where more light comes back."""
    share = np.clip((points["z"] + 2.2) / 5.0, 0.0, 1.0)[:, None]
    light = np.clip(0.35 + points["intensity"] / 120.0, 0.0, 1.0)[:, None]
    return ((LOW + (HIGH - LOW) * share) * light).astype(np.uint8)


def from_above(points: Any) -> Image.Image:
    picture = np.full((HEIGHT, WIDTH, 3), NIGHT, np.uint8)
    per_metre = WIDTH / METRES
    u = (WIDTH / 2 + points["x"] * per_metre).astype(int)
    v = (HEIGHT / 2 - points["y"] * per_metre).astype(int)
    order = np.argsort(points["z"])
    inside = order[(u[order] >= 0) & (u[order] < WIDTH - 1) & (v[order] >= 0) & (v[order] < HEIGHT - 1)]
    shade = colours(points)
    for down in (0, 1):
        for right in (0, 1):
            picture[v[inside] + down, u[inside] + right] = shade[inside]
    image = Image.fromarray(picture)
    car = [(3.6, 0.9), (3.6, -0.9), (-0.9, -0.9), (-0.9, 0.9)]  # in base_link; the sensor is 0.9 m before it
    corners = [(WIDTH / 2 + (x - 0.9) * per_metre, HEIGHT / 2 - y * per_metre) for x, y in car]
    ImageDraw.Draw(image).polygon(corners, outline=TEXT)
    return image


def as_seen(points: Any) -> Image.Image:
    """Every ring a row, forward in the middle; grey by distance."""
    rows = np.full((32, 1024, 3), NIGHT, np.uint8)
    azimuth = np.arctan2(points["y"], points["x"])
    column = (512 - np.rint(azimuth / (2 * np.pi) * 1024).astype(int)) % 1024
    far = np.sqrt(points["x"] ** 2 + points["y"] ** 2)
    near = np.clip(1.0 - np.log1p(far) / np.log1p(80.0), 0.08, 1.0)[:, None]
    rows[31 - points["ring"], column] = (np.array((255.0, 255.0, 255.0)) * near).astype(np.uint8)
    return Image.fromarray(rows).resize((WIDTH, STRIP), Image.Resampling.NEAREST)


def main() -> None:
    points = turn()
    sheet = Image.new("RGB", (WIDTH, HEIGHT + STRIP + 12), NIGHT)
    sheet.paste(from_above(points), (0, 0))
    sheet.paste(as_seen(points), (0, HEIGHT + 12))
    sheet.save(OUT, optimize=True)
    print(f"{OUT}: {len(points)} points")


if __name__ == "__main__":
    main()
