"""A still picture of a moment, without a browser: the map from above beside what the cameras see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from microsim.engine.world import PALETTE, World
from microsim.errors import MicroSimError
from microsim.scenario import sensors as blocks
from microsim.simulation import Simulation
from microsim.view.web.page.meshes import footprint, grid_step, ground_texture
from microsim.view.web.page.robot_bodies import COLOURS

_FINE = 2  # everything is drawn twice as large, then scaled down: smooth edges
_MAP_PX, _GAP_PX, _SIDE_PX, _HEAD_PX = 720, 16, 352, 44
_PAPER, _INK, _DIM, _EDGE = (250, 251, 253), (22, 32, 46), (90, 102, 120), (214, 221, 230)


class StillError(MicroSimError):
    """The picture cannot be written."""


def save_still(path: Path, sim: Simulation, ways: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    try:
        still(sim, ways).save(path)
    except OSError as error:
        raise StillError(f"{path}: cannot be written: {error.strerror or error}") from None


def still(sim: Simulation, ways: Mapping[str, Sequence[tuple[float, float]]]) -> Image.Image:
    cameras = [
        (robot, name)
        for robot, settings in sim.scenario.robots.items()
        for name, block in settings.all_sensors().items()
        if isinstance(block, blocks.Camera)
    ][:3]
    map_part = _Map(sim.world, ways, sim.scenario.world is not None).draw(sim)
    views = [_view(sim, robot, name) for robot, name in cameras]
    column = [
        view.resize((_SIDE_PX, round(_SIDE_PX * view.height / view.width)), Image.Resampling.NEAREST) for view in views
    ]
    side = _SIDE_PX + _GAP_PX if column else 0
    tall = sum(view.height + 24 + _GAP_PX for view in column)
    width, height = map_part.width + side + 2 * _GAP_PX, max(map_part.height, tall) + _HEAD_PX + 2 * _GAP_PX
    page = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((_GAP_PX, _GAP_PX), sim.scenario.name, _INK, _font(26))
    facts = f"t = {sim.time_ns / 1e9:.2f} s   tick {sim.tick:,}   seed {sim.seed}   digest {sim.digest()[:12]}…"
    draw.text((width - _GAP_PX, _GAP_PX + 8), facts, _DIM, _font(15), anchor="ra")
    page.paste(map_part, (_GAP_PX, _HEAD_PX + _GAP_PX))
    top = _HEAD_PX + _GAP_PX
    for (robot, name), view in zip(cameras, column, strict=True):
        left = map_part.width + 2 * _GAP_PX
        draw.text((left, top), f"/{robot}/{name}/image_raw", _DIM, _font(14))
        page.paste(view, (left, top + 22))
        draw.rectangle((left, top + 22, left + view.width - 1, top + 21 + view.height), outline=_EDGE)
        top += view.height + 24 + _GAP_PX
    return page


def _view(sim: Simulation, robot: str, name: str) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(sim.render(robot, name)))


def _font(size: int) -> Any:
    return ImageFont.load_default(size)


class _Map:
    def __init__(self, world: World, ways: Mapping[str, Sequence[tuple[float, float]]], is_bundle: bool) -> None:
        self.world, self.ways, self.is_bundle = world, ways, is_bundle
        self.west, self.south, self.east, self.north = _part(world, ways)
        self.scale = _FINE * _MAP_PX / max(self.east - self.west, self.north - self.south)

    def _pixel(self, x: float, y: float) -> tuple[float, float]:
        return (x - self.west) * self.scale, (self.north - y) * self.scale

    def draw(self, sim: Simulation) -> Image.Image:
        size = round((self.east - self.west) * self.scale), round((self.north - self.south) * self.scale)
        picture = self._ground(size)
        self._things(picture)
        draw = ImageDraw.Draw(picture)
        for number, robot in enumerate(sim.robots):
            colour = COLOURS[number % len(COLOURS)]
            way = [self._pixel(*place) for place in self.ways.get(robot, ())]
            if len(way) > 1:
                draw.line(way, fill=colour, width=3 * _FINE, joint="curve")
            self._robot(draw, sim.state(robot), robot, colour)
        self._ruler(draw, picture)
        return picture.resize((size[0] // _FINE, size[1] // _FINE), Image.Resampling.LANCZOS)

    def _ground(self, size: tuple[int, int]) -> Image.Image:
        texture = ground_texture(self.world, self.is_bundle)
        west, south, east, north = self.world.extent_m
        per_x, per_y = texture.width / (east - west), texture.height / (north - south)
        box = (
            (self.west - west) * per_x,
            (north - self.north) * per_y,
            (self.east - west) * per_x,
            (north - self.south) * per_y,
        )
        return texture.resize(size, Image.Resampling.BICUBIC, box=box)

    def _things(self, picture: Image.Image) -> None:
        shapes = sorted((*self.world.features, *self.world.obstacles), key=lambda each: each.height_m)
        shadow = Image.new("L", picture.size, 0)
        dark = ImageDraw.Draw(shadow)
        outlines = [[self._pixel(float(x), float(y)) for x, y in footprint(shape)] for shape in shapes]
        for shape, outline in zip(shapes, outlines, strict=True):
            reach = 0.3 * shape.height_m * self.scale
            for part in range(9 if reach else 0):
                dark.polygon([(u + reach * part / 8, v + reach * part / 8) for u, v in outline], fill=90)
        picture.paste(
            Image.new("RGB", picture.size, (30, 41, 59)), mask=shadow.filter(ImageFilter.GaussianBlur(3 * _FINE))
        )
        draw = ImageDraw.Draw(picture)
        for shape, outline in zip(shapes, outlines, strict=True):
            colour = tuple(int(part) for part in PALETTE[shape.class_id])
            rim = tuple(round(0.7 * part) for part in colour) if shape.height_m else colour
            draw.polygon(outline, fill=colour, outline=rim, width=_FINE)

    def _robot(self, draw: ImageDraw.ImageDraw, state: Any, name: str, colour: tuple[int, int, int]) -> None:
        u, v = self._pixel(state.x, state.y)
        size = 14.0 * _FINE
        nose = (u + 1.5 * size * math.cos(state.yaw), v - 1.5 * size * math.sin(state.yaw))
        tail = [
            (u + size * math.cos(state.yaw + turn), v - size * math.sin(state.yaw + turn))
            for turn in (2.4, math.pi, -2.4)
        ]
        draw.polygon([nose, tail[0], (u, v), tail[2]], fill=colour, outline=(255, 255, 255), width=_FINE)
        text = f"{name}  {state.z:.1f} m" if state.z > 1.0 else name
        at = (u + 1.7 * size, v - 1.7 * size)
        box = draw.textbbox(at, text, _font(15 * _FINE), anchor="lm")
        draw.rounded_rectangle((box[0] - 8, box[1] - 6, box[2] + 8, box[3] + 6), 8, fill=(255, 255, 255), outline=_EDGE)
        draw.text(at, text, colour, _font(15 * _FINE), anchor="lm")

    def _ruler(self, draw: ImageDraw.ImageDraw, picture: Image.Image) -> None:
        step = grid_step(self.world)
        length = step * self.scale
        left, low = 14 * _FINE, picture.height - 16 * _FINE
        draw.rounded_rectangle((left - 12, low - 44, left + length + 40, low + 18), 8, fill=(255, 255, 255))
        draw.line([(left, low), (left + length, low)], fill=_INK, width=3 * _FINE)
        draw.text((left, low - 6), f"{step:g} m", _INK, _font(13 * _FINE), anchor="lb")
        at = left + length + 22
        draw.polygon([(at, low - 36), (at - 11, low - 10), (at + 11, low - 10)], fill=(220, 60, 60))
        draw.text((at, low - 8), "N", _INK, _font(11 * _FINE), anchor="mt")
        draw.rectangle((0, 0, picture.width - 1, picture.height - 1), outline=_EDGE, width=_FINE)


def _part(world: World, ways: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[float, float, float, float]:
    """The part of the map that is worth drawing: a square around ways and things, within the map."""
    west, south, east, north = world.extent_m
    places = [place for way in ways.values() for place in way] + [
        shape.center for shape in (*world.obstacles, *world.features)
    ]
    if not places:
        return west, south, east, north
    xs, ys = [x for x, _ in places], [y for _, y in places]
    side = max(max(xs) - min(xs), max(ys) - min(ys), 12.0) * 1.15 + 4.0
    if side > 0.8 * max(east - west, north - south):
        return west, south, east, north
    middle = 0.5 * (min(xs) + max(xs)), 0.5 * (min(ys) + max(ys))
    left = min(max(middle[0] - 0.5 * side, west), max(east - side, west))
    low = min(max(middle[1] - 0.5 * side, south), max(north - side, south))
    return left, low, min(left + side, east), min(low + side, north)
