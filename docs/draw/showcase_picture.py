"""Draws docs/pictures/showcase.png: one moment of the scenario `showcase`, seen from above and through three cameras.

Run it again when the scenario changes: `.venv/bin/python docs/draw/showcase_picture.py` (needs Pillow, nothing else).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

import microsim
from microsim.engine.world import PALETTE, WATER, Shape, World

OUT = Path(__file__).parents[1] / "pictures" / "showcase.png"

WEST, SOUTH, EXTENT = 2.0, 5.0, 44.0  # [m] the part of the map that is drawn
FINE = 2  # everything is drawn this much larger, then scaled down: smooth edges
SIDE, GAP = 880, 22  # [px] the map's panel, the space between panels
WIDE, SQUARE = (878, 430), 428  # [px] the panels of the cameras
PIXELS_PER_M = SIDE * FINE / EXTENT

NIGHT, EDGE, TEXT, FAINT = (17, 24, 39), (55, 65, 81), (229, 231, 235), (156, 163, 175)
DRONE, ROVER, BEAM = (109, 40, 217), (180, 83, 9), (234, 179, 8)
DRONE_STOPS = (
    (20.0, 36.0, 17.0),
    (33.0, 38.0, 17.0),
    (40.0, 28.0, 17.0),
    (33.0, 20.0, 17.0),
    (24.0, 24.5, 17.0),
    (12.0, 30.0, 15.0),
    (6.0, 20.0, 12.0),
    (6.0, 9.5, 11.0),
    (9.0, 11.0, 11.0),
)
ROVER_STOPS = ((15.0, 11.5), (19.0, 13.5), (21.5, 16.5))
PICTURE_STOP = 4  # the drone's stop at which its image is taken


def scenario() -> Any:
    """`showcase` with larger images, without wind, and with one more camera that looks ahead and down."""
    data = microsim.load_scenario("showcase").to_dict()
    drone, rover = data["robots"]["drone"], data["robots"]["rover"]
    square = {"resolution": {"width": SQUARE, "height": SQUARE}, "intrinsics": {"fov_deg": 66}}
    wide = {"resolution": {"width": WIDE[0], "height": WIDE[1]}, "intrinsics": {"fov_deg": 80}}
    drone["camera"] |= square
    drone["sensors"] = {"ahead": {"type": "camera", "mount": {"rpy": [-2.05, 0, -1.5708]}, **wide}}
    rover["camera"] |= square
    rover["scan"] |= {"beams": 120, "angle_min": -1.6, "angle_max": 1.6, "sigma_m": 0.0}
    data["wind"] = {}
    return microsim.load_scenario(data)


Places = list[tuple[float, float]]


def fly(sim: microsim.Simulation) -> tuple[dict[str, Places], Any, Any]:
    """Both robots visit their stops; gives the ways they took, and state and image of the drone on its way."""
    todo: dict[str, list[Any]] = {"drone": list(DRONE_STOPS), "rover": list(ROVER_STOPS)}
    ways: dict[str, Places] = {robot: [] for robot in todo}
    taken: tuple[Any, Any] = (None, None)
    while any(todo.values()):
        for robot, stops in todo.items():
            state = sim.state(robot)
            ways[robot].append((state.x, state.y))
            if stops and math.dist((state.x, state.y), stops[0][:2]) < 1.0:
                stops.pop(0)
                if robot == "drone" and len(stops) == len(DRONE_STOPS) - PICTURE_STOP - 1:
                    taken = state, sim.render("drone")
            _steer(sim, robot, state, stops[0] if stops else None)
        sim.step(6)
    return ways, *taken


def _steer(sim: microsim.Simulation, robot: str, state: Any, stop: tuple[float, ...] | None) -> None:
    if stop is None:
        sim.command(robot)
        return
    turn = math.remainder(math.atan2(stop[1] - state.y, stop[0] - state.x) - state.yaw, math.tau)
    ahead = max(math.cos(turn), 0.1)
    if robot == "drone":
        sim.command(robot, vx=3.0 * ahead, vz=0.5 * (stop[2] - state.z), yaw_rate=1.5 * turn)
    else:
        sim.command(robot, v=1.5 * ahead, omega=2.0 * turn)


def pixel(x: float, y: float) -> tuple[float, float]:
    return (x - WEST) * PIXELS_PER_M, (SOUTH + EXTENT - y) * PIXELS_PER_M


def relief(world: World) -> Image.Image:
    """Surface classes in the palette's colours, shaded as if lit from the north-west, with contour lines."""
    count = SIDE * FINE
    x = WEST + (np.arange(count) + 0.5) / PIXELS_PER_M
    y = SOUTH + EXTENT - (np.arange(count) + 0.5) / PIXELS_PER_M
    columns, rows = (x / world.cell_m).astype(int), (y / world.cell_m).astype(int)
    colours = PALETTE[world.surface[rows[:, None], columns[None, :]]].astype(float)
    heights = _between_cells(world.elevation, x / world.cell_m - 0.5, y / world.cell_m - 0.5)
    north, east = np.gradient(heights, -1.0 / PIXELS_PER_M, 1.0 / PIXELS_PER_M)
    shade = np.clip(128.0 + 190.0 * (east - north), 0, 255).astype(np.uint8)
    smooth = Image.fromarray(shade).filter(ImageFilter.GaussianBlur(0.5 * PIXELS_PER_M))
    light = 0.72 + 0.6 * np.asarray(smooth) / 255.0
    light[world.surface[rows[:, None], columns[None, :]] == WATER] = 0.98  # lakes are level to the eye
    steps = np.floor(heights / 0.5)
    contour = (np.diff(steps, axis=0, prepend=steps[:1]) != 0) | (np.diff(steps, axis=1, prepend=steps[:, :1]) != 0)
    light = np.where(contour, light * 0.9, light)
    return Image.fromarray(np.clip(colours * light[:, :, None] + 12.0, 0, 255).astype(np.uint8))


