"""The page on which a world bundle is edited: `with WorldEditor(bundle, folder) as editor: print(editor.address)`.

The page collects edits and draws them on a map. This side checks them, draws them in the scene, and writes the edited
world with the functions that `microsim bundle edit --apply` uses.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import math
import shlex
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from microsim.bundle import Bundle, load_bundle
from microsim.bundle.bundle_model import rotation_matrix
from microsim.bundle.bundle_writing import yaml_bytes
from microsim.bundle.drivable_geojson import rings_of
from microsim.engine.world import World
from microsim.errors import BundleError, MicroSimError, Problem
from microsim.parts.view.web.interface import PageOptions, PageScene
from microsim.parts.view.web.page import Cameras, page_html, started
from microsim.parts.view.web.page.access import AccessCheck, bounded_requests
from microsim.parts.view.web.page.robot_bodies import Floats, add_lines, add_points
from microsim.parts.view.web.page.stage import Stage3D, ground_texture, on_the_ground, sky
from microsim.parts.worlds.apply_edits import (
    background,
    edited_objects,
    edited_polygons,
    refuse_shipped,
    replace_edited,
    write_edited,
)
from microsim.parts.worlds.edits import WorldEdits, edit_problems, edits_of
from microsim.scenario.scene import bundle_world

_MOST_BYTES = 4_000_000  # of a message: polygons of a capture have many points
_LAYERS = ("splats", "mesh")
_GREEN, _ORANGE, _CYAN, _PINK, _RED, _VIOLET = (
    (60, 210, 110), (255, 150, 30), (30, 200, 220), (235, 70, 190), (235, 70, 60), (150, 110, 255),
)  # fmt: skip
_MOST_PX = 1800  # of the map, along the longer side
_MOST_DOTS = 12_000_000
_LARGEST_DOT_PX = 5
_OPAQUE = 0.3
_NEAR_LINE = 0.006  # [rad] around a line of sight: a few pixels
_FARTHEST_M = 2000.0


class WorldSplats:
    """The opaque Gaussians of a bundle that are part of its map."""

    def __init__(self, bundle: Bundle) -> None:
        found = bundle.gaussians
        rows = np.flatnonzero((found.opacities() > _OPAQUE) & ~background(bundle))
        self.points: Floats = np.asarray(found.column("x", 3), np.float64)[rows]
        self.sizes: Floats = np.exp(np.sort(np.asarray(found.column("scale_0", 3), np.float64)[rows], axis=1)[:, 1])
        self.colours = (255 * found.colours(rows)).astype(np.uint8)


def top_view(bundle: Bundle, world: World, splats: WorldSplats) -> str:
    """As the address of an image, north up: the ground, with the Gaussians on it from the lowest to the highest."""
    width, height = world.size_m
    ppm = _MOST_PX / max(width, height)
    size = max(1, round(width * ppm)), max(1, round(height * ppm))
    picture = np.array(ground_texture(world, bundle).convert("RGB").resize(size, Image.Resampling.BILINEAR))
    u = ((splats.points[:, 0] - world.west) * ppm).astype(np.int64)
    v = ((world.extent_m[3] - splats.points[:, 1]) * ppm).astype(np.int64)
    radius = np.clip((1.1 * splats.sizes * ppm).astype(np.int64), 0, _LARGEST_DOT_PX)
    while int(((2 * radius + 1) ** 2).sum()) > _MOST_DOTS and radius.max() > 0:
        radius = np.maximum(radius - 1, 0)
    parts = [_dots(u, v, np.flatnonzero(radius == each), each) for each in range(_LARGEST_DOT_PX + 1)]
    across, along, which = (np.concatenate(each) for each in zip(*parts, strict=True))
    inside = (across >= 0) & (across < size[0]) & (along >= 0) & (along < size[1])
    across, along, which = across[inside], along[inside], which[inside]
    order = np.argsort(splats.points[which, 2], kind="stable")
    picture[along[order], across[order]] = splats.colours[which[order]]
    data = io.BytesIO()
    Image.fromarray(picture).save(data, "WEBP", quality=82)
    return "data:image/webp;base64," + base64.b64encode(data.getvalue()).decode()


def _dots(u: Any, v: Any, rows: Any, radius: int) -> tuple[Any, Any, Any]:
    """Pixels of round dots, and the row that each belongs to."""
    dx, dy = np.meshgrid(np.arange(-radius, radius + 1), np.arange(-radius, radius + 1))
    disc = dx * dx + dy * dy <= (radius + 0.5) ** 2
    across, along = u[rows, None] + dx[disc], v[rows, None] + dy[disc]
    return across.reshape(-1), along.reshape(-1), np.repeat(rows, int(disc.sum()))


def on_the_line(bundle: Bundle, splats: WorldSplats, eye: Floats, direction: Floats) -> list[float] | None:
    """The nearest point of the world that is seen in a direction: on a Gaussian, or on the ground."""
    ahead = direction / np.linalg.norm(direction)
    away = splats.points - eye
    along = away @ ahead
    aside = np.linalg.norm(away - along[:, None] * ahead, axis=1)
    hit = (along > 0.1) & (aside < np.maximum(_NEAR_LINE * along, 0.7 * splats.sizes))
    found = [float(along[hit].min())] if hit.any() else []
    steps = np.geomspace(0.1, _FARTHEST_M, 4000)
    places = eye + steps[:, None] * ahead
    with np.errstate(invalid="ignore"):
        below = np.flatnonzero(places[:, 2] <= bundle.heightmap.heights(places[:, 0], places[:, 1]))
    if below.size:
        found.append(float(steps[below[0]]))
    return (eye + min(found) * ahead).round(3).tolist() if found else None


def eye_ray(camera: Any, u: float, v: float) -> tuple[Floats, Floats]:
    """Where a page looks from, and the direction of the point (u, v) of its picture, each 0 to 1 from the top left."""
    w, x, y, z = camera.wxyz
    half = math.tan(0.5 * camera.fov)
    seen = np.array([(2.0 * u - 1.0) * half * camera.aspect, (2.0 * v - 1.0) * half, 1.0])
    return np.array(camera.position, np.float64), rotation_matrix(float(x), float(y), float(z), float(w)) @ seen


class WorldEditor:
    """Serves the page while inside a `with` block, on this machine only."""

    def __init__(
        self, bundle: Bundle, target: Path, is_in_place: bool = False, options: PageOptions | None = None,
        edits: WorldEdits | None = None, source: str = "",
    ) -> None:  # fmt: skip
        if is_in_place:
            refuse_shipped(target)
        self.target, self._is_in_place = target, is_in_place
        self._source = source or str(bundle.root)  # as the command names it
        self._lock = threading.Lock()
        self._data: dict[str, Any] = {} if edits is None else edits.as_data()
        self._saved: dict[str, Any] | None = None
        self._round = 1  # further ones are of the world that was saved, and have files of their own
        self._written: set[Path] = set()  # what this editor wrote, it may write again
        options = options or PageOptions()
        html = page_html("Edit · MicroSim", options.is_dark, ("page.css", "editor.css"), ("editor.js",))
        access = AccessCheck(html, None, self._serve, most_bytes=_MOST_BYTES)
        with contextlib.redirect_stdout(io.StringIO()):
            self._server = started(options, access)
        self._cameras = Cameras(self._server, self._home, lambda robot: [])
        self._open(bundle)
        self.address = f"http://127.0.0.1:{self._server.get_port()}/"

    def __enter__(self) -> WorldEditor:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._server.stop()

    @property
    def has_unsaved_edits(self) -> bool:
        return self._content(self._data) not in ({}, self._content(self._saved or {}))

    @staticmethod
    def _content(data: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in data.items() if key != "version" and value}

    @property
    def edits_file(self) -> Path:
        """Where the edits are kept beside the edited world."""
        number = "" if self._round == 1 else f"_{self._round}"
        return self.target.with_name(f"{self.target.name}_edits{number}.yaml")

    def keep_edits(self) -> Path:
        """Write the edits as they are, valid or not."""
        self.edits_file.write_bytes(yaml_bytes({"version": "1.0.0", **self._content(self._data)}))
        return self.edits_file

    # ---- the scene ---------------------------------------------------------------------------------------------------

    def _open(self, bundle: Bundle) -> None:
        self._bundle = bundle
        world = bundle_world(bundle)
        scene = PageScene(
            scenario=bundle.name, physics_hz=float(bundle.timebase.physics_hz), world=world, robots=(), sensors=(),
            origin_wgs84=bundle.origin_wgs84, has_radio=False, bundle=str(bundle.root),
        )  # fmt: skip
        self._server.scene.reset()
        self._server.scene.set_up_direction("+z")
        self._stage = Stage3D(self._server, scene)
        self._stage.show("labels", False)  # objects have theirs among the edits
        self._splats = WorldSplats(bundle)
        self._image = top_view(bundle, world, self._splats)
        camera = self._server.initial_camera
        eye, centre = camera.position, camera.look_at = self._home()
        for client in self._server.get_clients().values():  # pages that are open show the world before
            client.scene.set_background_image(sky(False))
            self._cameras.put(client, eye, centre)
        camera.fov, camera.near, camera.far = 0.8, 0.05, 5000.0
        self._draw(WorldEdits.model_validate(self._data) if edits_of(self._data)[0] else WorldEdits())

    def _home(self) -> tuple[Any, Any]:
        """What can be driven on, from the south-west and above."""
        grid = self._bundle.heightmap
        edges = self._bundle.drivable.edges
        west, south, east, north = self._stage.scene.world.extent_m
        low, high = ((west, south), (east, north)) if not len(edges) else (edges[:, :2].min(0), edges[:, :2].max(0))
        z = float(np.nan_to_num(np.nanmean(grid.values) if not np.isnan(grid.values).all() else 0.0))
        return self._stage.home([(float(low[0]), float(low[1]), z), (float(high[0]), float(high[1]), z)])

    def _draw(self, edits: WorldEdits) -> None:
        scene, bundle = self._server.scene, self._bundle
        with self._server.atomic():
            scene.remove_by_name("/edits")
            scene.add_frame("/edits", show_axes=False)
            rings = [ring for each, _ in edited_polygons(bundle, edits) for ring in each]
            edges = [(*a, *b) for ring in rings for a, b in pairwise(ring)]
            if edges:
                add_lines(scene, "/edits/drivable", _GREEN, 3.0, on_the_ground(bundle, edges, 0.12))
            self._draw_start(edits)
            for index, each in enumerate(edited_objects(bundle, edits)):
                corners = _box(each.center, each.size, each.yaw)
                add_lines(scene, f"/edits/objects/{index}", _VIOLET, 2.5, corners)
                x, y, z = each.center
                place = (x, y, z + 0.5 * each.size[2] + 0.3)
                scene.add_label(f"/edits/objects/{index}/name", each.name, position=place)
            if edits.level is not None:
                points = np.array(edits.level, np.float32)
                add_points(scene, "/edits/level", _CYAN, 0.25, "circle", points)
                add_lines(
                    scene, "/edits/level/plane", _CYAN, 3.0, np.stack([points, np.roll(points, 1, axis=0)], axis=1)
                )
            if edits.scale is not None:
                ends = np.array(edits.scale.points, np.float32)
                add_points(scene, "/edits/scale", _PINK, 0.25, "circle", ends)
                add_lines(scene, "/edits/scale/length", _PINK, 4.0, ends[None])
            if edits.crop is not None:
                heights = bundle.heightmap.values
                low = float(np.nanmin(heights)) if not np.isnan(heights).all() else 0.0
                (x0, x1), (y0, y1), (z0, z1) = edits.crop.x, edits.crop.y, edits.crop.z or (low, low + 8.0)
                centre, size = (0.5 * (x0 + x1), 0.5 * (y0 + y1), 0.5 * (z0 + z1)), (x1 - x0, y1 - y0, z1 - z0)
                add_lines(scene, "/edits/crop", _RED, 2.5, _box(centre, size, 0.0))

    def _draw_start(self, edits: WorldEdits) -> None:
        start = edits.start or self._bundle.start
        if start is None:
            return
        ground = np.nan_to_num(self._bundle.heightmap.heights(np.array([start.x]), np.array([start.y])))[0]
        centre = (start.x + 1.35 * math.cos(start.yaw), start.y + 1.35 * math.sin(start.yaw), float(ground) + 0.75)
        add_lines(self._server.scene, "/edits/start", _ORANGE, 3.0, _box(centre, (4.5, 1.8, 1.5), start.yaw))
        tail = np.array([start.x, start.y, float(ground) + 0.8])
        tip = tail + 6.0 * np.array([math.cos(start.yaw), math.sin(start.yaw), 0.0])
        style = {"shaft_radius": 0.08, "head_radius": 0.25, "head_length": 0.7}
        self._server.scene.add_arrows("/edits/heading", np.array([[tail, tip]], np.float32), colors=_ORANGE, **style)

    # ---- a page ------------------------------------------------------------------------------------------------------

    async def _serve(self, page: str, connection: ServerConnection) -> None:
        try:
            await connection.send(json.dumps(self._world()))
            async for text in bounded_requests(connection):
                for answer in await asyncio.to_thread(self._answer, page, text):
                    await connection.send(json.dumps(answer))
        except ConnectionClosed:
            return

    def _world(self) -> dict[str, Any]:
        bundle = self._bundle
        polygons = [
            {"rings": [ring[:-1].tolist() for ring in rings], "priority": priority}
            for rings, priority in zip(rings_of(bundle.drivable), bundle.drivable.priority.tolist(), strict=True)
        ]
        return {
            "type": "world", "name": bundle.name, "folder": str(bundle.root), "target": str(self.target),
            "in_place": self._is_in_place, "extent": self._stage.scene.world.extent_m, "image": self._image,
            "polygons": polygons, "start": None if bundle.start is None else bundle.start.model_dump(),
            "objects": [each.model_dump(mode="json") for each in bundle.objects], "edits": self._content(self._data),
            "ground": self._stage.ground, "splats": self._stage.splats,
            "triangles": 0 if bundle.mesh is None else len(bundle.mesh.triangles),
        }  # fmt: skip

    def _answer(self, page: str, text: str | bytes) -> list[dict[str, Any]]:
        """The answers to a request of a page; none if the request is malformed."""
        try:
            request = json.loads(text)
            kind, value = str(request["kind"]), request.get("value")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []
        work = {"edits": self._check, "pick": self._pick, "save": self._save, "continue": self._continue}.get(kind)
        with self._lock, contextlib.suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):
            if kind == "theme":
                self._cameras.when_there(page, lambda client: _paint(client, bool(value)))
            elif kind == "layer" and value[0] in _LAYERS:
                self._stage.show(value[0], bool(value[1]))
            elif work is not None:
                return work(page, value)
        return []

    def _check(self, page: str, data: Any) -> list[dict[str, Any]]:
        """Remember the edits, draw those that can be applied, and report what is wrong with the others."""
        if not isinstance(data, dict):
            return []
        self._data = data
        edits, problems = edits_of(data)
        if edits is not None:
            problems = edit_problems(self._bundle, edits)
            if not any(each.path.startswith(("drivable", "objects")) for each in problems):
                self._draw(edits)
        return [self._checked(problems)]

    def _checked(self, problems: list[Problem]) -> dict[str, Any]:
        listed = [{"path": each.path, "text": each.explanation} for each in problems]
        text = yaml_bytes({"version": "1.0.0", **self._content(self._data)}).decode()
        return {"type": "checked", "problems": listed, "yaml": text, "command": self._command()}

    def _command(self) -> str:
        to = ["--in-place"] if self._is_in_place else ["--output", str(self.target)]
        return shlex.join(["microsim", "bundle", "edit", self._source, "--apply", str(self.edits_file), *to])

    def _pick(self, page: str, value: Any) -> list[dict[str, Any]]:
        """A point of the world: above or below a place of the map, or under the pointer in the scene."""
        if "u" in value:
            clients = self._cameras.of(page)
            if not clients:
                return []
            eye, direction = eye_ray(clients[0].camera, float(value["u"]), float(value["v"]))
            point = on_the_line(self._bundle, self._splats, eye, direction)
        else:
            x, y = float(value["x"]), float(value["y"])
            z = float(self._bundle.heightmap.heights(np.array([x]), np.array([y]))[0])
            point = None if math.isnan(z) else [round(x, 3), round(y, 3), round(z, 3)]
        return [{"type": "picked", "id": value.get("id"), "point": point}]

    def _save(self, page: str, data: Any) -> list[dict[str, Any]]:
        answers = self._check(page, data)
        if not answers or answers[0]["problems"]:
            return answers
        edits, command, replaces = edits_of(data)[0], self._command(), self._is_in_place or self.target in self._written
        assert edits is not None
        try:
            saved = (replace_edited if replaces else write_edited)(self._bundle, edits, self.target)
            self._written.add(self.target)
            self.keep_edits()
        except BundleError as error:
            return [self._checked(list(error.problems))]
        except (MicroSimError, OSError) as error:
            return [self._checked([Problem(str(error))])]
        self._saved = dict(data)
        done = {
            "type": "saved", "folder": str(self.target), "edits": str(self.edits_file), "command": command,
            "warnings": [each.message for each in saved.warnings],
        }  # fmt: skip
        return [*([self._continued(saved)] if self._is_in_place else []), done]

    def _continue(self, page: str, value: Any) -> list[dict[str, Any]]:
        """Further edits are of the world that was saved."""
        if self.target not in self._written:
            return []
        self._is_in_place, self._source = True, str(self.target)
        return [self._continued(load_bundle(self.target))]

    def _continued(self, bundle: Bundle) -> dict[str, Any]:
        self._data, self._saved = {}, None
        self._round += 1
        self._open(bundle)
        return self._world() | {"fresh": True}


def _paint(client: Any, is_dark: bool) -> None:
    client.scene.set_background_image(sky(False))
    client.gui.configure_theme(dark_mode=is_dark, show_logo=False, show_share_button=False)


def _box(centre: Any, size: Any, yaw: float) -> Any:
    """(12, 2, 3) edges of an upright box."""
    signs = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
    corners = 0.5 * signs * np.array(size)
    sine, cosine = math.sin(yaw), math.cos(yaw)
    turned = corners @ np.array([[cosine, sine, 0.0], [-sine, cosine, 0.0], [0.0, 0.0, 1.0]]) + np.array(centre)
    pairs = [(a, b) for a in range(8) for b in range(a + 1, 8) if int((signs[a] != signs[b]).sum()) == 1]
    return np.array([(turned[a], turned[b]) for a, b in pairs], np.float32)
