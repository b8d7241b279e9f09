"""Draws docs/pictures/oval.png: the world bundle `oval` as a map, and what two of its cameras see.

Run it again when the world changes: `.venv/bin/python docs/draw/bundle_picture.py` (needs Pillow, nothing else).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from microsim.bundle import Bundle, load_bundle
from microsim.render.palette_camera import CameraModel
from microsim.render.splat.activation import activate
from microsim.render.splat.picture import CpuRenderer, Shot, Sky, lens_of

OUT = Path(__file__).parents[1] / "pictures" / "oval.png"
PIXELS_PER_M = 6
PAPER, INK, ROAD, PIT, HOLE, SOLID = "#ffffff", "#1f2937", "#f59e0b", "#3b82f6", "#7dd3fc", "#7f1d1d"
CAR_POSES = {"front": (-20.0, -30.0, 0.0), "front_left": (55.0, -26.5, 0.55)}
LEGEND = (
    (ROAD, "drivable, priority 0 (with a hole)"),
    (PIT, "drivable, priority 1"),
    (SOLID, "static mesh: walls, cones, trees"),
    (HOLE, "no ground (NaN)"),
)


def relief(bundle: Bundle) -> Image.Image:
    """Heights as shaded relief, north up; where there is no ground, a colour of its own."""
    heights = np.asarray(bundle.heightmap.values, np.float64)
    rise_y, rise_x = np.gradient(np.nan_to_num(heights), bundle.heightmap.resolution_m)
    light = np.clip(0.72 - 0.9 * rise_x - 0.9 * rise_y, 0.25, 1.0)
    level = (heights - np.nanmin(heights)) / (np.nanmax(heights) - np.nanmin(heights))
    low, high = np.array([126, 158, 112]), np.array([225, 214, 178])
    colours = (low + (high - low) * np.nan_to_num(level)[..., None]) * light[..., None]
    colours[np.isnan(heights)] = (125, 211, 252)
    width, height = (int(side * PIXELS_PER_M) for side in bundle.heightmap.size_m)
    return Image.fromarray(colours[::-1].astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)


def draw_map(bundle: Bundle) -> Image.Image:
    image = relief(bundle).convert("RGBA")
    _, height = image.size

    def pixel(x: float, y: float) -> tuple[float, float]:
        return (x - bundle.heightmap.west) * PIXELS_PER_M, height - (y - bundle.heightmap.south) * PIXELS_PER_M

    glaze = Image.new("RGBA", image.size)
    assert bundle.mesh is not None
    for corners in bundle.mesh.vertices[bundle.mesh.triangles]:
        ImageDraw.Draw(glaze).polygon([pixel(x, y) for x, y, _ in corners], fill=SOLID)
    image = Image.alpha_composite(image, glaze)
    draw = ImageDraw.Draw(image)
    area = bundle.drivable
    for polygon in range(area.count):
        used = np.unique(
            area.slab_edges[area.slab_start[area.slab_first[polygon]] : area.slab_start[area.slab_first[polygon + 1]]]
        )
        for x0, y0, x1, y1 in area.edges[used]:
            draw.line([pixel(x0, y0), pixel(x1, y1)], fill=PIT if area.priority[polygon] else ROAD, width=4)
    if bundle.start is not None:
        arrow(draw, pixel, bundle.start.x, bundle.start.y, bundle.start.yaw)
    return image.convert("RGB")


def arrow(draw: ImageDraw.ImageDraw, pixel, x: float, y: float, yaw: float) -> None:  # type: ignore[no-untyped-def]
    cosine, sine = math.cos(yaw), math.sin(yaw)
    tip = ((4.0, 0.0), (-2.0, 2.0), (-1.0, 0.0), (-2.0, -2.0))
    draw.polygon(
        [pixel(x + cosine * a - sine * b, y + sine * a + cosine * b) for a, b in tip], fill="#ffffff", outline=INK
    )


def seen(bundle: Bundle, name: str, renderer: CpuRenderer) -> Image.Image:
    """What a camera of the car sees at one of the poses above."""
    camera, (x, y, yaw) = bundle.cameras[name], CAR_POSES[name]
    ground = bundle.heightmap
    row, column = int((y - ground.south) / ground.resolution_m), int((x - ground.west) / ground.resolution_m)
    cosine, sine = math.cos(yaw), math.sin(yaw)
    turn = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
    place = turn @ np.array(camera.xyz) + (x, y, float(ground.values[row, column]))
    rotation = turn @ matrix(*camera.optical_quat)
    model = CameraModel(camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy)
    rows = tuple(tuple(float(value) for value in each) for each in rotation)
    render = bundle.gaussians.render
    shot = Shot(lens_of(model), tuple(place), rows, Sky(render.background_rgb, render.sky_rgb or render.background_rgb))
    return Image.fromarray(renderer.pictures([shot])[0].colours)


def matrix(x: float, y: float, z: float, w: float) -> np.ndarray:
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def main() -> None:
    bundle = load_bundle("oval")
    above = draw_map(bundle)
    renderer = CpuRenderer(activate(bundle.gaussians.values, bundle.gaussians.sh_degree))
    views = [seen(bundle, name, renderer) for name in CAR_POSES]
    side = (above.height - 24) // 2
    views = [view.resize((side * view.width // view.height, side), Image.Resampling.LANCZOS) for view in views]
    sheet = Image.new("RGB", (above.width + views[0].width + 72, above.height + 88), PAPER)
    sheet.paste(above, (24, 24))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(22)
    for index, (view, name) in enumerate(zip(views, CAR_POSES, strict=True)):
        place = (48 + above.width, 24 + index * (side + 24))
        sheet.paste(view, place)
        draw.text((place[0] + 12, place[1] + 8), f"/ego/camera_{name}/image_raw", INK, font)
    across = 24
    for colour, words in LEGEND:
        draw.rectangle([across, above.height + 42, across + 28, above.height + 64], fill=colour)
        draw.text((across + 38, above.height + 40), words, INK, font)
        across += int(70 + draw.textlength(words, font))
    sheet = sheet.resize((sheet.width * 2 // 3, sheet.height * 2 // 3), Image.Resampling.LANCZOS)
    sheet.save(OUT, optimize=True)
    print(f"{OUT}: {sheet.size}, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