def _between_cells(grid: Any, u: Any, v: Any) -> Any:
    i, j = u.astype(int), v.astype(int)
    s, t = (u - i)[None, :], (v - j)[:, None]
    south = grid[j[:, None], i] * (1 - s) + grid[j[:, None], i + 1] * s
    north = grid[j[:, None] + 1, i] * (1 - s) + grid[j[:, None] + 1, i + 1] * s
    return south * (1 - t) + north * t


def outline(shape: Shape) -> list[tuple[float, float]]:
    x, y = shape.center
    if shape.kind == "triangle":
        return [pixel(*corner) for corner in shape.vertices]
    if shape.kind == "circle":
        around = [math.tau * k / 72 for k in range(72)]
        return [pixel(x + shape.radius * math.cos(a), y + shape.radius * math.sin(a)) for a in around]
    width, depth = (0.12, shape.size[0]) if shape.kind == "billboard" else shape.size
    cosine, sine = math.cos(shape.yaw or 0.0), math.sin(shape.yaw or 0.0)
    corners = [(sx * width / 2, sy * depth / 2) for sx, sy in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
    return [pixel(x + cosine * a - sine * b, y + sine * a + cosine * b) for a, b in corners]


def draw_shapes(picture: Image.Image, world: World) -> None:
    """Everything with its shadow, lowest first."""
    shadow = Image.new("L", picture.size, 0)
    dark = ImageDraw.Draw(shadow)
    for shape in (*world.features, *world.obstacles):
        reach = 0.35 * shape.height_m * PIXELS_PER_M
        for part in range(13):
            dark.polygon([(u + reach * part / 12, v + reach * part / 12) for u, v in outline(shape)], fill=95)
    shadow = shadow.filter(ImageFilter.GaussianBlur(3 * FINE))
    picture.paste(Image.new("RGB", picture.size, (30, 41, 59)), mask=shadow)
    draw = ImageDraw.Draw(picture)
    for shape in sorted((*world.features, *world.obstacles), key=lambda each: each.height_m):
        colour = tuple(int(part) for part in PALETTE[shape.class_id])
        rim = tuple(int(0.72 * part) for part in colour) if shape.height_m else colour
        draw.polygon(outline(shape), fill=colour, outline=rim, width=2 * FINE)


def draw_robots(picture: Image.Image, sim: microsim.Simulation, ways: dict[str, Places], drone: Any) -> None:
    """What the camera saw from the state `drone`, laser beams, and the ways to where the robots are now."""
    view, beams, tracks = (Image.new("RGBA", picture.size) for _ in range(3))
    _draw_view(ImageDraw.Draw(view), sim.world, drone)
    _draw_scan(ImageDraw.Draw(beams), sim)
    draw = ImageDraw.Draw(tracks)
    _dot(draw, pixel(drone.x, drone.y), 7 * FINE, (*DRONE, 255))
    for robot, colour in (("drone", DRONE), ("rover", ROVER)):
        draw.line([pixel(*place) for place in ways[robot]], fill=(*colour, 235), width=3 * FINE, joint="curve")
        state = sim.state(robot)
        _arrow(draw, state.x, state.y, state.yaw, colour)
    for layer in (view, beams, tracks):
        picture.paste(layer, mask=layer)


def _draw_view(draw: ImageDraw.ImageDraw, world: World, drone: Any) -> None:
    half = (drone.z - world.ground(drone.x, drone.y)) * math.tan(math.radians(33.0))
    cosine, sine = math.cos(drone.yaw), math.sin(drone.yaw)
    view = [(half, half), (-half, half), (-half, -half), (half, -half)]
    corners = [pixel(drone.x + cosine * a - sine * b, drone.y + sine * a + cosine * b) for a, b in view]
    draw.polygon(corners, fill=(*DRONE, 26))
    draw.line([*corners, corners[0]], fill=(*DRONE, 230), width=2 * FINE)


def _draw_scan(draw: ImageDraw.ImageDraw, sim: microsim.Simulation) -> None:
    rover = sim.state("rover")
    scan = next(each.message for each in reversed(sim.step(6)) if each.topic == "/rover/scan")
    at = (rover.x + 0.25 * math.cos(rover.yaw), rover.y + 0.25 * math.sin(rover.yaw))
    for index, distance in enumerate(scan.ranges):
        angle = rover.yaw + scan.angle_min + index * scan.angle_increment
        reach = float(distance) if math.isfinite(distance) else 20.0
        end = pixel(at[0] + reach * math.cos(angle), at[1] + reach * math.sin(angle))
        draw.line([pixel(*at), end], fill=(*BEAM, 110), width=FINE)
        if math.isfinite(distance):
            _dot(draw, end, 4 * FINE, (*BEAM, 255))


def _dot(draw: ImageDraw.ImageDraw, place: tuple[float, float], radius: float, colour: tuple[int, ...]) -> None:
    draw.ellipse([place[0] - radius, place[1] - radius, place[0] + radius, place[1] + radius], fill=colour)


def _arrow(draw: ImageDraw.ImageDraw, x: float, y: float, yaw: float, colour: tuple[int, ...]) -> None:
    tip = [(1.0, 0.0), (-0.75, 0.7), (-0.4, 0.0), (-0.75, -0.7)]
    cosine, sine = math.cos(yaw), math.sin(yaw)
    corners = [pixel(x + cosine * a - sine * b, y + sine * a + cosine * b) for a, b in tip]
    draw.polygon(corners, fill=(*colour, 255), outline=(255, 255, 255, 255), width=2 * FINE)


def panel(sheet: Image.Image, image: Image.Image, place: tuple[int, int], name: str, about: str) -> None:
    """An image with round corners, and its caption in the lower left."""
    (x, y), (width, height) = place, image.size
    mask = Image.new("L", (width * 4, height * 4), 0)
    ImageDraw.Draw(mask).rounded_rectangle([0, 0, width * 4 - 1, height * 4 - 1], 4 * 14, fill=255)
    sheet.paste(image, (x, y), mask.resize(image.size, Image.Resampling.LANCZOS))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(19)
    long, foot = draw.textlength(name, font), y + height - 12
    whole = int(long + (12 + draw.textlength(about, font) if about else 0))
    draw.rounded_rectangle([x + 12, foot - 34, x + 36 + whole, foot], 9, fill=NIGHT)
    draw.text((x + 24, foot - 28), name, TEXT, font)
    draw.text((x + 36 + long, foot - 28), about, FAINT, font)


def main() -> None:
    sim = microsim.Simulation(scenario())
    ways, state, below = fly(sim)
    above = relief(sim.world)
    draw_shapes(above, sim.world)
    draw_robots(above, sim, ways, state)
    above = above.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    right = GAP + SIDE + GAP
    sheet = Image.new("RGB", (right + WIDE[0] + GAP, GAP + SIDE + GAP), NIGHT)
    panel(sheet, above, (GAP, GAP), "the world from above", "hills, water, both ways, the rover's laser scan")
    ahead, rover = (Image.fromarray(sim.render(*which)) for which in (("drone", "ahead"), ("rover", "camera")))
    low = GAP + WIDE[1] + GAP
    panel(sheet, ahead, (right, GAP), "/drone/ahead/image_raw", "a second camera, a few lines of YAML")
    panel(sheet, Image.fromarray(below), (right, low), "/drone/camera/image_raw", "on its way")
    panel(sheet, rover, (right + SQUARE + GAP, low), "/rover/camera/image_raw", "")
    sheet.save(OUT, optimize=True)
    print(f"{OUT}: {sheet.size}")


if __name__ == "__main__":
    main()
