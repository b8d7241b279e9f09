"""Draws docs/pictures/capture.webp: the practice capture as a world, from its layers to what a car's camera sees there.

Run it again when captures are converted differently: `.venv/bin/python -m docs.capture_picture` (extra `capture`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from PIL import Image

from examples.capture import street
from microsim import Simulation
from microsim.parts.worlds.capture.capture_report import step_pictures
from microsim.parts.worlds.capture.capture_world import CaptureOptions, build_capture, write_capture

OUT = Path(__file__).parents[1] / "pictures" / "capture.webp"
TILE = (640, 420)
SHOWN = ("Layers", "Collision mesh", "Drivable area")


def main() -> None:
    options = CaptureOptions(camera_height_m=street.CAMERA_HEIGHT_M)
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "capture"
        made = street.street()
        street.write_ply(capture / "splat.ply", made)
        street.write_nerfstudio(capture, made)
        steps = build_capture(capture, options, lambda step, done, total: None)
        write_capture(Path(folder) / "street", steps, options, lambda step, done, total: None)
        tiles = [Image.fromarray(picture) for title, _, picture, _ in step_pictures(steps) if title in SHOWN]
        camera = {
            "camera_front": {
                "resolution": {"width": 1280, "height": 840},
                "intrinsics": {"fx": 800.0, "fy": 800.0, "cx": 639.5, "cy": 419.5},
            }
        }
        sim = Simulation({"world": str(Path(folder) / "street"), "robots": {"ego": {"sensors": camera}}})
        tiles.append(Image.fromarray(sim.render("ego", "camera_front")))
    sheet = Image.new("RGB", (2 * TILE[0] + 12, 2 * TILE[1] + 12), "white")
    for index, tile in enumerate(tiles):
        place = (index % 2 * (TILE[0] + 12), index // 2 * (TILE[1] + 12))
        sheet.paste(fitted(tile), place)
    sheet.save(OUT, quality=88, method=6)


def fitted(tile: Image.Image) -> Image.Image:
    """Filling the tile, the middle of the picture in its middle."""
    scale = max(TILE[0] / tile.width, TILE[1] / tile.height)
    large = tile.resize((round(tile.width * scale), round(tile.height * scale)), Image.Resampling.LANCZOS)
    left, top = (large.width - TILE[0]) // 2, (large.height - TILE[1]) // 2
    return large.crop((left, top, left + TILE[0], top + TILE[1]))


if __name__ == "__main__":
    main()
