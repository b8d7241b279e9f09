"""A run as files: one page that plays anywhere, and a still picture of a moment, drawn without a browser."""

from __future__ import annotations

import contextlib
import html
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from microsim.attachment import Seekable
from microsim.bundle import Bundle
from microsim.engine.world import PALETTE, World
from microsim.errors import os_errors
from microsim.parts.view.run_state import RobotState, robot_states, shown_sensors
from microsim.parts.view.web.interface import FrameCollector, ViewerError
from microsim.parts.view.web.page import own, quiet_server, with_head
from microsim.parts.view.web.page.panel_data import as_script, columns, plot_fields, point, sensor_plots
from microsim.parts.view.web.page.robot_bodies import COLOURS
from microsim.parts.view.web.page.stage import Stage3D, footprint, grid_step, ground_texture, sky
from microsim.runner import Runner
from microsim.scenario.bundles import bundle_of
from microsim.simulation import Simulation

FRAMES_PER_S = 15.0
_MOST_FRAMES = 6000  # longer runs have fewer of them in a second
_FINE = 2  # pictures are drawn twice as large, then scaled down: smooth edges
_MAP_PX, _GAP_PX, _SIDE_PX, _HEAD_PX = 720, 16, 352, 44
_PAPER, _INK, _DIM, _EDGE = (250, 251, 253), (22, 32, 46), (90, 102, 120), (214, 221, 230)


# ---- a page ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExportedRun:
    """What the page shows about its run."""

    scenario: str
    seed: int
    name: str
    digest: str
    note: str = ""


def write_html(
    path: Path,
    sim: Simulation,
    replay: Seekable,
    exported: ExportedRun,
    progress: Callable[[float], None] = lambda share: None,
) -> int:
    """Run it and write what happened; returns the size in bytes."""
    if not path.parent.is_dir():
        raise ViewerError(f"{path}: cannot be written: there is no folder {path.parent}")
    collector = FrameCollector(Runner(sim, 0.0))
    scene = collector.scene(mode="replay")
    server = quiet_server()
    try:
        stage = Stage3D(server, scene, is_film=True)
        server.scene.set_background_image(sky(False))
        for topic in collector.drawn:
            collector.plot(topic)
        collector.on_messages(sim.step(0))
        frame = collector.frame()
        stage.draw(frame)
        server.initial_camera.position, server.initial_camera.look_at = stage.home([])
        server.initial_camera.fov, server.initial_camera.far = 0.8, 5000.0
        recording = server.get_scene_serializer()
        every = max(1, round(sim.scenario.physics_hz / FRAMES_PER_S), replay.last // _MOST_FRAMES)
        steps = list(frame.way)
        while replay.room:
            before = sim.tick
            replay.move(before + min(every, replay.room), collector.on_messages)
            recording.insert_sleep((sim.tick - before) * sim.clock.dt)
            frame = collector.frame()
            stage.draw(frame)
            steps += frame.way
            progress(sim.tick / max(replay.last, 1))
        colours = {name: "rgb({},{},{})".format(*colour) for name, colour in stage.colours.items()}
        _aim(recording, *stage.home([each.position for step in steps[::5] for each in step.robots.values()]))
        topics = {look.topic for look in scene.sensors}
        points = [point(step, scene.sensors, topics) for step in steps]
        fields = plot_fields(scene, steps)
        text = _page(recording.as_html(), exported, sim, colours, points, sensor_plots(scene), fields)
    finally:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints about it
            server.stop()
    with os_errors(f"{path}: cannot be written", ViewerError):
        path.write_text(text, encoding="utf-8")
    return len(text.encode())


def _aim(recording: Any, eye: Any, centre: Any) -> None:
    """Where the player looks from, once it is known where robots have been."""
    for _, message in recording._messages:
        if message["type"] in ("SetCameraPositionMessage", "SetCameraLookAtMessage"):
            is_eye = message["type"] == "SetCameraPositionMessage"
            message["position" if is_eye else "look_at"] = eye if is_eye else centre


def _page(
    page: str,
    exported: ExportedRun,
    sim: Simulation,
    colours: Mapping[str, str],
    points: Sequence[Any] = (),
    plots: Sequence[Any] = (),
    fields: Sequence[Any] = (),
) -> str:
    words = [
        exported.scenario,
        f"{exported.name}, seed {exported.seed}, {sim.time_ns / 1e9:.1f} s, {sim.tick:,} ticks",
        f"digest {exported.digest[:16]}…" if exported.digest else "",
        exported.note,
    ]
    run = {"words": [word for word in words if word], "colours": colours, "points": columns(points)}
    run |= {"plots": plots, "fields": fields}
    head = (
        f"<style>{own('export.css')}</style><script>window.MICROSIM_RUN={as_script(run)};</script>"
        f"<script>{own('plots.js')}</script><script>{own('export.js')}</script>"
    )
    return with_head(page, f"{html.escape(exported.name)} · MicroSim", head)


# ---- a picture -------------------------------------------------------------------------------------------------------


def save_still(path: Path, sim: Simulation, trails: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    with os_errors(f"{path}: cannot be written", ViewerError):
        still(sim, trails).save(path)


def still(sim: Simulation, trails: Mapping[str, Sequence[tuple[float, float]]]) -> Image.Image:
    """The map from above beside what the cameras see."""
    sensors = [sensor for sensor in shown_sensors(sim.scenario) if sensor.kind.camera is not None]
    cameras = [sensor for sensor in sensors if sensor.kind.display.layer == "image"][:3]
    bundle = bundle_of(sim.scenario.world) if sim.scenario.world is not None else None
    map_part = MapPicture(sim.world, trails, bundle).draw(sim)
    views = [Image.fromarray(np.ascontiguousarray(sim.render(each.robot, each.name))) for each in cameras]
    sizes = [(_SIDE_PX, round(_SIDE_PX * view.height / view.width)) for view in views]
    column = [view.resize(size, Image.Resampling.NEAREST) for view, size in zip(views, sizes, strict=True)]
    side = _SIDE_PX + _GAP_PX if column else 0
    tall = sum(view.height + 24 + _GAP_PX for view in column)
    width, height = map_part.width + side + 2 * _GAP_PX, max(map_part.height, tall) + _HEAD_PX + 2 * _GAP_PX
    page = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((_GAP_PX, _GAP_PX), sim.scenario.name, _INK, _font(26))
    exported = f"t = {sim.time_ns / 1e9:.2f} s   tick {sim.tick:,}   seed {sim.seed}   digest {sim.digest()[:12]}…"
    draw.text((width - _GAP_PX, _GAP_PX + 8), exported, _DIM, _font(15), anchor="ra")
    page.paste(map_part, (_GAP_PX, _HEAD_PX + _GAP_PX))
    top = _HEAD_PX + _GAP_PX
    for camera, view in zip(cameras, column, strict=True):
        left = map_part.width + 2 * _GAP_PX
        draw.text((left, top), camera.topic, _DIM, _font(14))
        page.paste(view, (left, top + 22))
        draw.rectangle((left, top + 22, left + view.width - 1, top + 21 + view.height), outline=_EDGE)
        top += view.height + 24 + _GAP_PX
    return page


def _font(size: int) -> Any:
    return ImageFont.load_default(size)


class MapPicture:
    def __init__(
        self, world: World, trails: Mapping[str, Sequence[tuple[float, float]]], bundle: Bundle | None
    ) -> None:
        self.world, self.trails, self.bundle = world, trails, bundle
        self.west, self.south, self.east, self.north = _part(world, trails)
        self.scale = _FINE * _MAP_PX / max(self.east - self.west, self.north - self.south)

    def _pixel(self, x: float, y: float) -> tuple[float, float]:
        return (x - self.west) * self.scale, (self.north - y) * self.scale

    def draw(self, sim: Simulation) -> Image.Image:
        size = round((self.east - self.west) * self.scale), round((self.north - self.south) * self.scale)
        picture = self._ground(size)
        self._things(picture)
        draw = ImageDraw.Draw(picture)
        for number, (robot, state) in enumerate(robot_states(sim).items()):
            colour = COLOURS[number % len(COLOURS)]
            trail = [self._pixel(*place) for place in self.trails.get(robot, ())]
            if len(trail) > 1:
                draw.line(trail, fill=colour, width=3 * _FINE, joint="curve")
            self._robot(draw, state, robot, colour)
        self._ruler(draw, picture)
        return picture.resize((size[0] // _FINE, size[1] // _FINE), Image.Resampling.LANCZOS)

    def _ground(self, size: tuple[int, int]) -> Image.Image:
        texture = ground_texture(self.world, self.bundle)
        west, south, east, north = self.world.extent_m
        per_x, per_y = texture.width / (east - west), texture.height / (north - south)
        left, right = (self.west - west) * per_x, (self.east - west) * per_x
        box = (left, (north - self.north) * per_y, right, (north - self.south) * per_y)
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
        blurred = shadow.filter(ImageFilter.GaussianBlur(3 * _FINE))
        picture.paste(Image.new("RGB", picture.size, (30, 41, 59)), mask=blurred)
        draw = ImageDraw.Draw(picture)
        for shape, outline in zip(shapes, outlines, strict=True):
            colour = tuple(int(part) for part in PALETTE[shape.class_id])
            rim = tuple(round(0.7 * part) for part in colour) if shape.height_m else colour
            draw.polygon(outline, fill=colour, outline=rim, width=_FINE)

    def _robot(self, draw: ImageDraw.ImageDraw, state: RobotState, name: str, colour: tuple[int, int, int]) -> None:
        (x, y, z), yaw, size = state.position, state.rpy[2], 14.0 * _FINE
        u, v = self._pixel(x, y)
        turned = [(1.5 * size, 0.0), (size, 2.4), (0.0, 0.0), (size, -2.4)]
        outline = [(u + far * math.cos(yaw + turn), v - far * math.sin(yaw + turn)) for far, turn in turned]
        draw.polygon(outline, fill=colour, outline=(255, 255, 255), width=_FINE)
        text = f"{name}  {z:.1f} m" if z > 1.0 else name
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


def _part(world: World, trails: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[float, float, float, float]:
    """The part of the map that is worth drawing: a square around trails and shapes, within the map."""
    west, south, east, north = world.extent_m
    places = [place for trail in trails.values() for place in trail]
    places += [shape.center for shape in (*world.obstacles, *world.features)]
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
